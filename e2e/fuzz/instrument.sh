#!/bin/sh
# instrument.sh RUSTC ARGUMENTS...: cargo calls this script instead of rustc for the crates of this workspace
# (RUSTC_WORKSPACE_WRAPPER). The code under test is built with the counters that guide libFuzzer. Other crates get no
# counters, because the engine reads all counters after every input.
rustc=$1
shift
case " $* " in
  *" --crate-name remora_compile "* | *" --crate-name remora_operator "* | *" --crate-name remora_sidecar "* | *" --crate-name remora_snapshot "* | \
  *" --crate-name remora_tools "*)
    set -- "$@" -Cpasses=sancov-module \
      -Cllvm-args=-sanitizer-coverage-level=4 \
      -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
      -Cllvm-args=-sanitizer-coverage-pc-table \
      -Cllvm-args=-sanitizer-coverage-trace-compares
    ;;
esac
exec "$rustc" "$@"
