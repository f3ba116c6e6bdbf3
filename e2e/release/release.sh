#!/usr/bin/env bash
# release.sh
# Makes everything of a release in target/release/remora-VERSION: programs, the plugin for krew, images, chart,
# CustomResourceDefinitions, software bills of materials, provenance, checksums and, with SIGNING_KEY, a signature. It needs no container engine.
# The same commit gives the same bytes.
. "$(dirname "$0")/settings.sh"

if [ -n "$(git -c safe.directory='*' status --porcelain --untracked-files=no)" ]; then
  [ "${CI-}" != true ] || fail "the checkout has changes that are not committed, so the provenance would name the wrong commit"
  say "the checkout has changes that are not committed: this is a trial, not a release"
fi
rm -rf "$release"
mkdir -p "$release" "$tools"
for part in programs plugin images chart sbom; do
  e2e/cluster/part.sh "release: $part" "e2e/release/$part.sh"
done
cp crds/featureenvironments.yaml "$release/"
e2e/release/provenance.sh >"$release/provenance.intoto.json"
e2e/release/checksums.sh
say "release $version is in $release:"
(cd "$release" && ls -l --time-style=+ | awk 'NR > 1 { printf "       %10d  %s\n", $5, $NF }')
