//! What the administrator decided for all pods.

/// What the administrator decided for all pods.
#[derive(Clone, Debug)]
pub struct Config {
    /// The sidecar's image.
    pub sidecar_image: String,
    /// When kubelet pulls it: `IfNotPresent`, `Always` or `Never`.
    pub sidecar_pull_policy: String,
    /// The operator's own namespace, whose pods must be able to start without us.
    pub own_namespace: String,
}
