# Sourced: cargo flags for programs with a short build time: optimized, but not across crates, in the directory `local`.
# shellcheck disable=SC2034
quick=(--profile local --config 'profile.local.inherits="release"' --config 'profile.local.debug=0'
  --config 'profile.local.lto="off"' --config 'profile.local.strip="symbols"')
