# Settings of a release, in one place: sourced by the scripts of this folder, which run at the top of the repository.
# shellcheck disable=SC2034
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. e2e/cluster/say.sh

version=$(sed -n '/^\[workspace.package\]/,/^\[/ s/^version = "\(.*\)"$/\1/p' Cargo.toml)
[ -n "$version" ] || fail "Cargo.toml has no version"

# Registry that the images are published in, without a slash at the end. The packed chart names it.
registry=${REGISTRY:-registry.example.org/remora}
# Address of the repository, without a slash at the end: links in the packed chart, metadata of chart and images, and the plugin's
# manifest name it. The workflow sets it.
source_url=${SOURCE_URL:-https://example.org/remora}
# Architectures by the names of OCI. Each has a target of Rust in `target_of`.
read -ra architectures <<<"${ARCHITECTURES:-amd64 arm64}"
build=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=${RELEASE_TOOLS:-$build/release-tools}
release=${RELEASE_DIRECTORY:-$build/release/remora-$version}
programs=(remora-operator remora-sidecar)

# Time of the commit: nothing in a release depends on the time of its build.
SOURCE_DATE_EPOCH=$(git -c safe.directory='*' log -1 --format=%ct)
revision=$(git -c safe.directory='*' rev-parse HEAD)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC

# target_of ARCHITECTURE: prints the target of Rust.
target_of() {
  case $1 in
    amd64) echo x86_64-unknown-linux-gnu ;;
    arm64) echo aarch64-unknown-linux-gnu ;;
    *) fail "there is no target for the architecture $1: amd64 and arm64 are supported" ;;
  esac
}

# digest FILE: prints the SHA-256 of the file as OCI writes it.
digest() { printf 'sha256:%s\n' "$(sha256sum <"$1" | cut -d ' ' -f 1)"; }

# packed DIRECTORY [NAME...]: writes a tar archive of these entries that depends on their content only.
packed() {
  local directory=$1
  shift
  tar --create --directory "$directory" --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
    --numeric-owner --mode='u=rwX,go=rX' "${@:-.}"
}
