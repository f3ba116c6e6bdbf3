#!/usr/bin/env bash
# requirements.sh
# Installs the requirements of the tests that need no cluster, where that is possible, and prints the missing ones.
# Tests whose requirement is missing are then reported as not run. In continuous integration (CI=true), a missing
# requirement is a failure. The whole recording of answers is an exception if REMORA_CONFORMANCE_DIR=none says that the
# machine cannot have it.
set -u
cd "$(dirname "$0")" || exit 1

missing=0
# lacks WHAT TESTS: prints a missing requirement and the tests that need it.
lacks() {
  missing=1
  printf 'MISSING: %s\n  These tests will not run: %s\n' "$1" "$2" >&2
}

./packages.sh --tests || lacks "Debian packages, see above" "those that run the missing programs"
command -v valgrind >/dev/null || lacks "valgrind" "instruction counts (sidecar/benches/tests/instructions.rs)"
command -v python3 >/dev/null || lacks "python3" "patterns compared with Python's (e2e/fuzz)"
command -v go >/dev/null || lacks "go" "how a release is packed (e2e/testing/tests/release)"
../release/cosign.sh >/dev/null || lacks "cosign 3, see above" "signatures of a release (e2e/testing/tests/release/signatures.rs)"
../../operator/compile/tests/differential/python.sh >/dev/null ||
  lacks "Flagsmith's engine in Python, see above" "random documents compared with it (operator/compile/tests/differential.rs)"
[ "$(id -u)" = 0 ] || lacks "root" "the sidecar's memory limit (sidecar/tests/memory.rs)"
failures=$missing
case ${REMORA_CONFORMANCE_DIR-} in
  none | "")
    lacks "REMORA_CONFORMANCE_DIR, the directory of all recorded answers" "conformance with those that are not in e2e/recorded"
    [ "${REMORA_CONFORMANCE_DIR-}" = none ] || failures=1
    ;;
esac

[ "$failures" = 0 ] || [ "${CI-}" != true ]
