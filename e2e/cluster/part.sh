#!/usr/bin/env bash
# part.sh NAME COMMAND...: runs the command, and prints a line with the name before it and a line with its duration
# after it.
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
