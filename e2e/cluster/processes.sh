# Starting and stopping the cluster's processes: sourced by up.sh and down.sh.
# A process is remembered as its id and the moment it started, so that an id that the kernel gave to
# somebody else in the meantime is never taken for ours.

REMORA_PROCESSES=(kubelet kube-proxy coredns kube-scheduler kube-controller-manager kube-apiserver etcd containerd)

# birth PID: state and start time of a process; nothing when there is none, or when it is dead and not yet reaped.
birth() {
  local stat
  { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
  # The name, in parentheses, may hold anything: count the fields after it.
  read -ra stat <<<"${stat##*) }"
  [ "${stat[0]}" != Z ] && [ "${stat[0]}" != X ] && echo "${stat[19]}"
}

# alive NAME
alive() {
  local pid born
  [ -s "$REMORA_RUN/pid/$1" ] || return 1
  read -r pid born <"$REMORA_RUN/pid/$1"
  [ "$(birth "$pid")" = "$born" ]
}

# start NAME COMMAND...: unless it runs already. It keeps neither our terminal nor our lock.
start() {
  local name=$1 pid
  shift
  ! alive "$name" || return 0
  setsid "$@" >"$REMORA_LOG/$name.log" 2>&1 </dev/null {lock}>&- &
  pid=$!
  disown "$pid"
  echo "$pid $(birth "$pid")" >"$REMORA_RUN/pid/$name"
}

# stop NAME SIGNAL
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
  fi
  rm -f "$REMORA_RUN/pid/$1"
}
