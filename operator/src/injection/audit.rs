//! Checks if a pod that exists requests a sidecar and has none.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    annotations,
    decide::{NotInjected, PodContext, Refusal, is_system, parse_request},
    pod::{is_native_sidecar, name},
};
use crate::api::names::{annotation, sidecar};

/// Fault of a pod that requests a sidecar and has none.
#[derive(Debug)]
pub enum MissingSidecar {
    /// A replacement of the pod would get a sidecar.
    Replaceable,
    /// A replacement of the pod would be denied.
    Denied(Refusal),
}

/// True if a pod may lack a sidecar: its metadata requests one and its namespace is not a system namespace.
pub fn is_candidate(annotations: &BTreeMap<String, String>, namespace: &str, own_namespace: &str) -> bool {
    let requests = annotations.get(annotation::INJECT).is_some_and(|value| value != annotations::OPT_OUT);
    requests && !is_system(namespace, own_namespace)
}

/// Returns the fault of a pod that requests a sidecar and has none. `None` if the pod has a sidecar, of any version, or
/// if a new pod like it would be admitted without one.
pub fn missing_sidecar(pod: &Value, context: &PodContext<'_>, own_namespace: &str) -> Option<MissingSidecar> {
    let init = pod.pointer("/spec/initContainers").and_then(Value::as_array);
    let is_ours = |container: &Value| name(container) == Some(sidecar::CONTAINER) && is_native_sidecar(container);
    if init.into_iter().flatten().any(is_ours) {
        return None;
    }
    match parse_request(pod, context, own_namespace) {
        Ok(_) => Some(MissingSidecar::Replaceable),
        Err(NotInjected::Skip(_)) => None,
        Err(NotInjected::Deny(refusal)) => Some(MissingSidecar::Denied(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(annotations: &Value, spec: &Value) -> Option<MissingSidecar> {
        let pod = json!({"metadata": {"annotations": annotations}, "spec": spec});
        missing_sidecar(&pod, &PodContext::new("shop"), "remora-system")
    }

    #[test]
    fn missing_sidecar_of_requesting_pod_is_found() {
        let (requests, plain) = (json!({"remora.dev/inject": "a"}), json!({"containers": [{"name": "web"}]}));
        assert!(matches!(check(&requests, &plain), Some(MissingSidecar::Replaceable)));
        assert!(check(&json!({"remora.dev/inject": "false"}), &plain).is_none());
        assert!(check(&json!({}), &plain).is_none());
        assert!(
            check(&requests, &json!({"hostNetwork": true, "containers": []})).is_none(),
            "such a pod is never injected"
        );
        let odd = check(&json!({"remora.dev/inject": "A"}), &plain);
        assert!(matches!(odd, Some(MissingSidecar::Denied(refusal)) if refusal.label() == "invalid_annotation"));
    }

    #[test]
    fn pod_with_sidecar_of_any_version_is_not_reported() {
        let requests = json!({"remora.dev/inject": "a,b"});
        let has = json!({"containers": [], "initContainers": [{"name": "remora", "restartPolicy": "Always"}]});
        assert!(check(&requests, &has).is_none());
        let namesake = json!({"containers": [], "initContainers": [{"name": "remora"}]});
        assert!(matches!(check(&requests, &namesake), Some(MissingSidecar::Denied(_))));
    }

    #[test]
    fn candidate_requests_injection_and_is_outside_system_namespaces() {
        let requests = |value: &str| BTreeMap::from([("remora.dev/inject".to_owned(), value.to_owned())]);
        assert!(is_candidate(&requests("a"), "shop", "remora-system"));
        assert!(!is_candidate(&requests("false"), "shop", "remora-system"));
        assert!(!is_candidate(&BTreeMap::new(), "shop", "remora-system"));
        for namespace in ["kube-system", "kube-node-lease", "remora-system"] {
            assert!(!is_candidate(&requests("a"), namespace, "remora-system"), "{namespace}");
        }
    }
}
