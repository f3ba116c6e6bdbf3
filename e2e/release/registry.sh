#!/usr/bin/env bash
# registry.sh DIRECTORY PORT
# Runs Debian's docker-registry on 127.0.0.1 until it is stopped, with its content in the directory. If the program is
# missing, the script takes it from the package without installing it: an installed package would start a service.
set -euo pipefail
directory=${1:?usage: registry.sh DIRECTORY PORT} port=${2:?usage: registry.sh DIRECTORY PORT}
cd "$(dirname "$0")/../.."
. e2e/cluster/say.sh

program=$(command -v docker-registry || true)
if [ -z "$program" ]; then
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/remora/docker-registry
  program=$cache/usr/bin/docker-registry
  if [ ! -x "$program" ]; then
    command -v apt-get >/dev/null || fail "please install docker-registry: this is not Debian, so it is not done for you"
    mkdir -p "$cache"
    (cd "$cache" && { apt-get download -qq docker-registry || { apt-get update -qq && apt-get download -qq docker-registry; }; } &&
      dpkg-deb --extract docker-registry_*.deb .) >&2
  fi
fi
cat >"$directory/registry.yaml" <<EOF
version: 0.1
log: {level: warn}
storage:
  filesystem: {rootdirectory: $directory/content}
http: {addr: "127.0.0.1:$port"}
EOF
exec "$program" serve "$directory/registry.yaml"
