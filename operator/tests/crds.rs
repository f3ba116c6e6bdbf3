//! Tests that the committed CustomResourceDefinitions, in `crds/` and in the chart, equal those that the code
//! generates.
//!
//! `REMORA_REWRITE=1 cargo test -p remora-operator --test crds` rewrites both.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::{fs, path::Path};

use kube::CustomResourceExt;
use remora_operator::api::{FeatureEnvironment, crds};
use serde_json::{Map, Value};

const HEADER: &str = "# Generated: REMORA_REWRITE=1 cargo test -p remora-operator --test crds\n";

/// Returns the chart's copy. It is a template because Helm does not upgrade files in a chart's `crds/` folder.
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
        "{} differs from what the code generates: run REMORA_REWRITE=1 cargo test -p remora-operator --test crds, and commit it",
        path.display()
    );
}

#[test]
fn committed_definitions_equal_generated_ones() {
    hold("crds/featureenvironments.yaml", &format!("{HEADER}{}", crds().unwrap()));
}

#[test]
fn definitions_of_chart_equal_generated_ones() {
    let crds = crds().unwrap();
    assert!(!crds.contains("{{"), "the chart's template would be cut in two");
    hold("charts/remora/templates/crds.yaml", &template(&crds));
}

#[test]
fn definitions_have_no_formats_unknown_to_api_server() {
    let text = crds().unwrap();
    for format in ["uint8", "uint16", "uint32", "uint64", "uint"] {
        assert!(!text.contains(&format!("format: {format}\n")), "{format}");
    }
}

/// Calls `visit` with every object of the schema.
fn walk(value: &Value, visit: &mut impl FnMut(&Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            visit(members);
            members.values().for_each(|member| walk(member, visit));
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        _ => {}
    }
}

#[test]
fn schema_validations_name_what_to_write_instead() {
    let mut count = 0;
    walk(&serde_json::to_value(FeatureEnvironment::crd()).unwrap(), &mut |members| {
        for rule in members.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
            count += 1;
            assert!(rule["message"].as_str().is_some_and(|message| message.len() > 20), "{rule}");
        }
    });
    assert!(count >= 6, "{count}");
}

/// `kubectl explain` shows the values of an enum without their own documentation.
#[test]
fn field_descriptions_name_every_enum_value() {
    let mut count = 0;
    let crd = serde_json::to_value(FeatureEnvironment::crd()).unwrap();
    walk(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], &mut |members| {
        let Some(properties) = members.get("properties").and_then(Value::as_object) else { return };
        for (name, property) in properties {
            // No field is named `enum` or `description`, so these keys are keywords of the schema.
            let description = property["description"].as_str().unwrap_or_default();
            assert!(description.len() > 15, "{name} has no description");
            for value in property["enum"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                count += 1;
                assert!(description.contains(&format!("`{value}`")), "{name} does not describe {value}: {description}");
            }
        }
    });
    assert!(count >= 15, "{count}");
}
