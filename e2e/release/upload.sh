#!/usr/bin/env bash
# upload.sh TAG
# Creates the release of this tag on GitHub with the release's files and the changelog's section. GH_TOKEN is the right.
. "$(dirname "$0")/settings.sh"

e2e/release/check.sh "${1-}"
notes=$(mktemp)
trap 'rm -f "$notes"' EXIT
awk '/^## / { section++ } section == 1 && !/^## /' CHANGELOG.md >"$notes"
gh release create "$1" --verify-tag --title "Remora $version" --notes-file "$notes" "$release"/*
