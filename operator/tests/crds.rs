//! The committed CustomResourceDefinitions are those of the code, beside it and in the chart.
//!
//! `REMORA_REWRITE=1 cargo test -p remora-operator --test crds` writes both anew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::{fs, path::Path};

use kube::CustomResourceExt;
use remora_operator::api::{FeatureEnvironment, crds};

const HEADER: &str = "# Generated: REMORA_REWRITE=1 cargo test -p remora-operator --test crds\n";

/// The chart's copy: Helm upgrades templates, which it does not do for a chart's crds/ folder.
fn template(crds: &str) -> String {
    let annotated = crds.replacen(
        "metadata:\n",
        "metadata:\n  {{- if .Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n  labels:\n    {{- include \"remora.labels\" . | nindent 4 }}\n",
        1,
    );
    format!("{{{{- if .Values.crds.enabled }}}}\n{HEADER}{annotated}{{{{- end }}}}\n")
}

fn hold(path: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("REMORA_REWRITE").is_some() {
        fs::write(&path, expected).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == expected,
        "{} is not what the code says: run REMORA_REWRITE=1 cargo test -p remora-operator --test crds, and commit it",
        path.display()
    );
}

#[test]
fn committed_definitions_are_those_of_the_code() {
    hold("crds/featureenvironments.yaml", &format!("{HEADER}{}", crds().unwrap()));
}

#[test]
fn the_charts_definitions_are_those_of_the_code() {
    let crds = crds().unwrap();
    assert!(!crds.contains("{{"), "the chart's template would be cut in two");
    hold("charts/remora/templates/crds.yaml", &template(&crds));
}

#[test]
fn definitions_have_no_formats_that_api_servers_warn_of() {
    let text = crds().unwrap();
    for format in ["uint8", "uint16", "uint32", "uint64", "uint"] {
        assert!(!text.contains(&format!("format: {format}\n")), "{format}");
    }
}

/// Every validation says what to write instead.
#[test]
fn validations_have_messages() {
    fn walk(value: &serde_json::Value, count: &mut usize) {
        match value {
            serde_json::Value::Object(members) => {
                for rule in
                    members.get("x-kubernetes-validations").and_then(|rules| rules.as_array()).into_iter().flatten()
                {
                    *count += 1;
                    assert!(rule["message"].as_str().is_some_and(|message| message.len() > 20), "{rule}");
                }
                members.values().for_each(|member| walk(member, count));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| walk(item, count)),
            _ => {}
        }
    }
    let mut count = 0;
    walk(&serde_json::to_value(FeatureEnvironment::crd()).unwrap(), &mut count);
    assert!(count >= 6, "{count}");
}
