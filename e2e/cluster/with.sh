#!/usr/bin/env bash
# with.sh [--restore] COMMAND...
# Runs a command with KUBECONFIG, REMORA_IMAGE_PREFIX and REMORA_IMAGE_TAG set, and helm and kubectl on PATH.
#
# Without KUBECONFIG, the script starts the local cluster and builds images of the current programs; --restore removes
# the cluster afterwards if it did not run before. With KUBECONFIG set to an external cluster, the script starts nothing
# and uses that cluster; its images come from the registry that REMORA_IMAGE_PREFIX names.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/say.sh"
restore=
if [ "${1-}" = --restore ]; then
  restore=1
  shift
fi
[ $# -gt 0 ] || fail "usage: with.sh [--restore] COMMAND..."

given=${KUBECONFIG-} prefix=${REMORA_IMAGE_PREFIX-}
. "$here/env.sh"
if [ -n "$given" ] && [ "$given" != "$KUBECONFIG" ]; then
  export KUBECONFIG=$given
  # remora.local is the default of env.sh; no registry has that name.
  { [ -n "$prefix" ] && [ "$prefix" != remora.local ]; } || fail "KUBECONFIG names a cluster ($given): set REMORA_IMAGE_PREFIX (and REMORA_IMAGE_TAG) to where it can" \
    "pull remora-operator, remora-sidecar and remora-e2e from, or unset KUBECONFIG to use a local cluster"
  for program in helm kubectl; do
    command -v "$program" >/dev/null || fail "$program is not on PATH; $here/build.sh builds one into $REMORA_BIN"
  done
  exec "$@"
fi
[ "$REMORA_IMAGE_PREFIX:$REMORA_IMAGE_TAG" = remora.local:dev ] ||
  fail "the local cluster has images remora.local/...:dev only: unset REMORA_IMAGE_PREFIX and REMORA_IMAGE_TAG, or set KUBECONFIG"

if [ -n "$restore" ]; then
  if [ ! -e "$REMORA_RUN" ]; then
    trap '"$here/down.sh" --purge' EXIT
  elif [ ! -e "$REMORA_RUN/host" ]; then
    trap '"$here/down.sh"' EXIT
  fi
  trap 'exit 130' INT
  trap 'exit 143' TERM
fi
"$here/part.sh" "local cluster" "$here/up.sh"
"$here/part.sh" "images" "$here/images.sh"
"$@"
