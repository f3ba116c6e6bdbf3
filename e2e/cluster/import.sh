#!/usr/bin/env bash
# import.sh NAME:TAG ENTRYPOINT SOURCE:/destination...
# Packs files into the image remora.local/NAME:TAG and loads it into the local cluster's containerd, unless it exists
# there.
set -euo pipefail
cd "$(dirname "$0")"
. ./env.sh
. ./say.sh

name=remora.local/$1
entrypoint=$2
shift 2
archive=$(mktemp -d)
trap 'rm -rf "$archive"' EXIT
digest=$("$REMORA_TOOLS/image" --name "$name" --output "$archive/image.tar" --entrypoint "$entrypoint" --user 65532 "$@")
if [ -z "$(ctr images list -q "name==$name,target.digest==$digest")" ]; then
  ctr images import "$archive/image.tar" >/dev/null
  say "image $name: $(($(stat -c %s "$archive/image.tar") / 1024)) KiB, $digest"
fi
