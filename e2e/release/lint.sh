#!/usr/bin/env bash
# lint.sh
# Checks the workflows by actionlint. Without Go, reports that they are not checked; in continuous integration, that is a
# failure.
. "$(dirname "$0")/settings.sh"

if ! command -v go >/dev/null && [ "${CI-}" != true ]; then
  say "NOT RUN: the workflows are not checked, because actionlint is built with Go, and there is no 'go' on PATH"
  exit 0
fi
bin=$(e2e/release/tools.sh actionlint)
# Without shellcheck on PATH, actionlint leaves out the commands of steps, which only call make.
"$bin/actionlint" -no-color .github/workflows/*.yaml
