#!/usr/bin/env bash
# check.sh TAG
# Checks that the tag is of this version, and that the changelog has the date of its release.
. "$(dirname "$0")/settings.sh"

[ "${1-}" = "v$version" ] || fail "the tag is '${1-}', and Cargo.toml has version $version: the tag has to be v$version"
heading=$(grep -m 1 '^## ' CHANGELOG.md)
grep -qE "^## $version \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" <<<"$heading" ||
  fail "CHANGELOG.md begins with '$heading': write '## $version (date)', for example '## $version ($(date +%Y-%m-%d))'"
[ -n "${REGISTRY-}" ] || fail "REGISTRY is not set: the packed chart has to name the registry of its images"
