#!/usr/bin/env bash
# Builds the operator and the program of this folder, and measures. ENVIRONMENTS, PODS, NODES and STEADY (seconds)
# choose the size; OPERATOR names another program to measure instead of the built one. State and logs go to a directory
# that is removed afterwards, unless a phase fails or a goal is missed.
set -euo pipefail
cd "$(dirname "$0")/../.."
e2e/cluster/build.sh
. e2e/cluster/env.sh
unset KUBECONFIG
profile=${PROFILE:-release}
read -ra flags <<<"${CARGO_FLAGS-}"
operator=${OPERATOR-}
if [ -z "$operator" ]; then
  cargo build "${flags[@]}" --profile "$profile" -p remora-operator --bin remora-operator
  case $profile in
    dev) operator=target/debug/remora-operator ;; # the profile's name is not that of its directory
    *) operator=target/$profile/remora-operator ;;
  esac
fi
state=$(mktemp -d "${TMPDIR:-/tmp}/remora-scale-XXXXXX")
echo "state and logs: $state" >&2
cargo test "${flags[@]}" -p remora-e2e --test scale -- --environments "${ENVIRONMENTS:-200}" --pods "${PODS:-2000}" --nodes "${NODES:-100}" \
  --steady "${STEADY:-60}" --bin "$REMORA_BIN" --operator "$(realpath "$operator")" --directory "$state/run"
rm -rf "$state"
