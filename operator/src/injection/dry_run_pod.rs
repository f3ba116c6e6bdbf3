//! The pod of a dry run. Pure.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::api::names::annotation;

/// Builds a pod that requests the FeatureEnvironment `name`, to be created in a dry run. PodSecurity admits it in every
/// namespace, and it needs almost nothing of a quota.
///
/// # Errors
/// The pod cannot be built.
pub(crate) fn dry_run_pod(name: &str, image: &str) -> Result<Pod, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"generateName": format!("remora-{name}-"), "annotations": {annotation::INJECT: name}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "nothing", "image": image,
                "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": true, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
                },
            }],
        },
    }))
}
