#!/usr/bin/env bash
# programs.sh
# Builds the programs of a release for each architecture: static, optimized across crates (the sidecar also by its recorded profile),
# and without the paths of this machine.
. "$(dirname "$0")/settings.sh"

# Panic messages name files. These paths replace the machine's paths in them.
home=${CARGO_HOME:-$HOME/.cargo}
paths=("--remap-path-prefix=$PWD=/source" "--remap-path-prefix=$build=/source/target" "--remap-path-prefix=$home=/cargo")
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
mkdir -p "$build"
host=$(rustc -vV | sed -n 's/^host: //p')
progress() { crates "$1"; }

for architecture in "${architectures[@]}"; do
  target=$(target_of "$architecture")
  if [ "$target" != "$host" ]; then
    # A compiler without rustup may have the target, too: PATH=$(e2e/release/arm64/root.sh)/bin:$PATH has one that does.
    rustc - --target "$target" --crate-name probe --crate-type lib --emit metadata --out-dir "$build" </dev/null 2>/dev/null ||
      rustup target add "$target"
    [ "$target" != aarch64-unknown-linux-gnu ] || command -v aarch64-linux-gnu-gcc >/dev/null ||
      fail "there is no cross compiler for $architecture: make release-requirements, as root"
  fi
  # The sidecar's recorded profile is of one target; programs for others are built without.
  sidecar=$(TARGET=$target sidecar/profile/flags.sh)
  for program in "${programs[@]}"; do
    flags=$(printf '%s\x1f' -C target-feature=+crt-static)
    [ "$program" != remora-sidecar ] || flags=$sidecar$'\x1f'
    flags+=$(IFS=$'\x1f' && printf '%s' "${paths[*]}")
    log=$build/release-$program-$architecture.log
    slowly "$program for $architecture" "$log" env CARGO_ENCODED_RUSTFLAGS="$flags" \
      cargo build --locked --profile ship --target "$target" -p "$program" --bins
    [ "$program" != remora-sidecar ] || sidecar/profile/fits.sh "$log" "$target"
    # The plugin for kubectl is a program of the operator's crate.
    names=("$program")
    [ "$program" != remora-operator ] || names+=(kubectl-remora)
    for name in "${names[@]}"; do
      built=$build/$target/ship/$name
      headers=$(readelf -l "$built")
      ! grep INTERP <<<"$headers" >/dev/null || fail "$built is not static"
      ! grep -qaF "$PWD/" "$built" || fail "$built contains the path of this checkout"
      install -m 755 "$built" "$release/$name-linux-$architecture"
    done
  done
done
