#!/usr/bin/env bash
# cert-manager.sh
# Builds cert-manager's controllers (cert-manager/) into the user's cache directory, unless they are there, and prints the
# directory: it has the program `cert-manager`, and in `crds/` the definitions of its types.
set -euo pipefail
cd "$(dirname "$0")"
. ./say.sh

cache=${XDG_CACHE_HOME:-$HOME/.cache}/remora/cert-manager
build=$cache/$(find cert-manager.sh cert-manager -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c 1-16)
make_it() {
  command -v go >/dev/null || fail "cert-manager is built with Go, and there is no 'go' on PATH"
  mkdir -p "$build/crds"
  exec {lock}>"$build/lock"
  flock "$lock" # another build of the same: wait for it, then there is nothing left to do
  [ ! -e "$build/complete" ] || return 0

  # cert-manager needs Go 1.25, the cluster 1.24: an older Go takes a newer one from the module proxy.
  export GOTOOLCHAIN=auto CGO_ENABLED=0 GOWORK=off GOFLAGS="-trimpath -buildvcs=false"
  local log=$build/build.log total source name
  say "building cert-manager (once; some minutes) into $build"
  cd cert-manager
  slowly "Go modules" "$log" go mod download
  total=$(go list -deps . | wc -l)
  progress() { printf ', %d of %d packages' "$(wc -l <"$1")" "$total"; }
  slowly "Go build" "$log" go build -v -ldflags "-s -w" -o "$build/" .
  source=$(go list -m -f '{{.Dir}}' github.com/cert-manager/cert-manager)/deploy/crds
  for name in certificates certificaterequests issuers clusterissuers; do
    install -m 644 "$source/cert-manager.io_$name.yaml" "$build/crds/$name.yaml"
  done
  touch "$build/complete"
}
[ -e "$build/complete" ] || make_it >&2
printf '%s\n' "$build"
