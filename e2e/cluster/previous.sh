#!/usr/bin/env bash
# previous.sh COMMAND...
# Runs a command with REMORA_PREVIOUS_CHART and REMORA_PREVIOUS_TAG set: the chart and the images of the previous
# version, from which tests upgrade to this one. Both come from the repository's history and are stored in the build
# directory.
set -euo pipefail
cd "$(dirname "$0")"
given=${KUBECONFIG-}
. ./env.sh
. ./say.sh
[ $# -gt 0 ] || fail "usage: previous.sh COMMAND..."

# Commit of the chart's previous version that users may have installed. After a release: the release.
commit=679630019f13bcf23538ad776c15b845a61c993e
export REMORA_PREVIOUS_TAG=previous

cd ../..
build=$(realpath -m "${CARGO_TARGET_DIR:-target}")
source=$build/previous/$commit
export REMORA_PREVIOUS_CHART=$source/charts/remora
if [ ! -e "$source" ]; then
  # Works even if the checkout belongs to another user than the one who runs the tests.
  history() { git -c safe.directory='*' "$@"; }
  is_there() { history rev-parse --quiet --verify "$commit^{commit}" >/dev/null; }
  if ! is_there && [ "$(history rev-parse --is-shallow-repository)" = true ]; then
    history fetch --quiet --unshallow || true
  fi
  is_there || fail "the previous version, commit $commit, is not in this checkout's history, and tests upgrade from it:" \
    "fetch the whole history (git fetch --unshallow), or clone without --depth"
  mkdir -p "$build/previous"
  unpacked=$(mktemp -d "$build/previous/XXXXXX")
  history archive "$commit" | tar -x -C "$unpacked"
  mv "$unpacked" "$source"
fi

# On an external cluster, these images come from the registry, like all others.
if [ -n "$given" ] && [ "$given" != "$KUBECONFIG" ]; then
  export KUBECONFIG=$given
else
  e2e/cluster/part.sh "images of the previous version" e2e/cluster/images.sh "$source" "$REMORA_PREVIOUS_TAG"
fi
exec "$@"
