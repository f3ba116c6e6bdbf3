//! Tests the findings about a document that compiles: unsupported parts, and possible improvements.

#![allow(clippy::unwrap_used)]

use remora_compile::document;
use remora_compile::prune::{Rules, prune};
use remora_compile::{Compiled, EnvironmentFlags, Error, Finding, Options, compile};
use serde_json::{Value, json};

fn findings(segments: &Value, features: &Value, identities: &Value) -> Vec<Finding> {
    compiled(segments, features, identities).unwrap().findings
}

fn compiled(segments: &Value, features: &Value, identities: &Value) -> Result<Compiled, Error> {
    let document = json!({"api_key": "k", "project": {"segments": segments}, "feature_states": features, "identity_overrides": identities});
    let document = document::parse(document.to_string().as_bytes()).unwrap();
    let pruned = prune(document, &Rules::default());
    let options = Options {
        environment: "e",
        server_keys: &[],
        environment_flags: EnvironmentFlags::Plain,
        ..Options::default()
    };
    compile(&pruned, &options)
}

fn feature(id: u32, name: &str) -> Value {
    json!({"feature": {"id": id, "name": name}, "enabled": true, "feature_state_value": null})
}

fn segment(operator: &str, value: &Value, property: &str) -> Value {
    let condition = json!({"operator": operator, "value": value, "property_": property});
    json!({"id": 3, "name": "odd", "rules": [{"type": "ALL", "conditions": [condition]}], "feature_states": [feature(1, "a")]})
}

#[test]
fn condition_that_cannot_be_evaluated_is_reported_with_its_segment() {
    for (operator, value, property, told) in [
        ("REGEX", json!("(a"), "t", "a ( that is not closed"),
        ("REGEX", json!(r"\N{DIGIT ONE}"), "t", "write the character itself"),
        ("MODULO", json!("0|1"), "t", "divides by zero"),
        ("MODULO", json!("two"), "t", "write divisor|remainder"),
        ("IN", Value::Null, "t", "IN on \"t\": it has no value"),
        ("PERCENTAGE_SPLIT", json!("half"), "", "write a percentage"),
        ("EQUAL", json!("x"), "$..identifier", "the JSONPath"),
        ("SOUNDS_LIKE", json!("x"), "t", "the operator is unknown"),
        ("EQUAL", json!(["x"]), "t", "only IN can have"),
    ] {
        let found = findings(&json!([segment(operator, &value, property)]), &json!([feature(1, "a")]), &json!([]));
        assert_eq!(found.len(), 1, "{operator} {value}: {found:?}");
        assert_eq!(found[0].subject, "segment \"odd\" (3)");
        assert!(found[0].message.contains(told), "{operator} {value}: {}", found[0].message);
    }
}

#[test]
fn segment_of_a_cohort_is_reported_as_without_members() {
    let cohort = "flagsmith_cohort_21f2ca9a-f8c7-4cc9-9d19-82f24ad1182e";
    for operator in ["IS_SET", "IS_NOT_SET"] {
        let used = segment(operator, &Value::Null, cohort);
        let found = findings(&json!([used]), &json!([feature(1, "a")]), &json!([]));
        assert_eq!((found.len(), found[0].subject.as_str()), (1, "segment \"odd\" (3)"), "{found:?}");
        let message = &found[0].message;
        assert!(
            message.contains("cohort") && message.contains(cohort) && message.contains("nobody is a member"),
            "{message}"
        );
    }
    let other = segment("IS_SET", &Value::Null, "cohort");
    assert!(findings(&json!([other]), &json!([feature(1, "a")]), &json!([])).is_empty());
}

#[test]
fn features_with_same_id_are_refused_with_place() {
    let error = compiled(&json!([]), &json!([feature(1, "a"), feature(2, "b"), feature(1, "c")]), &json!([]));
    let message = error.unwrap_err().to_string();
    assert!(message.starts_with("feature_states[2]: feature \"c\" has the id 1 of another feature"), "{message}");
    // The later state of a feature takes the place of the earlier one, as in Flagsmith's engine.
    compiled(&json!([]), &json!([feature(1, "a"), feature(1, "a")]), &json!([])).unwrap();
}

#[test]
fn feature_type_longer_than_any_is_refused_with_the_place() {
    let with_type = |length: usize| {
        let mut odd = feature(1, "a");
        odd["feature"]["type"] = json!("x".repeat(length));
        compiled(&json!([]), &json!([feature(2, "b"), odd]), &json!([]))
    };
    with_type(64).unwrap();
    let message = with_type(65).unwrap_err().to_string();
    assert!(message.starts_with("feature_states[1]: the type of feature \"a\" is too long"), "{message}");
    assert!(!message.contains("xxx"), "{message}");
}

#[test]
fn pattern_that_may_exceed_its_steps_is_a_finding_with_segment_and_property() {
    let found =
        findings(&json!([segment("REGEX", &json!("(?=a)(a|a)*b"), "email")]), &json!([feature(1, "a")]), &json!([]));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].subject, "segment \"odd\" (3)");
    let message = &found[0].message;
    assert!(message.starts_with("REGEX on \"email\": ") && message.contains("262144 steps of one search"), "{message}");
    // An automaton takes one step for each byte.
    for pattern in ["(a|a)*b", "(a+)b\\1$"] {
        let found =
            findings(&json!([segment("REGEX", &json!(pattern), "email")]), &json!([feature(1, "a")]), &json!([]));
        assert!(found.is_empty(), "{pattern}: {found:?}");
    }
}

#[test]
fn patterns_that_together_may_exceed_the_steps_of_a_request_are_a_finding() {
    let segments = |count: usize| -> Vec<Finding> {
        let segments: Vec<Value> = (0..count)
            .map(|number| {
                let mut own = segment("REGEX", &json!(format!("(?=.*{number})[a-z]+$")), "email");
                own["id"] = json!(number);
                own
            })
            .collect();
        findings(&json!(segments), &json!([feature(1, "a")]), &json!([]))
    };
    assert!(segments(5).is_empty());
    let found = segments(200);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].subject == "segments" && found[0].message.contains("524288 of one request"), "{found:?}");
}

#[test]
fn finding_messages_are_short_and_escaped_and_hold_no_value() {
    let odd = format!("{}\n\u{1b}[31m", "x".repeat(5_000));
    for (operator, value) in [
        ("REGEX", "(canary"),
        ("REGEX", "(?P<canary>a)(?P<canary>b)"),
        ("MODULO", "canary"),
        ("PERCENTAGE_SPLIT", "canary"),
        ("canary", "1"),
    ] {
        let found = findings(&json!([segment(operator, &json!(value), &odd)]), &json!([feature(1, "a")]), &json!([]));
        let message = &found[0].message;
        assert!(message.len() < 500 && !message.contains(['\n', '\u{1b}']), "{message}");
        assert!(!message.contains("canary"), "{message}");
    }
}

#[test]
fn improvable_condition_is_reported() {
    let long = "x".repeat(300);
    let identities: Vec<Value> = (0..5_001)
        .map(|n| json!({"identifier": format!("{n}"), "identity_features": [feature(1, "a")]}))
        .chain([json!({"identifier": long, "identity_features": [feature(1, "a")]})])
        .collect();
    let unused = json!({"id": 4, "name": "unused", "rules": [], "feature_states": []});
    let mut large = feature(2, "b");
    large["feature_state_value"] = json!("y".repeat(30_000));
    let found = findings(&json!([unused]), &json!([feature(1, "a"), large]), &json!(identities));
    let told = |subject: &str, part: &str| found.iter().any(|f| f.subject == subject && f.message.contains(part));
    assert!(told("feature \"a\"", "5002 identities"), "{found:?}");
    assert!(told("identity overrides", "the longest has 300"), "{found:?}");
    assert!(told("feature \"b\"", "30002 bytes"), "{found:?}");
    assert!(
        told("segments", "1 of 1 override no feature of this environment") && told("segments", "\"unused\""),
        "{found:?}"
    );
    assert!(told("features", "1 of 2 have the same value for everybody"), "{found:?}");
    assert!(!found.iter().any(|f| f.message.contains(&long)), "a message holds an identifier");
}

#[test]
fn document_without_identity_overrides_by_its_setting_is_reported() {
    let told = |setting: Value| {
        let document = json!({
            "api_key": "k", "project": {}, "feature_states": [feature(1, "a")],
            "use_identity_overrides_in_local_eval": setting,
        });
        let document = document::parse(document.to_string().as_bytes()).unwrap();
        let pruned = prune(document, &Rules::default());
        let options = Options {
            environment: "e",
            server_keys: &[],
            environment_flags: EnvironmentFlags::Plain,
            ..Options::default()
        };
        let findings = compile(&pruned, &options).unwrap().findings;
        findings.iter().any(|finding| finding.message.contains("switch it on"))
    };
    assert!(told(json!(false)));
    assert!(!told(json!(true)) && !told(Value::Null));
}

#[test]
fn name_of_segment_beyond_limit_of_flagsmith_is_refused_with_its_place() {
    let named = |length: usize| {
        let mut odd = segment("EQUAL", &json!("x"), "t");
        odd["name"] = json!("ä".repeat(length));
        compiled(&json!([odd]), &json!([feature(1, "a")]), &json!([]))
    };
    assert!(named(2_000).is_ok());
    let refusal = named(2_001).unwrap_err().to_string();
    assert!(refusal.starts_with("project.segments[0]: the name of segment"), "{refusal}");
    assert!(refusal.contains("2001 characters") && refusal.contains("write a shorter one"), "{refusal}");
    assert!(refusal.len() < 1_000, "{refusal}");
}
