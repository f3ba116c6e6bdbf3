//! Annotations of a pod and of its namespace.
//!
//! The input consists of lines `key: value`: first the annotations of the pod, then a line `---`, then those of the
//! namespace. A key without a `/` gets Remora's prefix. If the length of the input is a multiple of eight, the pod is a
//! dry run in the operator's own namespace.

use std::collections::BTreeMap;

use remora_operator::injection::PodContext;
use serde_json::json;

use crate::patch::{OWN_NAMESPACE, assert_applies_once};

/// Asserts that the decision about a pod with these annotations is consistent.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (pod, namespace) = text.split_once("\n---\n").unwrap_or((&text, ""));
    let defaults = annotations(namespace);
    let pod = json!({
        "metadata": {"annotations": annotations(pod)},
        "spec": {"containers": [{"name": "web", "ports": [{"containerPort": 8080}]}, {"name": "side", "env": []}]},
    });
    let context = if data.len().is_multiple_of(8) {
        PodContext { dry_run: true, ..PodContext::new(OWN_NAMESPACE) }
    } else {
        PodContext::new("shop")
    };
    assert_applies_once(&pod, &PodContext { defaults: Some(&defaults), ..context });
}

fn annotations(lines: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let (key, value) = line.split_once(": ")?;
        let key = if key.contains('/') { key.to_owned() } else { format!("remora.dev/{key}") };
        Some((key, value.to_owned()))
    };
    lines.split('\n').filter_map(pair).collect()
}
