//! JSONPaths: what a property refers to is what RFC 9535 says, and finding that out ends.
//!
//! The input is the property of three conditions.

use remora_operator::compile::{self, Options};
use remora_snapshot::{RequestState, TraitValue};
use serde_json::{Value, json};
use serde_json_path::JsonPath;

use crate::{assert_printable, pipeline};

/// Longer paths are not shown to the library, which knows no limits.
const MOST_FOR_LIBRARY: usize = 120;

pub(crate) fn run(data: &[u8]) {
    let property = String::from_utf8_lossy(data);
    let state = |id: i64, enabled: bool| json!({"feature": {"id": id, "name": format!("f{id}")}, "enabled": enabled});
    let segment = |id: i64, operator: &str, value: &str| {
        json!({"id": id, "name": format!("s{id}"), "feature_states": [state(id, true)], "rules": [
            {"type": "ALL", "conditions": [{"operator": operator, "property_": property, "value": value}]},
        ]})
    };
    let document = json!({
        "api_key": "k", "name": "E", "feature_states": [state(1, false), state(2, false), state(3, false)],
        "project": {"segments": [segment(1, "IS_SET", ""), segment(2, "EQUAL", "x"), segment(3, "PERCENTAGE_SPLIT", "50")]},
    });
    let pruned = pipeline::parsed(document.to_string().as_bytes()).unwrap();
    let compiled = compile::compile(&pruned, &Options::default()).unwrap();
    compiled.findings.iter().for_each(|finding| assert_printable(&finding.to_string()));
    let snapshot = pipeline::read(&compiled);
    let mut request = RequestState::default();
    for traits in [&[][..], &[("a", "x")], &[("a", "y"), (&property, "x")]] {
        request.clear();
        snapshot.identify(&mut request, "x");
        for (name, value) in traits {
            snapshot.set_trait(&mut request, name, TraitValue::String(value));
        }
        let flags = snapshot.explain(&mut request);
        let told = [flags[0].enabled, flags[1].enabled];
        let has_finding = compiled.findings.iter().any(|finding| finding.message.contains("JSONPath"));
        if has_finding
            || property.len() > MOST_FOR_LIBRARY
            || property.contains("flags")
            || property.contains("segments")
            || property.contains("features")
        {
            continue;
        }
        let found = wanted(&property, traits);
        assert_eq!(
            told,
            [found.is_some(), found.as_ref() == Some(&json!("x"))],
            "{property:?} with {traits:?}: {found:?}"
        );
    }
}

/// What a property is: the trait of that name, or else what its path finds.
fn wanted(property: &str, traits: &[(&str, &str)]) -> Option<Value> {
    if let Some((_, value)) = traits.iter().rfind(|(name, _)| *name == property) {
        return Some(json!(value));
    }
    if !property.starts_with("$.") {
        return None;
    }
    let traits: serde_json::Map<_, _> = traits.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let context = json!({
        "environment": {"key": "k", "name": "E"}, "identity": {"identifier": "x", "key": "k_x", "traits": traits},
    });
    let path = JsonPath::parse(property).ok()?;
    let found = path.query(&context).first()?;
    let is_scalar = !(found.is_null() || found.is_array() || found.is_object());
    is_scalar.then(|| found.clone())
}
