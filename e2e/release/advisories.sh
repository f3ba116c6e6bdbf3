#!/usr/bin/env bash
# advisories.sh
# Checks the dependencies for known vulnerabilities and withdrawn versions, by cargo-deny and deny.toml. Fetches the advisory
# database.
. "$(dirname "$0")/settings.sh"

deny=0.20.2
mkdir -p "$tools"
if [ "$("$tools/bin/cargo-deny" --version 2>/dev/null)" != "cargo-deny $deny" ]; then
  progress() { crates "$1"; }
  slowly "cargo-deny" "$build/release-deny.log" cargo install --locked --root "$tools" --version "$deny" cargo-deny
fi
"$tools/bin/cargo-deny" --locked check advisories
