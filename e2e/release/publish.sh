#!/usr/bin/env bash
# publish.sh
# Pushes the images and the chart of the release to REGISTRY, and signs them and the checksums with cosign: by the key in
# COSIGN_KEY (its password is COSIGN_PASSWORD), or without a key in a workflow. REGISTRY_USER and REGISTRY_PASSWORD log in.
# PLAIN_HTTP=true is for a registry without TLS. A second run pushes nothing again, and keeps the signatures of the first one. A version
# that the registry has with other content is not replaced.
. "$(dirname "$0")/settings.sh"

[ -n "${REGISTRY-}" ] || fail "REGISTRY is not set: name the registry, such as registry.example.org/remora"
(cd "$release" && sha256sum --quiet --check checksums.txt) ||
  fail "the files in $release are not those of the release: make release"
tar -xzOf "$release/remora-$version.tgz" remora/values.yaml | grep -xF "  registry: $registry" >/dev/null ||
  fail "the packed chart names another registry than $registry: make release REGISTRY=$registry"
bin=$(e2e/release/tools.sh crane helm)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
insecure=() plain=() http=()
if [ "${PLAIN_HTTP-}" = true ]; then
  insecure=(--insecure) plain=(--plain-http) http=(--allow-http-registry)
fi

# The form of cosign 2, which cosign 3 writes and reads, too: the policies of clusters and `cosign copy` do not read the new one.
form=(--new-bundle-format=false --use-signing-config=false)
signed=(--yes)
# A signature by a key needs no server, so it is not in Sigstore's public log.
[ -z "${COSIGN_KEY-}" ] || signed+=(--key "$COSIGN_KEY" --tlog-upload=false)
if command -v cosign >/dev/null; then
  # Before the first push: without the key, or without an identity, nothing is published.
  refused="cosign cannot sign the checksums, so nothing is published: see above"
  if [ -n "${COSIGN_KEY-}" ]; then
    # Only the signature: an older cosign takes a public key in a bundle for the publisher's (GHSA-fx35-mq7g-6g98).
    cosign sign-blob "${signed[@]}" "${form[@]}" --bundle "$work/bundle" "$release/checksums.txt" >/dev/null || fail "$refused"
    jq -r .base64Signature "$work/bundle" | base64 -d >"$release/checksums.txt.sig"
  else
    cosign sign-blob "${signed[@]}" --bundle "$release/checksums.txt.bundle" "$release/checksums.txt" || fail "$refused"
  fi
elif [ -n "${COSIGN_KEY-}" ] || [ "${CI-}" = true ]; then
  fail "cosign is not on PATH: nothing is published without signatures"
fi
if [ -n "${REGISTRY_USER-}" ]; then
  "$bin/crane" auth login "${registry%%/*}" --username "$REGISTRY_USER" --password-stdin <<<"$REGISTRY_PASSWORD"
  "$bin/helm" registry login "${registry%%/*}" --username "$REGISTRY_USER" --password-stdin <<<"$REGISTRY_PASSWORD"
fi

# published NAME: prints the digest that the registry has under the name and this version; nothing if it has none.
published() {
  "$bin/crane" digest "${insecure[@]}" "$registry/$1:$version" 2>"$work/log" && return
  # The last line answers the request by GET; the ones before may be about HEAD.
  tail -n 1 "$work/log" | grep -E 'MANIFEST_UNKNOWN|NAME_UNKNOWN|404 Not Found' >/dev/null ||
    fail "cannot ask the registry if it has $registry/$1:$version: $(<"$work/log")"
}

# same NAME IS WANTED: fails if the registry has other content under the name and this version.
same() {
  [ "$2" = "$3" ] ||
    fail "$registry/$1: version $version is published already with another digest, $2, and the release has $3: choose a new version"
}

# All comparisons come before the first push, so that a version is published as a whole or not at all.
declare -A wanted=() found=()
for program in "${programs[@]}"; do
  mkdir "$work/$program"
  tar -x -f "$release/$program.oci.tar" -C "$work/$program"
  wanted[$program]=$(jq -r '.manifests[0].digest' "$work/$program/index.json")
  found[$program]=$(published "$program")
  [ -z "${found[$program]}" ] || same "$program" "${found[$program]}" "${wanted[$program]}"
done
chart=$(published charts/remora)
if [ -n "$chart" ]; then
  # Helm chooses the digest of the manifest; its layer is the packed chart.
  layer=$("$bin/crane" manifest "${insecure[@]}" "$registry/charts/remora@$chart" | jq -r '.layers[0].digest')
  same charts/remora "$layer" "$(digest "$release/remora-$version.tgz")"
fi

pushed=()
for program in "${programs[@]}"; do
  digest=${wanted[$program]}
  if [ -z "${found[$program]}" ]; then
    reference=$("$bin/crane" push "${insecure[@]}" "$work/$program" "$registry/$program:$version" 2>"$work/log" | tail -n 1) ||
      fail "cannot push $registry/$program:$version: $(<"$work/log")"
    [ "${reference##*@}" = "$digest" ] || fail "the registry has $reference, and the release $digest"
  fi
  pushed+=("$registry/$program@$digest")
done
if [ -z "$chart" ]; then
  touch -d "@$SOURCE_DATE_EPOCH" "$release/remora-$version.tgz"
  "$bin/helm" push "${plain[@]}" "$release/remora-$version.tgz" "oci://$registry/charts" >"$work/log" 2>&1 ||
    fail "cannot push the chart: $(<"$work/log")"
  chart=$(sed -n 's/^Digest: //p' "$work/log")
  [ -n "$chart" ] || fail "helm names no digest of the chart: $(<"$work/log")"
fi
pushed+=("$registry/charts/remora@$chart")
printf '       %s\n' "${pushed[@]}"

if command -v cosign >/dev/null; then
  # Recursively: some clients check the image of their architecture, others the index that the chart names.
  cosign sign "${signed[@]}" "${form[@]}" "${http[@]}" --recursive "${pushed[@]}"
  jq .predicate "$release/provenance.intoto.json" >"$work/predicate.json"
  for reference in "${pushed[@]}"; do
    cosign attest "${signed[@]}" "${form[@]}" "${http[@]}" --type slsaprovenance1 --predicate "$work/predicate.json" \
      "$reference"
  done
else
  say "images and chart are not signed, because cosign is not on PATH"
fi
