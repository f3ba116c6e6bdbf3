#!/usr/bin/env bash
# Cuts each write before a real API server with every fate. Builds the programs of the control plane if they are missing.
set -euo pipefail
cd "$(dirname "$0")/../../.."
e2e/cluster/build.sh
. e2e/cluster/env.sh
unset KUBECONFIG
export PATH=$REMORA_BIN:$PATH REMORA_CUTS_PLANS=all
read -ra flags <<<"${CARGO_FLAGS-}"
cargo test "${flags[@]}" -p remora-e2e --test cuts -- --nocapture
