#!/usr/bin/env bash
# cosign.sh [--find]
# Prints the directory of cosign for tests: the one on PATH if publish.sh can use it, or Debian's. Debian has version 3 since forky,
# so the program is taken from that suite's package without installing it, and runs on older ones. With --find, fails if there is
# none yet.
. "$(dirname "$0")/settings.sh"

if found=$(command -v cosign) && cosign sign --help 2>&1 | grep -- --use-signing-config >/dev/null; then
  dirname "$found"
  exit
fi
suite=forky
cache=${XDG_CACHE_HOME:-$HOME/.cache}/remora/cosign-$suite
if [ ! -x "$cache/cosign" ]; then
  [ "${1-}" != --find ] || fail "there is no cosign: put cosign 3 on PATH, or run e2e/release/cosign.sh on Debian"
  keys=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -e "$keys" ] || fail "please put cosign 3 on PATH: this is not Debian, so it is not done for you"
  mkdir -p "$cache"
  exec {lock}>"$cache/lock"
  flock "$lock" # another run may be at it
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT

  # mirror: prints the address from which this machine has its own packages, if it has lists of them.
  mirror() {
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
      awk '$1 == "Debian" && $2 == "Debian" && !found { print $3; found = 1 }'
  }
  from=$(mirror)
  if [ -z "$from" ]; then
    apt-get update -qq >&2
    from=$(mirror)
  fi
  [ -n "$from" ] || fail "apt has no mirror of Debian: please put cosign 3 on PATH"
  # Sources and lists of its own: this machine's packages never come from the suite.
  printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$from" "$suite" >"$work/sources.list"
  mkdir -p "$work/lists/partial" "$work/archives/partial"
  apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache=$work" -o APT::Sandbox::User=root -o Acquire::Languages=none
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
  (cd "$work" && "${apt[@]}" update && "${apt[@]}" download cosign && dpkg-deb --extract cosign_*.deb .) >&2 ||
    fail "cannot download cosign of Debian $suite: please put cosign 3 on PATH"
  # Renamed when complete, so that an interrupted run leaves no half program.
  cp "$work/usr/bin/cosign" "$cache/cosign.new"
  mv "$cache/cosign.new" "$cache/cosign"
fi
echo "$cache"
