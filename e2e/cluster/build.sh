#!/usr/bin/env bash
# Builds the programs of the local cluster, which no Debian package has, into the user's cache directory.
# Minutes at first; afterwards there is nothing to do until something in go/ changes.
set -euo pipefail
cd "$(dirname "$0")"
. ./env.sh
. ./say.sh
[ "$PWD" = "$REMORA_BUILD_SOURCE" ] || exec "$REMORA_BUILD_SOURCE/build.sh" # KUBERNETES names another version

[ ! -e "$REMORA_BUILD/complete" ] || exit 0
command -v go >/dev/null || fail "the local cluster is built with Go 1.24 or later, and there is no 'go' on PATH"
mkdir -p "$REMORA_BIN" "$REMORA_TOOLS"
exec {lock}>"$REMORA_BUILD/lock"
flock "$lock" # another build of the same: wait for it, then there is nothing left to do
[ ! -e "$REMORA_BUILD/complete" ] || exit 0

# Debug information is left out of the programs in any case, and takes a fifth of the time to write.
export CGO_ENABLED=0 GOWORK=off GOFLAGS="-trimpath -buildvcs=false -gcflags=all=-dwarf=false"
# A compiler that does not collect garbage below this size takes an eighth less processor time.
export GOGC=off GOMEMLIMIT=1GiB
log=$REMORA_BUILD/build.log
say "building Kubernetes and Helm (once; about 6 minutes on 2 cores) into $REMORA_BUILD"

cd go/kube
slowly "Go modules" "$log" go mod download
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
IFS=. read -r major minor _ <<<"${version#v}"
link="-s -w -X helm.sh/helm/v3/internal/version.version=$(go list -m -f '{{.Version}}' helm.sh/helm/v3)"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  link+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
done
packages=(. helm.sh/helm/v3/cmd/helm)
total=$(go list -deps "${packages[@]}" | wc -l)
progress() { printf ', %d of %d packages' "$(wc -l <"$1")" "$total"; }
slowly "Go build" "$log" go build -v -ldflags "$link" -o "$REMORA_BIN/" "${packages[@]}"
unset -f progress
for program in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl coredns; do
  ln -sf kube "$REMORA_BIN/$program"
done

cd ../tools
slowly "tests of the image tool" "$log" go test ./...
slowly "image tool" "$log" go build -ldflags "-s -w" -o "$REMORA_TOOLS/" ./image ./pause
touch "$REMORA_BUILD/complete"
