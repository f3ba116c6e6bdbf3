# Sourced: cargo flags for programs with a short build time: optimized, but not across crates, in the directory `local`. Types of
# Kubernetes take more than a minute to optimize; generic code, which reads and writes them, is optimized in the crates that use it.
# shellcheck disable=SC2034
quick=(--profile local --config 'profile.local.inherits="release"' --config 'profile.local.debug=0'
  --config 'profile.local.lto="off"' --config 'profile.local.strip="symbols"'
  --config 'profile.local.package.k8s-openapi.opt-level=0')
