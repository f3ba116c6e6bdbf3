#!/usr/bin/env bash
# same.sh EMULATOR AMD64 ARM64
# Compares remora-tools and remora-sidecar of the directory AMD64 with remora-operator and remora-sidecar of the directory ARM64, which the
# emulator runs: what they compile, what they print of it, and what they answer to all recorded requests, byte for byte.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. e2e/cluster/say.sh
emulator=$1 here=$2 other=$3
work=$(mktemp -d)
sidecars=()
trap 'kill "${sidecars[@]}" 2>/dev/null; rm -rf "$work"' EXIT
key=ser.same

# told DIRECTORY DOCUMENT COMMAND...: writes snapshots of the document and what the command prints of them into the directory.
told() {
  mkdir "$1"
  (cd "$1" && "${@:3}" compile --document "$2" --output snapshots --environment-key "$key" --environment-document >compile 2>&1 &&
    "${@:3}" inspect snapshots >inspected && "${@:3}" explain snapshots --identifier alice --trait plan=pro --trait age=41 >explained)
}

# asked DIRECTORY PORT: sends all recorded requests, and the same as those of OpenFeature, and stores the answers in the directory.
asked() {
  mkdir "$1/answers"
  jq -r --arg to "http://127.0.0.1:$2/" --arg at "$1/answers/" --arg client "$(jq -r .client e2e/recorded/keys.json)" \
    --arg server "$key" -f e2e/release/arm64/requests.jq e2e/recorded/*/*.json | sed '$d' |
    curl --silent --show-error --config - >"$1/statuses"
  curl --silent --show-error -H "X-Environment-Key: $key" "http://127.0.0.1:$2/api/v1/environment-document/" >"$1/answers/document"
}

# served ARCHITECTURE PORT COMMAND...: starts the sidecar, and stores its answers.
served() {
  local place=$work/environment/$1 port=$2
  "${@:3}" --snapshots "$place/snapshots" --listen "127.0.0.1:$port" --admin "127.0.0.1:$((port + 1))" --log-level warn &
  sidecars+=($!)
  "${@:3}" --probe "127.0.0.1:$((port + 1))" || fail "no answer from the sidecar for $1"
  asked "$place" "$port"
}

for document in e2e/demo/document.json e2e/recorded/environment.json; do
  name=$(basename "$document" .json)
  mkdir "$work/$name"
  told "$work/$name/amd64" "$PWD/$document" "$here/remora-tools"
  told "$work/$name/arm64" "$PWD/$document" "$emulator" "$other/remora-operator"
  diff -rq "$work/$name/amd64" "$work/$name/arm64" >&2 || fail "the architectures differ in what they make of $document"
  say "$document: $(find "$work/$name/amd64/snapshots" -type f | wc -l) files and what is printed of them are the same"
done
served amd64 4791 "$here/remora-sidecar"
served arm64 4793 "$emulator" "$other/remora-sidecar"
diff -rq "$work/environment/amd64/answers" "$work/environment/arm64/answers" >&2 || fail "the architectures differ in their answers"
diff "$work/environment/amd64/statuses" "$work/environment/arm64/statuses" >&2 || fail "the architectures differ in their statuses"
answered=$(grep -c '^200 ' "$work/environment/arm64/statuses") || fail "no request was answered"
say "$(find "$work/environment/arm64/answers" -type f | wc -l) answers are the same, $answered of them with status 200"
