#!/usr/bin/env bash
# Kills the processes of all pods, and the shims that would notice their end. If the cluster's own processes have been
# killed before, the node is then as after a loss of power.
set -euo pipefail
cd "$(dirname "$0")"
. ./env.sh
. ./say.sh
. ./processes.sh
. ./host.sh

[ -e "$REMORA_RUN/host" ] || fail "the local cluster is not up: make cluster-up"
for pid in $(shims) $(pod_processes); do kill -s KILL "$pid" 2>/dev/null || true; done
for _ in {1..100}; do
  left=$(pod_processes)
  [ -n "$left" ] || exit 0
  sleep 0.05
done
fail "processes of pods survive SIGKILL: $left"
