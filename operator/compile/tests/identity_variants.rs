//! Identity overrides with variants (the dashboard's "select variation"): the answers of every dialect have the
//! variant, and so has the explanation.

#![allow(clippy::unwrap_used)]

use remora_compile::document;
use remora_compile::prune::{Rules, prune};
use remora_compile::{Options, compile};
use remora_snapshot::{Decision, RequestState, Role, Snapshot};
use serde_json::{Value, json};

/// A document whose feature `color` is overridden for `somebody` with these variants.
fn document(variants: &Value) -> Value {
    let state = json!({"feature": {"id": 1, "name": "color", "type": "MULTIVARIATE"}, "enabled": true, "feature_state_value": "grey",
        "django_id": 5, "multivariate_feature_state_values": []});
    let mut own = state.clone();
    own["feature_state_value"] = json!("own");
    own["multivariate_feature_state_values"] = variants.clone();
    let read = json!({"operator": "EQUAL", "value": "red key", "property_": "$.flags.color.variant"});
    let mut seen = json!({"feature": {"id": 2, "name": "seen"}, "enabled": true, "feature_state_value": null});
    let hidden = json!({"feature": {"id": 2, "name": "seen"}, "enabled": false, "feature_state_value": null});
    seen["enabled"] = json!(true);
    json!({"api_key": "key", "feature_states": [state, hidden],
        "project": {"segments": [{"id": 9, "name": "readers", "rules": [{"type": "ALL", "conditions": [read]}], "feature_states": [seen]}]},
        "identity_overrides": [{"identifier": "somebody", "identity_features": [own]}]})
}

fn option(id: u32, share: f64, value: &str, key: Option<&str>) -> Value {
    json!({"id": id, "percentage_allocation": share, "multivariate_feature_option": {"value": value, "key": key}})
}

fn with_snapshot(variants: &Value, check: impl FnOnce(&Snapshot<&[u8]>)) {
    let document = document::parse(document(variants).to_string().as_bytes()).unwrap();
    let pruned = prune(document, &Rules::default());
    let compiled = compile(&pruned, &Options { environment: "e", ..Options::default() }).unwrap();
    check(&Snapshot::read(compiled.files[0].bytes.as_slice()).unwrap());
}

fn flags(snapshot: &Snapshot<&[u8]>, identifier: &str) -> Value {
    let (mut subject, mut out) = (RequestState::default(), Vec::new());
    snapshot.identify(&mut subject, identifier);
    snapshot.write_flags(&mut subject, Role::Client, &mut out);
    serde_json::from_slice(&out).unwrap()
}

fn ofrep(snapshot: &Snapshot<&[u8]>, identifier: &str) -> Value {
    let (mut subject, mut out) = (RequestState::default(), Vec::new());
    snapshot.identify(&mut subject, identifier);
    snapshot.write_ofrep_flag(&mut subject, Role::Client, "color", &mut out);
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn selected_variation_is_in_every_answer() {
    with_snapshot(&json!([option(3, 100.0, "red", Some("red key"))]), |snapshot| {
        assert_eq!(flags(snapshot, "somebody")[0]["feature_state_value"], "red");
        assert_eq!(flags(snapshot, "somebody")[1]["enabled"], true, "a condition reads the variant");
        assert_eq!(flags(snapshot, "nobody")[0]["feature_state_value"], "grey");
        let answer = ofrep(snapshot, "somebody");
        assert_eq!(
            (&answer["value"], &answer["variant"], &answer["reason"]),
            (&json!("red"), &json!("red key"), &json!("SPLIT"))
        );
        let mut subject = RequestState::default();
        snapshot.identify(&mut subject, "somebody");
        let explanation = snapshot.explain(&mut subject).swap_remove(0);
        assert_eq!((explanation.value.as_str(), explanation.variant.as_deref()), ("\"red\"", Some("\"red key\"")));
        assert_eq!(
            (explanation.reason.as_str(), explanation.decision),
            ("SPLIT; weight=100.0", Decision::IdentityOverride)
        );
    });
}

#[test]
fn variant_without_a_key_has_no_name() {
    with_snapshot(&json!([option(3, 100.0, "red", None)]), |snapshot| {
        let answer = ofrep(snapshot, "somebody");
        assert_eq!((&answer["value"], &answer["variant"]), (&json!("red"), &json!("")));
    });
}

#[test]
fn override_without_percentages_is_the_control() {
    with_snapshot(&json!([option(3, 0.0, "red", Some("red key")), option(4, 0.0, "blue", None)]), |snapshot| {
        assert_eq!(flags(snapshot, "somebody")[0]["feature_state_value"], "own");
        assert_eq!(flags(snapshot, "somebody")[1]["enabled"], false);
        let answer = ofrep(snapshot, "somebody");
        assert_eq!(
            (&answer["value"], &answer["variant"], &answer["reason"]),
            (&json!("own"), &json!("control"), &json!("TARGETING_MATCH"))
        );
    });
}

#[test]
fn switched_variation_changes_the_revision() {
    let revision = |variants: &Value| {
        let mut revision = None;
        with_snapshot(variants, |snapshot| revision = Some(snapshot.revision()));
        revision.unwrap()
    };
    let red = revision(&json!([option(3, 100.0, "same", Some("red"))]));
    assert_ne!(red, revision(&json!([option(4, 100.0, "same", Some("blue"))])));
    assert_eq!(red, revision(&json!([option(3, 100.0, "same", Some("red"))])));
}
