#!/usr/bin/env bash
# root.sh
# Unpacks Debian's compiler for arm64 and its emulators into the user's cache, unless they are there, and prints that directory. Nothing is
# installed: packages come from this machine's own Debian mirror, and SUITE (default: forky) is a suite there that has a compiler of at
# least Cargo.toml's rust-version. PATH=$(e2e/release/arm64/root.sh)/bin:$PATH builds by that compiler, for amd64 and arm64.
set -euo pipefail
cd "$(dirname "$0")"
. ../../cluster/say.sh

suite=${SUITE:-forky}
root=${XDG_CACHE_HOME:-$HOME/.cache}/remora/arm64-$suite-$(cat root.sh within.sh | sha256sum | cut -c 1-8)
packages=(rustc cargo gcc libc6-dev bash dash coreutils gcc-aarch64-linux-gnu libc6-dev-arm64-cross libstd-rust-dev:arm64
  qemu-user qemu-system-arm busybox-static:arm64)

unpack() {
  command -v apt-get >/dev/null && [ "$(dpkg --print-architecture)" = amd64 ] ||
    fail "tests of arm64 take Debian's packages for amd64, and this is another system"
  local mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg log=$root.log apt=$root.new/apt kernel
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sort -u | head -n 1)
  [ -n "$mirror" ] || fail "apt knows no mirror of Debian: apt-get update, as root"
  rm -rf "$root.new"
  mkdir -p "$apt"/{lists/partial,archives/partial}
  touch "$apt/status"
  echo "deb [arch=amd64,arm64 signed-by=$keys] $mirror $suite main" >"$apt/sources.list"
  cat >"$apt/apt.conf" <<END
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Architectures "amd64,arm64";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
END
  export APT_CONFIG=$apt/apt.conf
  slowly "package lists of Debian $suite" "$log" apt-get update
  # Pages of 16 KiB instead of amd64's 4: what maps files has to fit both.
  kernel=$(apt-cache search --names-only '^linux-binary-unsigned-[0-9].*-arm64-16k$' | cut -d ' ' -f 1 | sort -V | tail -n 1)
  [ -n "$kernel" ] || fail "Debian $suite has no kernel for arm64 with pages of 16 KiB"
  slowly "packages of Debian $suite" "$log" apt-get install -y --download-only "${packages[@]}" "$kernel:arm64"
  mkdir -p "$root.new/unpacked"
  slowly "unpack" "$log" bash -euc 'for package in "$1"/archives/*.deb; do dpkg-deb -x "$package" "$2"; done' - "$apt" "$root.new/unpacked"
  mv "$root.new/unpacked/usr" "$root.new/"
  mv "$root.new/usr/lib/modules"/*/vmlinuz.unsigned "$root.new/kernel"
  # The links of Debian's alternatives are made by scripts of packages, and none runs.
  ln -s gcc "$root.new/usr/bin/cc"
  mkdir "$root.new/bin"
  cp within.sh "$root.new/within"
  for program in cargo rustc aarch64-linux-gnu-gcc; do
    printf '#!/bin/sh\nexec "%s/within" "%s" %s "$@"\n' "$root" "$root" "$program" >"$root.new/bin/$program"
    chmod +x "$root.new/bin/$program"
  done
  rm -rf "$apt" "$root.new/unpacked" "$root.new/usr/share"/{doc,man,locale}
  mv "$root.new" "$root"
}

[ -d "$root" ] || unpack >&2
echo "$root"
