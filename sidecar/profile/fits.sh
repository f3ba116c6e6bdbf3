#!/usr/bin/env bash
# fits.sh LOG [TARGET]
# Computes, from the log of the sidecar's build, the share of its profile whose functions have changed: the compiler
# names functions with other branches than recorded, with the lost counts. Fails if the share is too large.
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
