#!/usr/bin/env bash
# arm64.sh
# Builds the programs of a release for arm64 by a cross compiler, and tests them on this machine, whose processor is another: by emulation of
# the processor (qemu), and what depends on the kernel on an emulated machine with a kernel for arm64 with pages of 16 KiB. It installs
# nothing; compiler and emulators are in the user's cache (arm64/root.sh).
. "$(dirname "$0")/settings.sh"

root=$(e2e/release/arm64/root.sh)
target=$(target_of arm64)
programs=$build/arm64/programs
mkdir -p "$programs"
progress() { crates "$1"; }
# The root has no certificates: its compiler takes the crates that cargo has fetched.
slowly "crates" "$build/arm64/fetch.log" cargo fetch --locked
slowly "remora-tools and remora-sidecar for amd64" "$build/arm64/amd64.log" \
  cargo build --locked -p remora-tools -p remora-sidecar --bin remora-tools --bin remora-sidecar
export CARGO_NET_OFFLINE=true
PATH=$root/bin:$PATH CARGO_TARGET_DIR=$build/arm64 ARCHITECTURES=arm64 RELEASE_DIRECTORY=$programs e2e/release/programs.sh
emulator=$root/usr/bin/qemu-aarch64
# The programs of this compiler, and those of a release that is here already, which another compiler has built.
for directory in "$programs" target/release/remora-*/; do
  [ -e "$directory/remora-operator-linux-arm64" ] || continue
  tried=$(mktemp -d "$build/arm64/XXXXXX")
  for program in remora-operator remora-sidecar; do
    install -m 755 "$directory/$program-linux-arm64" "$tried/$program" # an artifact of a workflow has lost its permissions
  done
  say "programs for arm64 of $directory: $("$emulator" "$tried/remora-operator" --version)"
  e2e/release/arm64/same.sh "$emulator" "$build/debug" "$tried"
  rm -r "$tried"
done

export CARGO_TARGET_DIR=$build/arm64 CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export RUSTFLAGS="-C target-feature=+crt-static -A linker-messages"
log=$build/arm64/tests.log
tested=()
# tested WHAT ARGUMENT...: runs these tests for arm64, and prints their number.
tested() {
  progress() { printf ', %s tests' "$(grep -c ' \.\.\. ok' "$1")"; }
  slowly "$1" "$log" "$root/bin/cargo" test --locked --no-fail-fast --profile fuzz --target "$target" "${@:2}"
  grep '^NOT RUN' "$log" || true
  say "$1: $(awk '/^test result: ok/ { passed += $4 } END { print passed }' "$log") passed"
}
tested "snapshots and their compiler" -p remora-snapshot -p remora-compile
tested "the sidecar" -p remora-sidecar
# Filters of system calls, limits of processes and control groups are the kernel's.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$PWD/e2e/release/arm64/kernel.sh
tested "the sidecar on a kernel" -p remora-sidecar --lib --test memory --test conformance --test kubelet
tested "filters of system calls on a kernel" -p remora-operator --lib -- compiler::
tested "the process that compiles on a kernel" -p remora-operator --test compiler
