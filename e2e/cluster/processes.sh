# Start and stop of the cluster's processes: sourced by up.sh and down.sh. A process is recorded with its ID and its
# start time, so that an ID that the kernel reused for another process is not mistaken for it.

REMORA_PROCESSES=(kubelet kube-proxy coredns kube-scheduler kube-controller-manager kube-apiserver etcd containerd)

# birth PID: prints state and start time of a process; prints nothing if it does not exist, or is a zombie.
birth() {
  local stat
  { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
  # The name, in parentheses, may contain any character, so fields are counted after it.
  read -ra stat <<<"${stat##*) }"
  [ "${stat[0]}" != Z ] && [ "${stat[0]}" != X ] && echo "${stat[19]}"
}

# alive NAME: succeeds if the process runs.
alive() {
  local pid born
  [ -s "$REMORA_RUN/pid/$1" ] || return 1
  read -r pid born <"$REMORA_RUN/pid/$1"
  [ "$(birth "$pid")" = "$born" ]
}

# start NAME COMMAND...: starts the process unless it runs. It inherits neither the terminal nor the lock.
start() {
  local name=$1 pid
  shift
  ! alive "$name" || return 0
  setsid "$@" >"$REMORA_LOG/$name.log" 2>&1 </dev/null {lock}>&- &
  pid=$!
  disown "$pid"
  echo "$pid $(birth "$pid")" >"$REMORA_RUN/pid/$name"
}

# stop NAME SIGNAL: sends the signal to the process and waits until it has ended.
stop() {
  local pid
  if alive "$1"; then
    read -r pid _ <"$REMORA_RUN/pid/$1"
    kill -s "$2" "$pid" 2>/dev/null || true
    for _ in {1..100}; do
      alive "$1" || break
      sleep 0.05
    done
    if alive "$1"; then kill -s KILL "$pid" 2>/dev/null || true; fi
    for _ in {1..100}; do
      alive "$1" || break
      sleep 0.05
    done
  fi
  rm -f "$REMORA_RUN/pid/$1"
}

# shims: prints the IDs of the shims, which outlive a containerd that died. The cluster's shims are those with its socket in the
# command line.
shims() {
  local process
  for process in /proc/[0-9]*; do
    if { tr '\0' '\n' <"$process/cmdline" | grep -qxF "$CONTAINERD_ADDRESS"; } 2>/dev/null; then
      case $(readlink "$process/exe") in */containerd-shim-*) echo "${process#/proc/}" ;; esac
    fi
  done
}
