#!/usr/bin/env bash
# tools.sh NAME...
# Builds these programs from Go modules, unless they are built already, and prints the directory that has them.
. "$(dirname "$0")/settings.sh"

sources=$(sha256sum e2e/release/go/go.sum e2e/cluster/go/kube/go.sum | sha256sum | cut -c 1-16)
bin=${XDG_CACHE_HOME:-$HOME/.cache}/remora/release/$sources
mkdir -p "$bin"
export CGO_ENABLED=0 GOWORK=off GOFLAGS="-trimpath -buildvcs=false"
exec {lock}>"$bin/lock"
flock "$lock" # several tests ask for the same program at once
for name in "$@"; do
  [ ! -x "$bin/$name" ] || continue
  command -v go >/dev/null || fail "$name is built with Go 1.24 or later, and there is no 'go' on PATH"
  case $name in
    actionlint) module=e2e/release/go package=github.com/rhysd/actionlint/cmd/actionlint ;;
    crane) module=e2e/release/go package=github.com/google/go-containerregistry/cmd/crane ;;
    helm) module=e2e/cluster/go/kube package=helm.sh/helm/v3/cmd/helm ;;
    *) fail "no module has the program $name" ;;
  esac
  # Renamed when complete, so that an interrupted build leaves no half program.
  (cd "$module" && go build -ldflags "-s -w" -o "$bin/$name.new" "$package") >&2
  mv "$bin/$name.new" "$bin/$name"
done
echo "$bin"
