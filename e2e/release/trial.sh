#!/usr/bin/env bash
# trial.sh DIRECTORY
# Makes a small release in the directory from the programs of the local cluster's images (e2e/cluster/images.sh), and
# publishes it in REGISTRY: images, chart and checksums, for this machine's architecture. It is for tests.
ARCHITECTURES=$(case $(uname -m) in x86_64) echo amd64 ;; aarch64) echo arm64 ;; esac)
RELEASE_DIRECTORY=${1:?usage: trial.sh DIRECTORY}
export ARCHITECTURES RELEASE_DIRECTORY
. "$(dirname "$0")/settings.sh"

tools=$release.tools
export RELEASE_TOOLS=$tools
mkdir -p "$release" "$tools"
programs=$build/$(target_of "$ARCHITECTURES")/images/dev
for program in remora-operator remora-sidecar; do
  [ -x "$programs/$program" ] || fail "$programs/$program does not exist: make images"
  trial=$release/$program-linux-$ARCHITECTURES
  install -m 755 "$programs/$program" "$trial"
  # The node has layers with these programs already, and pulls only what it does not have. Bytes behind the end of a program make
  # another layer, and have no effect.
  printf 'trial %s\n' "$(date +%s%N)" >>"$trial"
done
if command -v cosign >/dev/null && [ -z "${COSIGN_KEY-}" ]; then
  # Without a key, cosign would ask for somebody's identity.
  rm -f "$tools"/cosign.*
  export COSIGN_KEY=$tools/cosign.key COSIGN_PASSWORD=""
  (cd "$tools" && cosign generate-key-pair)
fi
for part in images chart; do "e2e/release/$part.sh"; done
e2e/release/provenance.sh >"$release/provenance.intoto.json"
for part in checksums publish; do "e2e/release/$part.sh"; done
