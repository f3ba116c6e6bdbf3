#!/usr/bin/env bash
# summary.sh COMMAND...
# Runs a command, and then prints the tests that did not run because the machine lacks what they need. Within another
# summary.sh, only runs the command: the outer one prints.
set -u
[ -z "${REMORA_NOT_RUN-}" ] || exec "$@"
REMORA_NOT_RUN=$(mktemp)
export REMORA_NOT_RUN
trap 'rm -f "$REMORA_NOT_RUN"' EXIT
"$@"
status=$?
if [ -s "$REMORA_NOT_RUN" ]; then
  {
    printf '\n== THESE TESTS DID NOT RUN (cargo counts them as passed):\n'
    sort -u "$REMORA_NOT_RUN"
  } >&2
fi
exit "$status"
