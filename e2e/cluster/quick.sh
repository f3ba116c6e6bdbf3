# Sourced: how programs are built that have to be ready soon, optimized, but not across crates, in the directory `local`.
# shellcheck disable=SC2034
quick=(--profile local --config 'profile.local.inherits="release"' --config 'profile.local.debug=0'
  --config 'profile.local.lto="off"' --config 'profile.local.strip="symbols"')
