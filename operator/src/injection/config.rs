//! Settings of the injection that apply to all pods.

use super::defaults::Defaults;

/// Settings of the injection that apply to all pods.
#[derive(Clone, Debug)]
pub struct Config {
    /// The sidecar's image.
    pub sidecar_image: String,
    /// Pull policy of the image: `IfNotPresent`, `Always` or `Never`.
    pub sidecar_pull_policy: String,
    /// The operator's own namespace. Its pods are never injected, because they must be able to start without the
    /// webhook.
    pub own_namespace: String,
    /// Options of sidecars whose pod and namespace have no annotation.
    pub defaults: Defaults,
}
