#!/usr/bin/env bash
# Serves flags on localhost without a cluster: compiles the demo's document (or the given one), serves it until Ctrl-C,
# and prints commands to try. REMORA_PORT is the port (default: 4777); health and metrics are on the next port.
set -euo pipefail
cd "$(dirname "$0")/.."
. e2e/cluster/say.sh

document=${1:-e2e/demo/document.json}
port=${REMORA_PORT:-4777}
[ -r "$document" ] || fail "$document cannot be read: name a document as Flagsmith's environment-document/ answers it"
command -v cargo >/dev/null || fail "cargo is missing: please install Rust"
command -v cc >/dev/null || fail "a C compiler is missing: please install one (on Debian: gcc)"
built=${CARGO_TARGET_DIR:-target}/debug
mkdir -p "$built"
progress() { crates "$1"; }
say "building remora-tools, to compile the document, and remora-sidecar, to serve it: minutes the first time"
# shellcheck disable=SC2086
slowly "both" "$built/taste.log" cargo build ${CARGO_FLAGS-} -p remora-tools -p remora-sidecar --bin remora-tools --bin remora-sidecar
snapshots=$(mktemp -d)
trap 'rm -rf "$snapshots"' EXIT
"$built/remora-tools" compile --document "$document" --output "$snapshots" --environment-key ser.taste \
  --environment-document
key=$(sed -n 's/^ *"api_key": *"\([^"]*\)".*/\1/p' "$document" | head -n 1)
"$built/remora-sidecar" --snapshots "$snapshots" --listen "127.0.0.1:$port" --admin "127.0.0.1:$((port + 1))" \
  --log-level warn &
sidecar=$!
trap 'kill "$sidecar" 2>/dev/null || true; wait "$sidecar" || true; rm -rf "$snapshots"' EXIT
trap 'exit 0' INT TERM
"$built/remora-sidecar" --probe "127.0.0.1:$((port + 1))" || fail "no answer from the sidecar: see above"
cat <<EOF
Flags are on http://127.0.0.1:$port until Ctrl-C. Flagsmith's dialect, and OpenFeature's:

  curl -H 'X-Environment-Key: ${key:-YOUR-CLIENT-KEY}' http://127.0.0.1:$port/api/v1/flags/
  curl -d '{"context": {"targetingKey": "alice", "plan": "pro"}}' http://127.0.0.1:$port/ofrep/v1/evaluate/flags

And why they are what they are for somebody:

  $built/remora-tools explain $snapshots --identifier alice --trait plan=pro

EOF
wait "$sidecar"
