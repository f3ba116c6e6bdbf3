#!/usr/bin/env bash
# flags.sh [SOURCE]
# Prints the flags of the sidecar's release build for the given source, in the form of CARGO_ENCODED_RUSTFLAGS: those of
# RUSTFLAGS, a static program, and the source's profile of a sidecar run, if one exists for this machine's target and
# this compiler. Otherwise prints a notice, and the sidecar is built without a profile. TARGET names another target.
set -euo pipefail
source=$(cd "${1:-$(dirname "$0")/../..}" && pwd)
target=${TARGET:-$(rustc -vV | sed -n 's/^host: //p')}
compiler=$(rustc -V)
profile=$source/sidecar/profile/$target
read -ra flags <<<"${RUSTFLAGS-}"
flags+=(-C target-feature=+crt-static)
if [ ! -e "$profile.profdata" ] || [ ! -e "$profile.txt" ]; then
  echo "remora-sidecar: there is no profile for $target, so it is built without" >&2
elif ! grep -qxF "$compiler" "$profile.txt"; then
  # Symbols have other names with another compiler, and an older compiler may not even read the file.
  echo "remora-sidecar: its profile was recorded with $(grep -m 1 '^rustc ' "$profile.txt"), and this is $compiler:" \
    "it is built without" >&2
else
  # Cargo does not track the file's content. The cfg, which no code uses, triggers a rebuild when the file changes.
  flags+=("-Cprofile-use=$profile.profdata" "--cfg=remora_profile=\"$(cksum <"$profile.profdata" | cut -d ' ' -f 1)\"")
fi
(IFS=$'\x1f' && printf '%s\n' "${flags[*]}")
