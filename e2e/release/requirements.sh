#!/usr/bin/env bash
# requirements.sh
# Installs the Debian packages that a release needs.
. "$(dirname "$0")/settings.sh"
e2e/cluster/packages.sh --tests jq:jq openssl:openssl gcc-aarch64-linux-gnu:aarch64-linux-gnu-gcc \
  libc6-dev-arm64-cross:/usr/aarch64-linux-gnu/lib/libc.a
