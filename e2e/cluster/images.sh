#!/usr/bin/env bash
# images.sh [SOURCE TAG]
# Builds Remora's programs, packs them into images and gives them to the local cluster; with SOURCE, the operator and the
# sidecar of another version, whose source is there. Cargo decides what to build, the images' digests what to load. Whoever
# has a container engine can use operator/Dockerfile and sidecar/Dockerfile.
set -euo pipefail
source=${1-} tag=${2:-dev}
cd "$(dirname "$0")"
. ./env.sh
. ./say.sh
. ./quick.sh

[ -S "$CONTAINERD_ADDRESS" ] || fail "the local cluster is not up: make cluster-up"
target=$(rustc -vV | sed -n 's/^host: //p')
# Static programs need no file of a distribution beside them. Only with --target are these flags kept from the build's
# own helpers, which must be able to load procedural macros.
given=${RUSTFLAGS-}
export RUSTFLAGS="$given -C target-feature=+crt-static"

progress() { crates "$1"; }
cd ../..
# The sidecar is what people run beside each of their pods: built as it is shipped. The others are built to be ready
# soon: optimized, as the operator compiles automata, but without optimization across crates.
shipped=$(RUSTFLAGS=$given sidecar/profile/flags.sh ${source:+"$source"})
build=$(realpath -m "${CARGO_TARGET_DIR:-target}")
built=$build/$target
mkdir -p "$built"
log=$built/images.log
# Libraries that versions share, with the same flags, are built once.
export CARGO_TARGET_DIR=$build
programs=(ship/remora-sidecar local/remora-operator) others=(-p remora-operator)
if [ -z "$source" ]; then
  programs+=(local/remora-e2e) others+=(-p remora-e2e)
fi
cd "${source:-.}"
slowly "remora-sidecar" "$log" env CARGO_ENCODED_RUSTFLAGS="$shipped" \
  cargo build ${CARGO_FLAGS-} --target "$target" --profile ship -p remora-sidecar
[ -n "$source" ] || sidecar/profile/fits.sh "$log"
slowly "remora-operator$([ -n "$source" ] || echo ", remora-e2e")" "$log" cargo build ${CARGO_FLAGS-} --target "$target" "${quick[@]}" "${others[@]}" --bins
cd "$OLDPWD"

for program in "${programs[@]}"; do
  name=${program#*/}
  # As static as we think? A program that asks for a loader would not start in an image without files.
  ! readelf -l "$built/$program" 2>/dev/null | grep -q 'INTERP' || fail "$built/$program is not static"
  e2e/cluster/import.sh "$name:$tag" "/$name" "$built/$program:/$name"
done
