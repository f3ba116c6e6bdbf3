//! Rules of each kind at the top level of a segment, where Flagsmith's dashboard writes ALL only, and below.

#![allow(clippy::unwrap_used)]

use remora_compile::document;
use remora_compile::prune::{Rules, Selection, prune};
use remora_compile::{Options, compile};
use remora_snapshot::{RequestState, Role, Snapshot, TraitValue};
use serde_json::{Value, json};

/// Returns a rule whose conditions are that these traits are set.
fn rule(kind: &str, traits: &[&str], rules: &[Value]) -> Value {
    let is_set = |name: &&str| json!({"operator": "IS_SET", "property_": name, "value": ""});
    json!({"type": kind, "conditions": traits.iter().map(is_set).collect::<Vec<_>>(), "rules": rules})
}

/// Returns, for each set of traits, whether an identity with them is in the segment with these rules.
fn members(rules: &Value) -> Vec<&'static str> {
    let state = |enabled: bool| json!({"feature": {"id": 1, "name": "flag"}, "enabled": enabled});
    let segment = json!({"id": 1, "name": "segment", "rules": rules, "feature_states": [state(true)]});
    let document = json!({"api_key": "key", "feature_states": [state(false)], "project": {"segments": [segment]}});
    let document = document::parse(document.to_string().as_bytes()).unwrap();
    let pruned = prune(document, &Rules::compile(&Selection::default()).unwrap());
    let compiled = compile(&pruned, &Options { environment: "e", ..Options::default() }).unwrap();
    let snapshot = Snapshot::read(compiled.files[0].bytes.as_slice()).unwrap();
    let is_member = |traits: &&str| {
        let (mut request, mut out) = (RequestState::default(), Vec::new());
        snapshot.identify(&mut request, "somebody");
        for name in traits.split_terminator(' ') {
            snapshot.set_trait(&mut request, name, TraitValue::Bool(true));
        }
        snapshot.write_flags(&mut request, Role::Client, &mut out);
        serde_json::from_slice::<Value>(&out).unwrap()[0]["enabled"] == true
    };
    ["", "a", "b", "a b"].into_iter().filter(is_member).collect()
}

#[test]
fn rules_of_each_kind_decide_at_the_top_level() {
    let both = ["a", "b"];
    for (rules, expected) in [
        (json!([rule("ALL", &both, &[])]), vec!["a b"]),
        (json!([rule("ANY", &both, &[])]), vec!["a", "b", "a b"]),
        (json!([rule("NONE", &both, &[])]), vec![""]),
        // All rules of a segment have to hold, of whatever kinds they are.
        (json!([rule("ANY", &both, &[]), rule("NONE", &["b"], &[])]), vec!["a"]),
        (json!([rule("NONE", &["a"], &[]), rule("NONE", &["b"], &[])]), vec![""]),
        // A rule without conditions holds.
        (json!([rule("ANY", &[], &[])]), vec!["", "a", "b", "a b"]),
        (json!([rule("NONE", &[], &[])]), vec!["", "a", "b", "a b"]),
    ] {
        assert_eq!(members(&rules), expected, "{rules}");
    }
}

#[test]
fn rules_below_a_rule_are_combined_by_its_kind() {
    for (kind, of_rules, of_both) in
        [("ALL", vec!["a b"], vec!["a b"]), ("ANY", vec!["a", "b", "a b"], vec!["a b"]), ("NONE", vec![""], vec![""])]
    {
        let below = |name: &str| rule("ANY", &[name], &[]);
        assert_eq!(members(&json!([rule(kind, &[], &[below("a"), below("b")])])), of_rules, "{kind}");
        // The conditions have to hold, too.
        assert_eq!(members(&json!([rule(kind, &["a"], &[below("b")])])), of_both, "{kind}");
    }
}
