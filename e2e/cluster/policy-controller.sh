#!/usr/bin/env bash
# policy-controller.sh
# Builds Sigstore's policy-controller (policy-controller/) into the user's cache directory, unless it is there, and prints the
# directory: it has the program `webhook`, and in `config/` the manifests of its release.
set -euo pipefail
cd "$(dirname "$0")"
. ./say.sh

cache=${XDG_CACHE_HOME:-$HOME/.cache}/remora/policy-controller
build=$cache/$(find policy-controller.sh policy-controller -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c 1-16)
module=github.com/sigstore/policy-controller
make_it() {
  command -v go >/dev/null || fail "policy-controller is built with Go, and there is no 'go' on PATH"
  mkdir -p "$build/config"
  exec {lock}>"$build/lock"
  flock "$lock" # another build of the same: wait for it, then there is nothing left to do
  [ ! -e "$build/complete" ] || return 0

  # policy-controller needs Go 1.25, the cluster 1.24: an older Go takes a newer one from the module proxy.
  export GOTOOLCHAIN=auto CGO_ENABLED=0 GOWORK=off GOFLAGS="-trimpath -buildvcs=false -gcflags=all=-dwarf=false"
  # As for the cluster: a compiler that does not collect garbage below this size takes less processor time.
  export GOGC=off GOMEMLIMIT=1GiB
  local log=$build/build.log total name
  say "building policy-controller (once; some minutes) into $build"
  cd policy-controller
  slowly "Go modules" "$log" go mod download
  total=$(go list -deps "$module/cmd/webhook" | wc -l)
  progress() { printf ', %d of %d packages' "$(wc -l <"$1")" "$total"; }
  slowly "Go build" "$log" go build -v -ldflags "-s -w" -o "$build/" "$module/cmd/webhook"
  for name in "$(go list -m -f '{{.Dir}}' "$module")"/config/*.yaml; do
    install -m 644 "$name" "$build/config/${name##*/}"
  done
  touch "$build/complete"
}
[ -e "$build/complete" ] || make_it >&2
printf '%s\n' "$build"
