//! JSONPath: a property refers to the value that RFC 9535 defines, and its evaluation ends.
//!
//! The input is the property, which all three conditions of the document read.

use remora_compile::Options;
use remora_compile::document::{self, Document};
use remora_compile::prune::Pruned;
use remora_snapshot::{RequestState, TraitValue};
use serde_json::{Value, json};
use serde_json_path::JsonPath;

use crate::{assert_printable, pipeline};

/// Largest length of a path in bytes that is compared with the library, which has no limits of its own.
const MOST_FOR_LIBRARY: usize = 120;

/// Asserts that a property refers to the value that RFC 9535 defines.
pub fn run(data: &[u8]) {
    let property = String::from_utf8_lossy(data);
    let compiled = remora_compile::compile(&pruned(&property), &Options::default()).unwrap();
    compiled.findings.iter().for_each(|finding| assert_printable(&finding.to_string()));
    let snapshot = pipeline::read(&compiled);
    let has_finding = compiled.findings.iter().any(|finding| finding.message.contains("JSONPath"));
    let is_held = !has_finding
        && property.len() <= MOST_FOR_LIBRARY
        && !["flags", "segments", "features"].iter().any(|word| property.contains(word));
    let path = is_held.then(|| Path::of(&property));
    let mut request = RequestState::default();
    for traits in [&[][..], &[("a", "x")], &[("a", "y"), (&property, "x")]] {
        request.clear();
        snapshot.identify(&mut request, "x");
        for (name, value) in traits {
            snapshot.set_trait(&mut request, name, TraitValue::String(value));
        }
        let flags = snapshot.explain(&mut request);
        let told = [flags[0].enabled, flags[1].enabled];
        let Some(path) = &path else { continue };
        let found = path.wanted(&property, traits);
        assert_eq!(
            told,
            [found.is_some(), found.as_ref() == Some(&json!("x"))],
            "{property:?} with {traits:?}: {found:?}"
        );
    }
}

/// Returns a document whose three conditions read this property.
fn pruned(property: &str) -> Pruned {
    thread_local! {
        static DOCUMENT: Document = document();
    }
    let mut document = DOCUMENT.with(Document::clone);
    for segment in &mut document.project.segments {
        property.clone_into(&mut segment.rules[0].conditions[0].property);
    }
    pipeline::whole(document)
}

fn document() -> Document {
    let state = |id: i64, enabled: bool| json!({"feature": {"id": id, "name": format!("f{id}")}, "enabled": enabled});
    let segment = |id: i64, operator: &str, value: &str| {
        json!({"id": id, "name": format!("s{id}"), "feature_states": [state(id, true)], "rules": [
            {"type": "ALL", "conditions": [{"operator": operator, "property_": "", "value": value}]},
        ]})
    };
    let document = json!({
        "api_key": "k", "name": "E", "feature_states": [state(1, false), state(2, false), state(3, false)],
        "project": {"segments": [segment(1, "IS_SET", ""), segment(2, "EQUAL", "x"), segment(3, "PERCENTAGE_SPLIT", "50")]},
    });
    document::parse(document.to_string().as_bytes()).unwrap()
}

/// Meaning of a property for the library.
enum Path {
    /// The name of a trait.
    Name,
    /// A path. `None`: the property begins like a path and is not valid.
    Query(Option<JsonPath>),
}

impl Path {
    fn of(property: &str) -> Path {
        if property.starts_with("$.") { Path::Query(JsonPath::parse(property).ok()) } else { Path::Name }
    }

    /// Returns the expected value of a property: the trait of this name, else the value at its path.
    fn wanted(&self, property: &str, traits: &[(&str, &str)]) -> Option<Value> {
        if let Some((_, value)) = traits.iter().rfind(|(name, _)| *name == property) {
            return Some(json!(value));
        }
        let Path::Query(Some(path)) = self else { return None };
        let traits: serde_json::Map<_, _> =
            traits.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let context = json!({
            "environment": {"key": "k", "name": "E"}, "identity": {"identifier": "x", "key": "k_x", "traits": traits},
        });
        let found = path.query(&context).first()?;
        let is_scalar = !(found.is_null() || found.is_array() || found.is_object());
        is_scalar.then(|| found.clone())
    }
}
