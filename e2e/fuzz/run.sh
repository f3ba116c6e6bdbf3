#!/usr/bin/env bash
# run.sh [MINUTES [TARGET...]]
# Looks for inputs that break a property. Each target runs for MINUTES (default 1), two targets at a time. Findings are
# written to target/fuzz/findings, and the exit status is then not 0. New inputs that reach more code are kept in the
# user's cache and tried first in the next run. The repository's corpus is only read.
set -euo pipefail
cd "$(dirname "$0")"

minutes=${1:-1}
shift || true
[ $# -gt 0 ] || set -- $(cd fuzz_targets && printf '%s\n' *.rs | sed 's/\.rs$//')
[[ $minutes =~ ^[1-9][0-9]*$ ]] || { echo "error: MINUTES is ${minutes@Q}, but must be a whole number from 1 on" >&2; exit 1; }

# The memory of the process in MiB, the seconds for one input (only a hang takes that long), the seconds that the engine
# may then take to end, and the largest length of an input in bytes: long inputs are slow, and the corpus already
# reaches the code that they reach.
rss_limit=1024
input_timeout=60
end_timeout=60
declare -A longest=([document]=16384 [reviews]=8192 [heads]=4096 [requests]=1024 [annotations]=1024 [regex]=256 [jsonpath]=160 [snapshot]=65)

root=$(cd ../.. && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
findings=$target/fuzz/findings
cache=${XDG_CACHE_HOME:-$HOME/.cache}/remora/fuzz
mkdir -p "$findings"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Clients close connections while they are answered. Rust's own start-up ignores the resulting SIGPIPE, but libFuzzer's
# main function does not, so the signal would end the program.
trap '' PIPE

RUSTC_WORKSPACE_WRAPPER=$PWD/instrument.sh cargo build ${CARGO_FLAGS-} --profile fuzz -p remora-fuzz --features engine --bin 'fuzz_*'

# under_way FILE: prints the input that FILE keeps: its length in eight bytes, then the input.
under_way() {
  tail -c +9 "$1" | head -c "$(od -An -N8 -tu8 "$1" | tr -d ' ')"
}

# one NAME: runs a target, and prints its result in one line.
one() {
  local name=$1 log=$scratch/$1.log status=0
  local -a options=()
  mkdir -p "$cache/$name" "$scratch/$name"
  [ ! -f "dictionaries/$name.dict" ] || options+=("-dict=dictionaries/$name.dict")
  REMORA_FUZZ_INPUT_UNDER_WAY=$scratch/$name.input TMPDIR=$scratch/$name \
    timeout -k 5 $((minutes * 60 + input_timeout + end_timeout)) "$target/fuzz/fuzz_$name" "$cache/$name" "corpus/$name" "${options[@]}" -max_len="${longest[$name]:-1024}" \
    -max_total_time=$((minutes * 60)) -timeout=$input_timeout -rss_limit_mb=$rss_limit -print_final_stats=1 \
    -artifact_prefix="$scratch/found-$name-" >"$log" 2>&1 || status=$?
  local count
  count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
  if [ "$status" = 0 ]; then
    printf '%-12s %10d executions, nothing found\n' "$name" "$count"
    return 0
  fi
  # The engine cannot save the input if the stack overflows, or if the thread holds a lock.
  local input
  input=$(find "$scratch" -maxdepth 1 -name "found-$name-*" -print -quit)
  [ -n "$input" ] || { input=$scratch/found-$name-unsaved && under_way "$scratch/$name.input" >"$input"; }
  local kept
  kept=$findings/$name-$(sha256sum "$input" | cut -c1-12)
  mv "$input" "$kept"
  cp "$log" "$kept.log"
  {
    printf '%-12s FOUND, after %s executions:\n' "$name" "${count:-unknown}"
    grep -m3 -E "panicked at|ERROR: libFuzzer|overflow" -A4 "$log" | sed 's/^/    /' || true
    printf '  input:  %s (log beside it)\n  replay: cargo run -p remora-fuzz -- %s %s\n' "$kept" "$name" "$kept"
    printf '  keep:   mend it, and cp the input to e2e/fuzz/corpus/%s/NAME, which every test run replays\n' "$name"
  } >&2
  return 1
}

failed=0
running=0
for name in "$@"; do
  [ -x "$target/fuzz/fuzz_$name" ] || { echo "error: there is no target ${name@Q}" >&2; exit 1; }
  if [ "$running" = 2 ]; then
    wait -n || failed=1
    running=1
  fi
  one "$name" &
  running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
exit "$failed"
