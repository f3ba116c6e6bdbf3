#!/usr/bin/env bash
# Builds what is measured as it is shipped, and prints what it costs.
set -euo pipefail
cd "$(dirname "$0")/../.."
. e2e/cluster/say.sh
. e2e/cluster/quick.sh

[ "$(nproc)" -ge 2 ] || fail "two cores are needed: one for the server, one for its load"
target=$(rustc -vV | sed -n 's/^host: //p')
built=$(realpath -m "${CARGO_TARGET_DIR:-target}")/$target
# The same as in images: static, and only with --target are these flags kept from the build's own helpers.
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
# Optimized across crates the operator would take minutes longer, and not compile documents faster.
slowly "remora-bench" "$log" cargo build ${CARGO_FLAGS-} --target "$target" "${quick[@]}" -p remora-bench --bin remora-bench

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$built/local/remora-bench" table "$built/ship" "$place"
