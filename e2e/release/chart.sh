#!/usr/bin/env bash
# chart.sh
# Packs the chart. Its default values name the registry and the digests of the images of this release.
. "$(dirname "$0")/settings.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r charts/remora "$work/"
cp LICENSE "$work/remora/"
operator=$(<"$tools/remora-operator.digest") sidecar=$(<"$tools/remora-sidecar.digest")
values=$work/remora/values.yaml
sed -i -e "s|^  registry: \"\"$|  registry: $registry|" \
  -e "/^  operator:$/,/^  sidecar:$/ s|^    digest: \"\"$|    digest: $operator|" \
  -e "/^  sidecar:$/,/^[a-z]/ s|^    digest: \"\"$|    digest: $sidecar|" "$values"
for line in "  registry: $registry" "    digest: $operator" "    digest: $sidecar"; do
  [ "$(grep -cxF "$line" "$values")" = 1 ] || fail "values.yaml of the packed chart does not have the line '$line' once"
done
grep -qxF "version: $version" "$work/remora/Chart.yaml" || fail "Chart.yaml does not have version $version: make generate"
packed "$work" remora | gzip --no-name -9 >"$release/remora-$version.tgz"
# helm push records the file's time.
touch -d "@$SOURCE_DATE_EPOCH" "$release/remora-$version.tgz"
