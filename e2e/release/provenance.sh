#!/usr/bin/env bash
# provenance.sh
# Prints the provenance of the release's files: an in-toto statement with a SLSA predicate, which names the commit, the
# compiler and the builder. BUILDER names the builder; in a workflow of GitHub, its address.
. "$(dirname "$0")/settings.sh"

subjects=$(cd "$release" && for file in *; do
  [ "$file" != provenance.intoto.json ] || continue
  jq -cn --arg name "$file" --arg sum "$(digest "$file" | cut -d : -f 2)" '{name: $name, digest: {sha256: $sum}}'
done | jq -cs .)
origin=${SOURCE_URL:-$(git -c safe.directory='*' config --get remote.origin.url || echo "file:///source")}
jq -n --argjson subjects "$subjects" --arg version "$version" --arg registry "$registry" \
  --arg revision "$revision" --arg origin "$origin" \
  --arg compiler "$(rustc -V)" --arg builder "${BUILDER:-local}" --arg architectures "${architectures[*]}" '{
    _type: "https://in-toto.io/Statement/v1", subject: $subjects, predicateType: "https://slsa.dev/provenance/v1",
    predicate: {
      buildDefinition: {
        buildType: "https://remora.dev/build/make-release/v1",
        externalParameters: {version: $version, registry: $registry, architectures: ($architectures | split(" "))},
        internalParameters: {compiler: $compiler},
        resolvedDependencies: [{uri: ("git+" + $origin + "@" + $revision), digest: {gitCommit: $revision}}]
      },
      runDetails: {builder: {id: $builder}}
    }
  }'
