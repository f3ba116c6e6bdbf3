#!/usr/bin/env bash
# python.sh [--find]
# Prints the path of a Python with Flagsmith's engine. Creates it, once per content of requirements.txt, in the user's
# cache; with --find, fails if it does not exist. A missing dependency is printed and gives a failure status.
set -euo pipefail
cd "$(dirname "$0")"

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

home=${XDG_CACHE_HOME:-$HOME/.cache}/remora/python-$(sha256sum requirements.txt | cut -c1-12)
if [ ! -x "$home/bin/python" ]; then
  [ "${1-}" != --find ] || fail "$home does not exist: run $PWD/python.sh, which creates it"
  command -v python3 >/dev/null || fail "python3 is missing: the differential test runs Flagsmith's engine, which is written in Python"
  if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    command -v apt-get >/dev/null || fail "this python3 cannot make virtual environments: please install its venv module"
    [ "$(id -u)" = 0 ] || fail "this python3 cannot make virtual environments: please install python3-venv (or run this as root)"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-venv; } >&2
  fi
  # The environment is built beside its final path and then moved, so that it is complete or absent; a concurrent second
  # run keeps the first one's.
  mkdir -p "$(dirname "$home")"
  new=$(mktemp -d "$home.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  python3 -m venv "$new" >&2 || fail "python3 -m venv failed"
  "$new/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements.txt >&2 ||
    fail "the packages of $PWD/requirements.txt could not be installed: is a Python package index reachable?"
  chmod 755 "$new"
  mv -T "$new" "$home" 2>/dev/null || [ -x "$home/bin/python" ] || fail "$home cannot be made"
fi
printf '%s\n' "$home/bin/python"
