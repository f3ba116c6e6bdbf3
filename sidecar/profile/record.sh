#!/usr/bin/env bash
# Records a sidecar run for the compiler's profile-guided optimization, and rewrites the profile of this machine's
# target.
set -euo pipefail
cd "$(dirname "$0")/../.."
. e2e/cluster/say.sh
. e2e/cluster/quick.sh

[ "$(nproc)" -ge 2 ] || fail "two cores are needed: one for the sidecar, one for who asks it"
target=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: //p')
major=${llvm%%.*}
# The tool of rustc's own distribution if it is installed (rustup component add llvm-tools), otherwise Debian's.
merge=$(rustc --print sysroot)/lib/rustlib/$target/bin/llvm-profdata
if [ ! -x "$merge" ]; then
  merge=llvm-profdata-$major
  e2e/cluster/packages.sh "llvm-$major:$merge" ||
    fail "$merge is needed, which has to be of rustc's LLVM ($llvm): install it, or run rustup component add llvm-tools"
fi

build=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mkdir -p "$build/$target"
log=$build/$target/profile.log
progress() { crates "$1"; }
# A separate directory prevents this program from being mistaken for the release build.
slowly "remora-sidecar that records" "$log" env CARGO_TARGET_DIR="$build/profile" \
  RUSTFLAGS="${RUSTFLAGS-} -C target-feature=+crt-static -C profile-generate" \
  cargo build ${CARGO_FLAGS-} --target "$target" --profile ship -p remora-sidecar
slowly "remora-bench" "$log" env RUSTFLAGS="${RUSTFLAGS-} -C target-feature=+crt-static" \
  cargo build ${CARGO_FLAGS-} --target "$target" "${quick[@]}" -p remora-bench --bin remora-bench

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/recorded"
unset progress
slowly "what people ask" "$log" env LLVM_PROFILE_FILE="$place/recorded/%p.profraw" \
  "$build/$target/local/remora-bench" train "$build/profile/$target/ship/remora-sidecar" "$place"
slowly "merge" "$log" "$merge" merge --sparse -o "$place/merged" "$place/recorded"/*.profraw
mv "$place/merged" "sidecar/profile/$target.profdata"
slowly "what it was recorded with" "$log" env REMORA_RECORD=yes \
  cargo test ${CARGO_FLAGS-} -p remora-bench --no-default-features --test profile -- --exact profiles_are_of_what_is_built
"$merge" show "sidecar/profile/$target.profdata" | sed -n 's/^Total count: /counts /p' >>"sidecar/profile/$target.txt"
say "written: sidecar/profile/$target.profdata and .txt"
