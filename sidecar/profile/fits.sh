#!/usr/bin/env bash
# fits.sh LOG [TARGET]
# Says how much of the sidecar's profile is of functions that are others by now, from the log of its build: the compiler
# names those that branch otherwise than recorded, with the counts that are lost. Fails where that is too much.
set -euo pipefail
here=$(dirname "$0")
. "$here/../../e2e/cluster/say.sh"
most=30

target=${2:-$(rustc -vV | sed -n 's/^host: //p')}
[ -e "$here/$target.txt" ] || exit 0
all=$(sed -n 's/^counts //p' "$here/$target.txt")
[ -n "$all" ] || fail "sidecar/profile/$target.txt does not say how many counts there are: make profile"
percent=$(sed -n 's/.*(hash mismatch).* up to \([0-9]*\) count discarded.*/\1/p' "$1" |
  awk -v all="$all" '{ lost += $1 } END { printf "%d", 100 * lost / all }')
[ "$percent" -le "$most" ] ||
  fail "$percent % of the sidecar's profile is of functions that were changed since, and $most % may be: make profile," \
    "and commit sidecar/profile with the change"
[ "$percent" = 0 ] ||
  echo "       $percent % of the sidecar's profile is of functions that were changed since, of $most % that may be"
