#!/usr/bin/env bash
# programs.sh [SOURCE TAG]
# Builds Remora's programs for images, static, and stores them in the build directory: it prints where. With SOURCE, the
# operator and the sidecar come from that directory with another version's source. Cargo decides what to build. The progress
# is on standard error.
set -euo pipefail
source=${1-} tag=${2:-dev}
cd "$(dirname "$0")"
. ./say.sh
. ./quick.sh
exec 3>&1 >&2

target=$(rustc -vV | sed -n 's/^host: //p')
# Static programs need no files of a distribution. Only with --target does cargo not apply these flags to build scripts
# and procedural macros, which must be dynamically loadable.
given=${RUSTFLAGS-}
export RUSTFLAGS="$given -C target-feature=+crt-static"

progress() { crates "$1"; }
cd ../..
# Users run the sidecar beside each of their pods, so it is built as for a release. The others are built for a short
# build time: optimized, because the operator compiles automata, but without optimization across crates.
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
  # A program that needs a dynamic loader would not start in an image without files, so this checks that the program is
  # static.
  ! readelf -l "$built/$program" 2>/dev/null | grep -q 'INTERP' || fail "$built/$program is not static"
  # Versions share the build directory, so the next build of another version replaces the program there.
  install -D -m 755 "$built/$program" "$built/images/$tag/${program#*/}"
done
printf '%s\n' "$built/images/$tag" >&3
