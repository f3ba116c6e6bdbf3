#!/usr/bin/env bash
# chart.sh
# Packs the chart. It names the registry of the images of this release in its default values, and their digests in a file that its
# templates read: values of an earlier release, which `helm upgrade --reuse-values` keeps, cannot replace a digest. Links of its README
# that lead out of the chart name the repository, and so does its metadata.
. "$(dirname "$0")/settings.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r charts/remora "$work/"
cp LICENSE "$work/remora/"
values=$work/remora/values.yaml
sed -i "s|^  registry: \"\"$|  registry: $registry|" "$values"
[ "$(grep -cxF "  registry: $registry" "$values")" = 1 ] ||
  fail "values.yaml of the packed chart does not have the line '  registry: $registry' once"
{
  echo "# Digests of the images of this release. The value image.NAME.digest or image.NAME.tag takes precedence."
  for program in "${programs[@]}"; do
    printf '%s: %s\n' "${program#remora-}" "$(<"$tools/$program.digest")"
  done
} >"$work/remora/digests.yaml"
at=v$version
sed -i -e "s|](\.\./\.\./\([^)]*\)/)|](source_url/tree/$at/\1/)|g" -e "s|](\.\./\.\./|](source_url/blob/$at/|g" \
  -e "s|](\([a-z][a-z/]*/\))|](source_url/tree/$at/charts/remora/\1)|g" -e "s|](source_url|]($source_url|g" "$work/remora/README.md"
printf 'home: %s\nsources:\n  - %s\n' "$source_url" "$source_url" >>"$work/remora/Chart.yaml"
grep -qxF "version: $version" "$work/remora/Chart.yaml" || fail "Chart.yaml does not have version $version: make generate"
packed "$work" remora | gzip --no-name -9 >"$release/remora-$version.tgz"
# helm push records the file's time.
touch -d "@$SOURCE_DATE_EPOCH" "$release/remora-$version.tgz"
