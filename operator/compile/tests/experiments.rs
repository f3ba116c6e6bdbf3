//! Experiments: flags of identities have the members by which SDKs record exposures; all other bytes stay as they are.

#![allow(clippy::unwrap_used)]

use remora_compile::document;
use remora_compile::prune::{Rules, prune};
use remora_compile::{Compiled, Options, compile};
use remora_snapshot::{RequestState, Role, Snapshot, TraitValue};
use serde_json::{Value, json};

const FLAG: &str = r#"{"feature":{"id":1,"name":"color","type":"MULTIVARIATE"},"enabled":true,"feature_state_value":"#;
const OTHER: &str = r#"{"feature":{"id":2,"name":"size","type":"STANDARD"},"enabled":true,"feature_state_value":7}"#;

fn metadata(in_experiment: bool) -> Value {
    json!({"experiment": {"id": 3, "name": "Bl\u{fc}e", "in_experiment": in_experiment}, "later": [1]})
}

fn shown(in_experiment: bool) -> String {
    format!(r#"{{"experiment":{{"id":3,"name":"Blüe","in_experiment":{in_experiment}}}}}"#)
}

fn state(id: u32, name: &str, kind: &str, value: &Value) -> Value {
    json!({"feature": {"id": id, "name": name, "type": kind}, "enabled": true, "feature_state_value": value, "django_id": id})
}

fn segment(name: &str, plan: &str, state: &Value) -> Value {
    let condition = json!({"operator": "EQUAL", "value": plan, "property_": "plan"});
    json!({"id": plan.len(), "name": name, "rules": [{"type": "ALL", "conditions": [condition]}], "feature_states": [state]})
}

/// A document with an experiment on `color`: the rollout for the plan `beta` splits between `red` and the control, and
/// the plan `staff` gets a plain override.
fn document(with_metadata: bool, rollout: &str) -> Value {
    let variant =
        json!({"id": 1, "percentage_allocation": 50.0, "multivariate_feature_option": {"value": "red", "key": "r"}});
    let mut color = state(1, "color", "MULTIVARIATE", &json!("grey"));
    let mut beta = state(1, "color", "MULTIVARIATE", &json!("control value"));
    beta["multivariate_feature_state_values"] = json!([variant]);
    let mut staff = state(1, "color", "MULTIVARIATE", &json!("staff"));
    if with_metadata {
        for (state, in_experiment) in [(&mut color, false), (&mut beta, true), (&mut staff, false)] {
            state["metadata"] = metadata(in_experiment);
        }
    }
    let own = state(1, "color", "MULTIVARIATE", &json!("own"));
    json!({"api_key": "key", "feature_states": [color, state(2, "size", "STANDARD", &json!(7))],
        "project": {"segments": [segment(rollout, "beta", &beta), segment("staff", "staff", &staff)]},
        "identity_overrides": [{"identifier": "somebody", "identity_features": [own]}]})
}

fn compiled(document: &Value) -> Compiled {
    let document = document::parse(document.to_string().as_bytes()).unwrap();
    let pruned = prune(document, &Rules::default());
    compile(&pruned, &Options { environment: "e", ..Options::default() }).unwrap()
}

/// Returns the flag `color` of an identity as bytes, and the digest of all flags.
fn color(compiled: &Compiled, identifier: &str, plan: &str) -> (String, u64) {
    let snapshot = Snapshot::read(compiled.files[0].bytes.as_slice()).unwrap();
    let (mut request, mut out) = (RequestState::default(), Vec::new());
    snapshot.identify(&mut request, identifier);
    snapshot.set_trait(&mut request, "plan", TraitValue::String(plan));
    let digest = snapshot.write_flags(&mut request, Role::Client, &mut out);
    let all = String::from_utf8(out).unwrap();
    let flag = all.strip_prefix('[').and_then(|all| all.strip_suffix(&format!(",{OTHER}]"))).unwrap();
    let mut alone = Vec::new();
    snapshot.write_flag(&mut request, Role::Client, "color", &mut alone).unwrap();
    assert_eq!(String::from_utf8(alone).unwrap(), flag);
    (flag.to_owned(), digest)
}

#[test]
fn flag_of_an_experiment_has_variant_and_metadata() {
    let compiled = compiled(&document(true, "any"));
    let flag = |value: &str, variant: &str, metadata: Option<bool>| {
        let metadata = metadata.map_or(String::new(), |metadata| format!(r#","metadata":{}"#, shown(metadata)));
        format!(r#"{FLAG}"{value}","variant":"{variant}"{metadata}}}"#)
    };
    let (red, control) = (flag("red", "r", Some(true)), flag("control value", "control", Some(true)));
    let mut seen = [0, 0];
    let mut digests = std::collections::HashSet::new();
    for number in 0..50 {
        let (answer, digest) = color(&compiled, &format!("user-{number}"), "beta");
        assert!(answer == red || answer == control, "{answer}");
        seen[usize::from(answer == red)] += 1;
        digests.insert(digest);
    }
    assert!(seen[0] > 0 && seen[1] > 0 && digests.len() == 2, "{seen:?} {digests:?}");
    assert_eq!(color(&compiled, "x", "free").0, flag("grey", "control", Some(false)));
    assert_eq!(color(&compiled, "x", "staff").0, flag("staff", "control", Some(false)));
    assert_eq!(color(&compiled, "somebody", "beta").0, flag("own", "control", None));
}

#[test]
fn rollout_segment_without_metadata_gives_the_variant() {
    let compiled = compiled(&document(false, "experiment-12-rollout"));
    assert_eq!(color(&compiled, "x", "free").0, format!(r#"{FLAG}"grey","variant":"control"}}"#));
    for name in ["experiment--rollout", "experiment-x-rollout", "my experiment-1-rollout"] {
        let plain = self::compiled(&document(false, name));
        assert_eq!(color(&plain, "x", "free").0, format!(r#"{FLAG}"grey"}}"#), "{name}");
    }
}

#[test]
fn environment_flags_have_no_members_of_experiments() {
    for document in [document(true, "any"), document(false, "any")] {
        let compiled = compiled(&document);
        let snapshot = Snapshot::read(compiled.files[0].bytes.as_slice()).unwrap();
        let flags = String::from_utf8(snapshot.flags(Role::Client).to_vec()).unwrap();
        assert_eq!(flags, format!(r#"[{FLAG}"grey"}},{OTHER}]"#));
    }
}

#[test]
fn variant_with_equal_value_changes_the_digest() {
    let mut same = document(true, "any");
    let options = &mut same["project"]["segments"][0]["feature_states"][0];
    options["multivariate_feature_state_values"][0]["multivariate_feature_option"]["value"] = json!("control value");
    let compiled = compiled(&same);
    let digests: std::collections::HashSet<u64> =
        (0..50).map(|number| color(&compiled, &format!("user-{number}"), "beta").1).collect();
    assert_eq!(digests.len(), 2);
}
