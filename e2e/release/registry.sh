#!/usr/bin/env bash
# registry.sh DIRECTORY PORT [USER PASSWORD]
# Runs Debian's docker-registry on 127.0.0.1 until it is stopped, with its content in the directory. With a user, the registry
# answers requests of this user only. Several registries may share a directory. If the program is missing, the script takes it from
# the package without installing it: an installed package would start a service.
set -euo pipefail
usage="usage: registry.sh DIRECTORY PORT [USER PASSWORD]"
directory=${1:?$usage} port=${2:?$usage} user=${3-} password=${4-}
cd "$(dirname "$0")/../.."
. e2e/cluster/say.sh

program=$(command -v docker-registry || true)
if [ -z "$program" ]; then
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/remora/docker-registry
  program=$cache/usr/bin/docker-registry
  mkdir -p "$cache"
  exec {lock}>"$cache/lock"
  flock "$lock" # another registry may be at it
  if [ ! -x "$program" ]; then
    command -v apt-get >/dev/null || fail "please install docker-registry: this is not Debian, so it is not done for you"
    (cd "$cache" && { apt-get download -qq docker-registry || { apt-get update -qq && apt-get download -qq docker-registry; }; } &&
      dpkg-deb --extract docker-registry_*.deb .) >&2
  fi
  exec {lock}>&-
fi
settings=$directory/registry-$port.yaml
cat >"$settings" <<EOF
version: 0.1
log: {level: warn}
storage:
  filesystem: {rootdirectory: $directory/content}
http: {addr: "127.0.0.1:$port"}
EOF
if [ -n "$user" ]; then
  # The registry reads bcrypt only. Perl is part of every Debian.
  hash=$(perl -e 'print crypt($ARGV[0], q($2b$05$remoraremoraremoraremo))' "$password")
  [[ $hash == '$2b$05$'* ]] || fail "the crypt of this machine's perl does not know bcrypt"
  printf '%s:%s\n' "$user" "$hash" >"$directory/users-$port"
  printf 'auth:\n  htpasswd: {realm: remora, path: %s}\n' "$directory/users-$port" >>"$settings"
fi
exec "$program" serve "$settings"
