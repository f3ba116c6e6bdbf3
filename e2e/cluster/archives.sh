#!/usr/bin/env bash
# archives.sh
# Builds Remora's programs as programs.sh does, and packs each into an image in an archive in the format of `docker save`, which
# containerd and Docker read. Needs Rust and a C compiler, and neither Go nor a
# container engine. REMORA_IMAGE_PREFIX and REMORA_IMAGE_TAG (default: dev) name the images.
set -euo pipefail
cd "$(dirname "$0")"
. ./say.sh
prefix=${REMORA_IMAGE_PREFIX-} tag=${REMORA_IMAGE_TAG:-dev}
[ -n "$prefix" ] || fail "set REMORA_IMAGE_PREFIX to the prefix of the images' names, such as registry.example.org/remora," \
  "or kind.local/remora for images that are only loaded"

programs=$(./programs.sh)
case $(uname -m) in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; *) fail "no images for $(uname -m)" ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
digest() { sha256sum "$1" | cut -d ' ' -f 1; }
# pack ARCHIVE DIRECTORY FILE...: equal files have equal archives.
pack() { tar --create --file "$1" --directory "$2" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner "${@:3}"; }
for name in remora-operator remora-sidecar remora-e2e; do
  image=$work/$name
  mkdir "$image"
  pack "$image/layer.tar" "$programs" "$name"
  printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["/%s"],"User":"65532"},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$architecture" "$name" "$(digest "$image/layer.tar")" >"$image/config.json"
  printf '[{"Config":"config.json","RepoTags":["%s/%s:%s"],"Layers":["layer.tar"]}]' "$prefix" "$name" "$tag" >"$image/manifest.json"
  pack "$programs/$name.tar" "$image" manifest.json config.json layer.tar
  say "$prefix/$name:$tag: $programs/$name.tar"
done
