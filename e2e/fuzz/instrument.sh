#!/bin/sh
# instrument.sh RUSTC ARGUMENTS...: what cargo calls instead of rustc for the crates of this workspace (RUSTC_WORKSPACE_WRAPPER).
# The code under test is built with the counters that libFuzzer steers by. Crates of others have none: the engine looks at all
# counters after every input.
rustc=$1
shift
case " $* " in
  *" --crate-name remora_operator "* | *" --crate-name remora_sidecar "* | *" --crate-name remora_snapshot "*)
    set -- "$@" -Cpasses=sancov-module \
      -Cllvm-args=-sanitizer-coverage-level=4 \
      -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
      -Cllvm-args=-sanitizer-coverage-pc-table \
      -Cllvm-args=-sanitizer-coverage-trace-compares
    ;;
esac
exec "$rustc" "$@"
