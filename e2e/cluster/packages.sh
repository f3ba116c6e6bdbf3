#!/usr/bin/env bash
# packages.sh [--tests] [PACKAGE:SIGN...]
# Installs the Debian packages that building, testing and the local cluster need, and the given ones, if they are
# missing. With --tests, only those that building and the tests without a cluster need.
set -euo pipefail
cd "$(dirname "$0")"
. ./say.sh
PATH=$PATH:/usr/sbin:/sbin

# Format: package:FILE, where FILE is a file of the package, or a program that may also come from another source.
wanted=(
  ca-certificates:/etc/ssl/certs/ca-certificates.crt
  gcc:cc
  git:git
  jq:jq
  make:make
  python3:python3
  valgrind:valgrind
)
cluster=(
  containerd:containerd
  containernetworking-plugins:/usr/lib/cni/bridge
  curl:curl
  iproute2:ip
  mount:umount
  nftables:nft
  openssl:openssl
  procps:sysctl
  runc:runc
  util-linux:flock
)
if [ "${1-}" = --tests ]; then
  shift
else
  wanted+=("${cluster[@]}")
fi
wanted+=("$@")

missing=()
for entry in "${wanted[@]}"; do
  sign=${entry#*:}
  case $sign in
    /*) [ -e "$sign" ] || missing+=("${entry%%:*}") ;;
    *) command -v "$sign" >/dev/null || missing+=("${entry%%:*}") ;;
  esac
done
# Static programs link libc.a; no program on PATH shows that it exists.
[ -n "$(find /usr/lib -maxdepth 2 -name libc.a -print -quit)" ] || missing+=(libc6-dev)
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null || fail "please install: ${missing[*]} (this is not Debian, so it is not done for you)"
[ "$(id -u)" = 0 ] || fail "please install: ${missing[*]} (or run this as root)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
slowly "package lists" "$log" apt-get update
slowly "packages ${missing[*]}" "$log" apt-get install -y --no-install-recommends "${missing[@]}"
