#!/usr/bin/env bash
# within.sh ROOT COMMAND...
# Runs the command where /usr is that of the root (root.sh), and where programs for arm64 run by emulation: in namespaces of its own, so
# that nothing of the machine changes. It takes no root, but a kernel with user namespaces that have their own binfmt_misc (6.7 or later).
# PATH is set, since programs elsewhere need the libraries of the machine's own /usr.
set -euo pipefail
# /usr is never mounted twice: a command within may be one of ROOT/bin.
if [ "${REMORA_WITHIN-}" = "$1" ]; then
  shift
  exec "$@"
fi
export REMORA_WITHIN=$1
# ELF of 64 bits, little endian, a program (position-independent or not), of machine 183. F: opened now, before /usr is another.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
# shellcheck disable=SC2016
exec unshare --user --map-root-user --mount bash -euc '
  mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
  printf "%s" "$1" >/proc/sys/fs/binfmt_misc/register
  mount --bind "$2/usr" /usr
  export PATH=/usr/bin:/usr/sbin
  shift 2
  exec "$@"' - ":arm64:M::$magic:$mask:$1/usr/bin/qemu-aarch64:F" "$@"
