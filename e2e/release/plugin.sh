#!/usr/bin/env bash
# plugin.sh
# Packs the plugin for kubectl with its licence, one archive for each architecture, and writes its manifest for krew. The
# manifest names the addresses that upload.sh gives the archives: those of a release on GitHub, at SOURCE_URL.
. "$(dirname "$0")/settings.sh"

manifest=$release/remora.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp LICENSE "$work/"
cat >"$manifest" <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: remora
spec:
  version: v$version
  homepage: $source_url
  shortDescription: Ask about feature flags and their pods
  description: |
    Answers questions about Remora's feature environments with the rights of your kubeconfig: which flag changed when, why
    an identity gets a value, which pod serves which revision, and what is wrong with the installation. It can also pin
    and unpin a revision, confirm a document that is held back, and ask for a fetch.
  caveats: |
    The plugin asks about an installation of Remora. Its version should be the version of the installation.
  platforms:
END
for architecture in "${architectures[@]}"; do
  archive=kubectl-remora-linux-$architecture.tar.gz
  install -m 755 "$release/kubectl-remora-linux-$architecture" "$work/kubectl-remora"
  packed "$work" LICENSE kubectl-remora | gzip --no-name -9 >"$release/$archive"
  sum=$(digest "$release/$archive")
  cat >>"$manifest" <<END
    - selector:
        matchLabels:
          os: linux
          arch: $architecture
      uri: $source_url/releases/download/v$version/$archive
      sha256: ${sum#sha256:}
      bin: kubectl-remora
END
done
