#!/usr/bin/env bash
# kernel.sh PROGRAM ARGUMENT...
# Runs a static test program for arm64 on an emulated machine with a kernel of its own, and exits with its status. It is a runner of cargo's,
# within a root (within.sh). The machine has the programs of the same build, the recorded answers, and this directory, all at the same paths.
set -euo pipefail
root=$REMORA_WITHIN
checkout=$(cd "$(dirname "$0")/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
machine=$work/machine
mkdir -p "$machine"/{bin,usr,dev,proc,sys,tmp}
cp "$root/usr/bin/busybox" "$machine/bin/"
ln -s ../bin "$machine/usr/bin"
cp --parents "$1" "$machine"
built=$(dirname "$(dirname "$1")")
for program in remora-operator remora-sidecar; do
  [ ! -e "$built/$program" ] || cp --parents "$built/$program" "$machine"
done
cp -r --parents "$checkout/e2e/recorded" "$machine"
mkdir -p "$machine$PWD" "$machine$(dirname "$built")/tmp" "$machine$(dirname "$(dirname "$built")")/tmp"
{
  echo '#!/bin/busybox sh'
  echo '/bin/busybox --install -s /bin'
  echo 'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t cgroup2 cgroup /sys/fs/cgroup'
  echo 'ip link set lo up'
  printf 'export PATH=/bin RUST_BACKTRACE=1 REMORA_CONFORMANCE_DIR=none\ncd %q\n' "$PWD"
  printf '%q ' "$@"
  echo '</dev/null; echo "status $?"; poweroff -f'
} >"$machine/init"
chmod +x "$machine/init"
(cd "$machine" && busybox find . | busybox cpio -o -H newc 2>/dev/null) >"$work/machine.cpio"
qemu-system-aarch64 -machine virt -cpu max,pauth-impdef=on -smp 2 -m 3072 -nographic -no-reboot -nic none -kernel "$root/kernel" \
  -initrd "$work/machine.cpio" -append "console=ttyAMA0 quiet panic=-1 rdinit=/init" </dev/null | tr -d '\r' | tee "$work/said"
status=$(busybox sed -n 's/^status \([0-9]*\)$/\1/p' "$work/said")
exit "${status:-1}"
