#!/usr/bin/env bash
# images.sh
# Packs the programs of a release into images for all architectures: NAME.oci.tar is an OCI image layout with one index. Each image has
# a label with the address of the repository, by which registries lead to it.
. "$(dirname "$0")/settings.sh"

command -v jq >/dev/null || fail "jq is not on PATH: apt-get install jq"
(cd e2e/cluster/go/tools && CGO_ENABLED=0 GOWORK=off go build -trimpath -buildvcs=false -o "$tools/image" ./image)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# blob LAYOUT: stores standard input in the layout, and prints its digest.
blob() {
  local content=$work/blob
  cat >"$content"
  local name
  name=$(digest "$content")
  mv "$content" "$1/blobs/sha256/${name#sha256:}"
  echo "$name"
}

# bytes LAYOUT DIGEST: prints the size of a blob.
bytes() { stat -c %s "$1/blobs/sha256/${2#sha256:}"; }

for program in "${programs[@]}"; do
  name=$registry/$program:$version
  layout=$work/$program
  mkdir -p "$layout/blobs/sha256"
  manifests=()
  for architecture in "${architectures[@]}"; do
    "$tools/image" --name "$name" --output "$work/one.tar" --entrypoint "/$program" --user 65532 --arch "$architecture" \
      "$release/$program-linux-$architecture:/$program" >/dev/null
    mkdir "$work/one"
    tar -x -f "$work/one.tar" -C "$work/one"
    blobs=$work/one/blobs manifest=$(jq -r '.manifests[0].digest | sub(":"; "/")' "$work/one/index.json")
    plain=$blobs/$(jq -r '.config.digest | sub(":"; "/")' "$blobs/$manifest")
    layer=$blobs/$(jq -r '.layers[0].digest | sub(":"; "/")' "$blobs/$manifest")
    cp "$layer" "$layout/blobs/sha256/"
    config=$(jq -c --arg source "$source_url" '.config.Labels = {"org.opencontainers.image.source": $source}' "$plain" | blob "$layout")
    image=$(jq -c --arg digest "$config" --argjson size "$(bytes "$layout" "$config")" \
      '.config += {digest: $digest, size: $size}' "$blobs/$manifest" | blob "$layout")
    # The index has the name; a manifest in it has none.
    manifests+=("$(jq -c --arg digest "$image" --argjson size "$(bytes "$layout" "$image")" \
      '.manifests[0] | del(.annotations) + {digest: $digest, size: $size}' "$work/one/index.json")")
    cp "$work/one/oci-layout" "$layout/"
    rm -r "$work/one" "$work/one.tar"
  done
  index=$(printf '%s\n' "${manifests[@]}" | jq -cs --arg version "$version" --arg revision "$revision" --arg title "$program" \
    --arg source "$source_url" '{
    schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json", manifests: ., annotations: {
      "org.opencontainers.image.title": $title, "org.opencontainers.image.version": $version,
      "org.opencontainers.image.revision": $revision, "org.opencontainers.image.licenses": "Apache-2.0",
      "org.opencontainers.image.source": $source}}' | blob "$layout")
  jq -cn --arg digest "$index" --arg name "$name" --arg tag "$version" \
    --argjson size "$(bytes "$layout" "$index")" '{
      schemaVersion: 2, manifests: [{mediaType: "application/vnd.oci.image.index.v1+json", digest: $digest, size: $size,
      annotations: {"io.containerd.image.name": $name, "org.opencontainers.image.ref.name": $tag}}]}' >"$layout/index.json"
  packed "$layout" blobs index.json oci-layout >"$release/$program.oci.tar"
  say "image $name: $index"
  printf '%s\n' "$index" >"$tools/$program.digest"
done
