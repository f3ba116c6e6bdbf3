#!/usr/bin/env bash
# part.sh NAME COMMAND...: runs the command between two lines that say what it is and how long it took.
set -u
name=$1
shift
printf '== %s\n' "$name"
"$@"
status=$?
if [ "$status" = 0 ]; then
  printf '== %s: %d s\n' "$name" "$SECONDS"
else
  printf '== %s: failed after %d s\n' "$name" "$SECONDS" >&2
fi
exit "$status"
