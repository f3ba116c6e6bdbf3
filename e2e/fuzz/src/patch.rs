//! Properties of a decision about a pod, which hold for every pod.

use remora_operator::injection::{Config, Decision, Defaults, PodContext, SkipReason, decide, missing_sidecar};
use serde_json::Value;

use crate::assert_printable;

/// The operator's own namespace.
pub(crate) const OWN_NAMESPACE: &str = "remora-system";

/// Returns the settings of the administrator.
pub(crate) fn config() -> Config {
    Config {
        sidecar_image: "example.org/remora-sidecar:1.0.0".to_owned(),
        sidecar_pull_policy: "IfNotPresent".to_owned(),
        own_namespace: OWN_NAMESPACE.to_owned(),
        defaults: Defaults::default(),
    }
}

/// Decides about a pod. Panics unless the patch applies and adds the sidecar, and a second decision changes nothing.
pub(crate) fn assert_applies_once(pod: &Value, context: &PodContext<'_>) {
    let is_missing = missing_sidecar(pod, context, OWN_NAMESPACE).is_some();
    let injection = match decide(pod, context, &config()) {
        Decision::Skip(_) => return,
        Decision::Deny(refusal) => return assert_printable(&refusal.to_string()),
        Decision::Inject(injection) => injection,
    };
    injection.warnings.iter().for_each(|warning| assert_printable(warning));
    let operations = injection.patch;
    assert!(operations.0.iter().all(|one| matches!(one, json_patch::PatchOperation::Add(_))), "{operations}");
    // The API server receives the patch as text.
    let operations: json_patch::Patch = serde_json::from_str(&serde_json::to_string(&operations).unwrap()).unwrap();
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &operations).expect("the patch does not apply");
    assert!(has_sidecar(&patched));
    assert_eq!(is_missing, !has_sidecar(pod), "the auditor and the webhook do not agree");
    assert!(missing_sidecar(&patched, context, OWN_NAMESPACE).is_none());
    let again = decide(&patched, context, &config());
    assert!(matches!(again, Decision::Skip(SkipReason::AlreadyInjected)), "{again:?}");
}

fn has_sidecar(pod: &Value) -> bool {
    pod["spec"]["initContainers"].as_array().into_iter().flatten().any(|container| container["name"] == "remora")
}
