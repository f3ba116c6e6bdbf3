//! Checks if a pod that exists requests a sidecar and has none.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    annotations,
    decide::{Place, Refusal, is_system, wanted},
    pod::{is_native_sidecar, name},
};
use crate::api::names::{annotation, sidecar};

/// Fault of a pod that requests a sidecar and has none.
#[derive(Debug)]
pub enum Lack {
    /// The pod was admitted without a sidecar; a replacement would get one.
    Admitted,
    /// The pod was admitted without a sidecar; a replacement would be denied.
    Invalid(Refusal),
}

/// True if a pod may lack a sidecar: its metadata requests one and its namespace is not a system namespace.
pub fn is_candidate(annotations: &BTreeMap<String, String>, namespace: &str, own_namespace: &str) -> bool {
    let asks = annotations.get(annotation::INJECT).is_some_and(|value| value != annotations::OPT_OUT);
    asks && !is_system(namespace, own_namespace)
}

/// Returns the fault of a pod that lacks the sidecar that it requests. A pod with a sidecar of any version has no
/// fault.
pub fn lacks_sidecar(pod: &Value, place: &Place<'_>, own_namespace: &str) -> Option<Lack> {
    let init = pod.pointer("/spec/initContainers").and_then(Value::as_array);
    let is_ours = |container: &Value| name(container) == Some(sidecar::CONTAINER) && is_native_sidecar(container);
    if init.into_iter().flatten().any(is_ours) {
        return None;
    }
    match wanted(pod, place, own_namespace) {
        Ok(Ok(_)) => Some(Lack::Admitted),
        Ok(Err(_)) => None,
        Err(refusal) => Some(Lack::Invalid(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lack(annotations: &Value, spec: &Value) -> Option<Lack> {
        let pod = json!({"metadata": {"annotations": annotations}, "spec": spec});
        lacks_sidecar(&pod, &Place::new("shop"), "remora-system")
    }

    #[test]
    fn a_pod_without_what_it_asks_for() {
        let (asks, plain) = (json!({"remora.dev/inject": "a"}), json!({"containers": [{"name": "web"}]}));
        assert!(matches!(lack(&asks, &plain), Some(Lack::Admitted)));
        assert!(lack(&json!({"remora.dev/inject": "false"}), &plain).is_none());
        assert!(lack(&json!({}), &plain).is_none());
        assert!(lack(&asks, &json!({"hostNetwork": true, "containers": []})).is_none(), "it never gets one");
        let odd = lack(&json!({"remora.dev/inject": "A"}), &plain);
        assert!(matches!(odd, Some(Lack::Invalid(refusal)) if refusal.label() == "invalid_annotation"));
    }

    #[test]
    fn a_sidecar_of_any_version_is_one() {
        let asks = json!({"remora.dev/inject": "a,b"});
        let has = json!({"containers": [], "initContainers": [{"name": "remora", "restartPolicy": "Always"}]});
        assert!(lack(&asks, &has).is_none());
        let namesake = json!({"containers": [], "initContainers": [{"name": "remora"}]});
        assert!(matches!(lack(&asks, &namesake), Some(Lack::Invalid(_))));
    }

    #[test]
    fn candidates_ask_and_are_nobodys_system() {
        let asks = |value: &str| BTreeMap::from([("remora.dev/inject".to_owned(), value.to_owned())]);
        assert!(is_candidate(&asks("a"), "shop", "remora-system"));
        assert!(!is_candidate(&asks("false"), "shop", "remora-system"));
        assert!(!is_candidate(&BTreeMap::new(), "shop", "remora-system"));
        for namespace in ["kube-system", "kube-node-lease", "remora-system"] {
            assert!(!is_candidate(&asks("a"), namespace, "remora-system"), "{namespace}");
        }
    }
}
