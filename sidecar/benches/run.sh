#!/usr/bin/env bash
# run.sh [table|population|documents|sizes]
# Builds the programs as for a release, measures them (default: all benchmarks), and prints a table.
set -euo pipefail
case ${1:-table} in table | population | documents | sizes) ;; *) echo "usage: run.sh [table|population|documents|sizes]" >&2; exit 2 ;; esac
cd "$(dirname "$0")/../.."
. e2e/cluster/say.sh
. e2e/cluster/quick.sh

[ "$(nproc)" -ge 2 ] || fail "two cores are needed: one for the server, one for its load"
target=$(rustc -vV | sed -n 's/^host: //p')
built=$(realpath -m "${CARGO_TARGET_DIR:-target}")/$target
# The flags are those of the images: static, and only with --target does cargo not apply these flags to build scripts
# and procedural macros.
shipped=$(sidecar/profile/flags.sh)
export RUSTFLAGS="${RUSTFLAGS-} -C target-feature=+crt-static"
mkdir -p "$built"
log=$built/bench.log
progress() { crates "$1"; }
slowly "remora-sidecar" "$log" env CARGO_ENCODED_RUSTFLAGS="$shipped" \
  cargo build ${CARGO_FLAGS-} --target "$target" --profile ship -p remora-sidecar
sidecar/profile/fits.sh "$log" || say "measured all the same"
slowly "bare hyper" "$log" cargo build ${CARGO_FLAGS-} --target "$target" --profile ship -p remora-bench \
  --no-default-features --bin limit --bin serialize
slowly "flagsmith-flag-engine" "$log" cargo build ${CARGO_FLAGS-} --target "$target" --profile ship -p remora-bench \
  --no-default-features --features peer --bin peer
# Optimization across crates would add minutes to the operator's build and not compile documents faster.
slowly "remora-bench" "$log" cargo build ${CARGO_FLAGS-} --target "$target" "${quick[@]}" -p remora-bench --bin remora-bench

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$built/local/remora-bench" "${1:-table}" "$built/ship" "$place"
