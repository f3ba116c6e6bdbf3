#!/usr/bin/env bash
# checksums.sh
# Writes the SHA-256 of each file of the release, and with SIGNING_KEY (a private key in PEM) a signature over them, which
#   openssl dgst -sha256 -verify PUBLIC_KEY -signature checksums.txt.sig checksums.txt
# verifies.
. "$(dirname "$0")/settings.sh"

cd "$release"
find . -type f ! -name 'checksums.txt*' -printf '%P\n' | sort | xargs sha256sum >checksums.txt
if [ -n "${SIGNING_KEY-}" ]; then
  openssl dgst -sha256 -sign "$SIGNING_KEY" -out checksums.txt.sig checksums.txt
  openssl pkey -in "$SIGNING_KEY" -pubout -out "$build/release-public-key.pem"
  openssl dgst -sha256 -verify "$build/release-public-key.pem" -signature checksums.txt.sig checksums.txt >/dev/null ||
    fail "the signature does not verify"
fi
