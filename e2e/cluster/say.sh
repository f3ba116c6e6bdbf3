# Output functions of the scripts: sourced by them.

# fail MESSAGE: prints the message and ends the script.
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# say MESSAGE: prints the message with the seconds since the script began.
say() { printf '%4ds  %s\n' "$SECONDS" "$*"; }

# crates LOG: prints cargo's progress.
crates() {
  local last
  last=$(grep -E '^ +(Compiling|Downloaded|Downloading)' "$1" | tail -n 1)
  printf '%s' "${last:+, $(grep -c '^ *Compiling' "$1") crates; at $(awk '{ print $2 }' <<<"$last")}"
}

# slowly WHAT LOG COMMAND...: runs the command with its output in LOG, and prints every ten seconds that it runs, with
# its progress from `progress LOG` if the script defines that. After a failure, prints the end of the log.
slowly() {
  local what=$1 log=$2 began=$SECONDS pid next
  shift 2
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  next=$((SECONDS + 10))
  while kill -0 "$pid" 2>/dev/null; do
    if [ "$SECONDS" -ge "$next" ]; then
      say "$what: at work for $((SECONDS - began)) s$(declare -F progress >/dev/null && progress "$log")"
      next=$((SECONDS + 10))
    fi
    sleep 0.2
  done
  if ! wait "$pid"; then
    tail -n 40 "$log" >&2
    fail "$what failed after $((SECONDS - began)) s; all of its output is in $log"
  fi
  say "$what: done in $((SECONDS - began)) s"
}

# eventually SECONDS WHAT COMMAND...: waits until the command succeeds.
eventually() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ "$SECONDS" -ge "$end" ]; then
      tail -n 4 "$REMORA_LOG"/*.log >&2
      fail "gave up waiting for: $what"
    fi
    sleep 0.05
  done
  say "$what"
}
