#!/usr/bin/env bash
# install.sh python|node|rust|java|go
# Installs the clients of one language, in the versions that are committed here, into the user's cache, and prints the
# directory. It does so once for each content of the files that name the versions. If something is missing, the script
# says so and fails: it skips nothing.
set -euo pipefail
cd "$(dirname "$0")"
. ../cluster/say.sh
exec 3>&1 1>&2

cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/remora

# packages WHAT PACKAGE...: installs Debian packages, if the machine has apt and the user is root.
packages() {
  local what=$1
  shift
  command -v apt-get >/dev/null || fail "$what is missing: please install it (on Debian: $*)"
  [ "$(id -u)" = 0 ] || fail "$what is missing: please install $* (or run this as root)"
  export DEBIAN_FRONTEND=noninteractive
  slowly "package lists" "$log" apt-get update
  slowly "packages $*" "$log" apt-get install -y --no-install-recommends "$@"
}

python() {
  command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null ||
    packages "python3 with its venv module" python3 python3-venv
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$(python3 --version) is too old for these clients: they need Python 3.10"
  # The environment is made beside its final path and then moved, so that it is complete or absent.
  rm -rf "$home.new"
  python3 -m venv "$home.new"
  slowly "Python clients" "$log" "$home.new/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps \
    --requirement python/requirements.txt
  mv -T "$home.new" "$home"
}

node() {
  command -v node >/dev/null && command -v npm >/dev/null || packages "node with npm" nodejs npm
  local version
  version=$(command node --version)
  version=${version#v}
  # The clients require Node 20, but everything that the tests use works with Node 18 of Debian 12 as well.
  [ "${version%%.*}" -ge 18 ] || fail "Node $version is too old for these clients: they need Node 18"
  rm -rf "$home.new"
  mkdir "$home.new"
  cp node/package.json node/package-lock.json "$home.new"
  slowly "Node clients" "$log" npm ci --prefix "$home.new" --ignore-scripts --no-audit --no-fund --no-update-notifier
  mv -T "$home.new" "$home"
}

rust() {
  command -v cargo >/dev/null || fail "cargo is missing"
  # Compiled into the cache, because target directories are often deleted and this build takes a minute. Cargo rebuilds
  # only what changed.
  slowly "Rust clients" "$log" cargo build --locked --manifest-path rust/Cargo.toml --target-dir "$home"
}

java() {
  command -v mvn >/dev/null && command -v java >/dev/null || packages "Java with Maven" default-jdk-headless maven
  local version
  version=$(command java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
  [ "${version:-0}" -ge 17 ] || fail "Java $version is too old for these clients: they need Java 17"
  rm -rf "$home.new"
  for client in flagsmith ofrep; do
    slowly "Java clients: $client" "$log" mvn --batch-mode --file "java/$client/pom.xml" \
      org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$home.new/$client"
  done
  mv -T "$home.new" "$home"
}

go() {
  type -P go >/dev/null || fail "Go 1.24 or later is missing: these clients are compiled with it"
  rm -rf "$home.new"
  # Static programs, compiled one package at a time: concurrent tests need the cores more than this build.
  (cd go && slowly "Go clients" "$log" env CGO_ENABLED=0 GOWORK=off GOFLAGS="-p=1 -trimpath -buildvcs=false" \
    go build -o "$home.new/" ./...)
  mv -T "$home.new" "$home"
}

case ${1-} in
  python) named=(python/requirements.txt) ;;
  node) named=(node/package.json node/package-lock.json) ;;
  rust) named=(rust/Cargo.toml rust/Cargo.lock) ;;
  java) named=(java/flagsmith/pom.xml java/ofrep/pom.xml) ;;
  go) named=(go/go.mod go/go.sum go/*/*.go) ;;
  *) fail "usage: install.sh python|node|rust|java|go" ;;
esac
mkdir -p "$cache"
home=$cache/clients-$1-$(cat "${named[@]}" | sha256sum | cut -c 1-12)
log=$home.log
# A second call waits for the first.
exec 9>"$home.lock"
flock 9
if [ "$1" = rust ] || [ ! -e "$home" ]; then
  "$1"
fi
printf '%s\n' "$home" >&3
