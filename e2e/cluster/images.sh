#!/usr/bin/env bash
# images.sh [SOURCE TAG]
# Builds Remora's programs as programs.sh does, packs them into images and loads them into the local cluster. The images'
# digests decide what to load.
set -euo pipefail
source=${1-} tag=${2:-dev}
cd "$(dirname "$0")"
. ./env.sh
. ./say.sh

[ -S "$CONTAINERD_ADDRESS" ] || fail "the local cluster is not up: make cluster-up"
programs=$(./programs.sh ${source:+"$source" "$tag"})
names=(remora-sidecar remora-operator)
[ -n "$source" ] || names+=(remora-e2e)
for name in "${names[@]}"; do
  ./import.sh "$name:$tag" "/$name" "$programs/$name:/$name"
done
