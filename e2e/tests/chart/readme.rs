//! Tests of the examples in the chart's README.

use std::collections::BTreeSet;

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{Objects, chart, merged, objects, render, render_as};

/// Returns the examples in YAML, with the section that each is in.
fn examples() -> Vec<(String, Value)> {
    let readme = std::fs::read_to_string(chart().join("README.md")).unwrap();
    let mut found = Vec::new();
    for section in readme.split("\n## ") {
        let title = section.lines().next().unwrap_or_default().to_owned();
        for block in section.split("```yaml\n").skip(1) {
            let text = block.split("```").next().unwrap();
            // An example within a list is indented.
            let indentation = text.len() - text.trim_start().len();
            let lines = text.lines().map(|line| line.get(indentation..).unwrap_or_default());
            let text: String = lines.flat_map(|line| [line, "\n"]).collect();
            for document in serde_yaml::Deserializer::from_str(&text) {
                let example = Value::deserialize(document).unwrap_or_else(|error| panic!("{title}: {error}"));
                found.push((title.clone(), example));
            }
        }
    }
    found
}

/// Returns the values that a section shows.
fn values(section: &str) -> Value {
    let known = |example: &Value| example.get("webhook").or_else(|| example.get("image")).is_some();
    let is_values = |example: &Value| known(example) || example.get("monitoring").is_some();
    let found = examples().into_iter().find(|(title, example)| title == section && is_values(example));
    found.unwrap_or_else(|| panic!("no values in {section:?}")).1
}

#[test]
fn values_in_examples_render() {
    for section in [
        "Mirror",
        "Monitoring",
        "Service meshes",
        "Managed control planes that cannot reach pods",
        "When a part is down",
    ] {
        assert_ne!(
            render_as("remora", &values(section)).unwrap(),
            render_as("remora", &json!({})).unwrap(),
            "{section}"
        );
    }
}

/// An example selects pods and Services by the names and labels that the chart gives them.
#[test]
fn objects_in_examples_fit_chart() {
    let examples = examples();
    let of = |kind: &str| &examples.iter().find(|(_, example)| example["kind"] == kind).unwrap().1;
    let rendered = render(&json!({"receiver": {"enabled": true}}));
    let backend = &of("HTTPRoute")["spec"]["rules"][0]["backendRefs"][0];
    let service = super::get(&rendered, "Service", backend["name"].as_str().unwrap());
    assert_eq!(service["spec"]["ports"][0]["port"], backend["port"]);
    let peer = &of("NetworkPolicy")["spec"]["ingress"][0]["from"][0];
    let labels = &super::get(&rendered, "Deployment", "remora-controller")["spec"]["template"]["metadata"]["labels"];
    for (label, value) in peer["podSelector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(labels[label], *value, "{label}");
    }
    let metadata: Value = serde_yaml::from_str(&std::fs::read_to_string(chart().join("Chart.yaml")).unwrap()).unwrap();
    let source = &of("Application")["spec"]["source"];
    assert_eq!(source["targetRevision"], metadata["version"]);
    render_as("remora", &source["helm"]["valuesObject"]).unwrap();
    let readme = std::fs::read_to_string(chart().join("README.md")).unwrap();
    let tag = format!(":{}", metadata["version"].as_str().unwrap());
    for copy in readme.lines().filter(|line| line.starts_with("crane copy") || line.starts_with("skopeo copy")) {
        assert_eq!(copy.matches(&tag).count(), 2, "{copy}");
    }
}

/// An AppProject refuses an installation with a kind that it does not list.
#[test]
fn readme_lists_kinds_without_namespace() {
    let readme = std::fs::read_to_string(chart().join("README.md")).unwrap();
    let section = readme.split("\n## GitOps\n").nth(1).unwrap();
    let listed = section.split("`clusterResourceWhitelist`: ").nth(1).unwrap().split("\n\n").next().unwrap();
    let listed: BTreeSet<&str> = listed.split('`').skip(1).step_by(2).collect();
    let on = |by: &str| merged(json!({"injection": {"by": by}}), &json!({"networkPolicy": {"enabled": true}}));
    let cluster_wide = |objects: &Objects| {
        let without = objects.iter().filter(|(_, object)| object["metadata"].get("namespace").is_none());
        let kinds = without.map(|((kind, _), object)| (kind.clone(), object["apiVersion"].clone()));
        kinds.collect::<Vec<_>>()
    };
    for by in ["Webhook", "AdmissionPolicy"] {
        for (kind, version) in cluster_wide(&objects(&render_as("remora", &on(by)).unwrap())) {
            let group = version.as_str().unwrap().split('/').next().unwrap().to_owned();
            assert!(listed.contains(kind.as_str()) && listed.contains(group.as_str()), "{kind} of {group}");
        }
    }
}
