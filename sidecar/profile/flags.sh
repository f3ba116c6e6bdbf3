#!/usr/bin/env bash
# flags.sh [SOURCE]
# Prints with which flags the sidecar whose source is there is built for shipping, as CARGO_ENCODED_RUSTFLAGS has them:
# those of RUSTFLAGS, a static program, and the source's profile of how the sidecar runs, where there is one for this
# machine's target and this compiler. Where there is none it says so, and the sidecar is built without.
set -euo pipefail
source=$(cd "${1:-$(dirname "$0")/../..}" && pwd)
target=$(rustc -vV | sed -n 's/^host: //p')
compiler=$(rustc -V)
profile=$source/sidecar/profile/$target
read -ra flags <<<"${RUSTFLAGS-}"
flags+=(-C target-feature=+crt-static)
if [ ! -e "$profile.profdata" ] || [ ! -e "$profile.txt" ]; then
  echo "remora-sidecar: there is no profile for $target, so it is built without" >&2
elif ! grep -qxF "$compiler" "$profile.txt"; then
  # Symbols have other names with another compiler, and an older one may not even read the file.
  echo "remora-sidecar: its profile was recorded with $(grep -m 1 '^rustc ' "$profile.txt"), and this is $compiler:" \
    "it is built without" >&2
else
  # Cargo does not look into the file; the condition, which nobody asks for, makes it build anew when the file is another.
  flags+=("-Cprofile-use=$profile.profdata" "--cfg=remora_profile=\"$(cksum <"$profile.profdata" | cut -d ' ' -f 1)\"")
fi
(IFS=$'\x1f' && printf '%s\n' "${flags[*]}")
