//! Tests of a request's cost: lengths that are refused, and evaluations that exceed their budget.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use remora_compile::document;
use remora_compile::prune::{Rules, prune};
use serde_json::{Value, json};
use support::client::{get, post};
use support::environment::{CLIENT, CLIENT_KEY, written};
use support::server::{Running, start};
use support::volume::Directory;

const IDENTITIES: &str = "/api/v1/identities/";
const FLAGS: &str = "/ofrep/v1/evaluate/flags";
const METRIC: &str = r#"remora_sidecar_undecided_evaluations_total{environment="shop"}"#;

/// Serves one segment per pattern, each of which enables a flag of its own. The last segment compares the plan.
fn serving(patterns: &[&str], kind: &str) -> (Directory, Running) {
    let state = |id: usize, name: &str, enabled: bool| {
        json!({"feature": {"id": id, "name": name, "type": "STANDARD"}, "enabled": enabled, "feature_state_value": null,
               "django_id": id, "multivariate_feature_state_values": []})
    };
    let segment = |(id, (operator, property, value)): (usize, (&str, &str, &str))| {
        let condition = json!({"operator": operator, "property_": property, "value": value});
        let rule =
            json!({"type": "ALL", "conditions": [], "rules": [{"type": kind, "conditions": [condition], "rules": []}]});
        json!({"id": id, "name": format!("segment {id}"), "rules": [rule], "feature_states": [state(id, &format!("f{id}"), true)]})
    };
    let conditions = patterns.iter().map(|pattern| ("REGEX", "t", *pattern)).chain([("EQUAL", "plan", "pro")]);
    let segments: Vec<Value> = (1..).zip(conditions).map(segment).collect();
    let states: Vec<Value> = (1..=segments.len()).map(|id| state(id, &format!("f{id}"), false)).collect();
    let source = json!({"api_key": CLIENT_KEY, "id": 1, "name": "shop", "updated_at": "2026-11-21T00:00:00+00:00",
           "project": {"id": 1, "segments": segments}, "feature_states": states, "identity_overrides": []});
    let bytes = serde_json::to_vec(&source).unwrap();
    let pruned = prune(document::parse(&bytes).unwrap(), &Rules::default());
    let options = remora_compile::Options { environment: "shop", ..remora_compile::Options::default() };
    let compiled = remora_compile::compile_to_files_of(1_000_000, &pruned, &options).unwrap();
    let directory = Directory::new();
    let files = compiled.files.iter().map(|file| (file.name.as_str(), file.bytes.as_slice()));
    directory.volume("shop").publish(files);
    let running = start(directory.path(), |_| {});
    (directory, running)
}

/// Names of the enabled flags of an answer.
fn enabled(answer: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let on = answer["flags"].as_array().unwrap().iter().filter(|flag| flag["enabled"] == true);
    on.map(|flag| flag["feature"]["name"].as_str().unwrap().to_owned()).collect()
}

fn body(traits: &[(&str, &str)]) -> String {
    let traits: Vec<Value> =
        traits.iter().map(|(key, value)| json!({"trait_key": key, "trait_value": value})).collect();
    json!({"identifier": "x", "traits": traits}).to_string()
}

#[test]
fn catastrophic_pattern_is_undecided_and_other_segments_match() {
    let (_directory, server) = serving(&["(?=a)(a|a)*b", "(?=a)a+"], "ALL");
    // Nested groups use up the steps, and long values the open alternatives; the third case is within the budget.
    for (number, length) in [64, 2000, 4].into_iter().enumerate() {
        let value = "a".repeat(length) + if length == 4 { "b" } else { "" };
        let value = value.get(value.len().saturating_sub(2000)..).unwrap();
        let answer = post(server.data, IDENTITIES, &CLIENT, &body(&[("t", value), ("plan", "pro")]));
        assert_eq!(answer.status, 200);
        let on = enabled(&answer.body);
        assert_eq!(on, if length == 4 { vec!["f1", "f2", "f3"] } else { vec!["f2", "f3"] }, "{length}");
        assert_eq!(server.metric(METRIC), Some([1.0, 2.0, 2.0][number]), "{length}");
    }
}

#[test]
fn negated_catastrophic_pattern_does_not_match() {
    let (_directory, server) = serving(&["(?=a)(a|a)*b"], "NONE");
    let undecided = "a".repeat(64);
    for (value, on) in [(undecided.as_str(), vec!["f2"]), ("b", vec!["f1", "f2"]), ("ab", vec!["f2"])] {
        let answer = post(server.data, IDENTITIES, &CLIENT, &body(&[("t", value)]));
        // The last segment has the same `NONE` rule, so it matches a request without the plan.
        assert_eq!(enabled(&answer.body), on, "{value}");
    }
    assert_eq!(server.metric(METRIC), Some(1.0));
}

#[test]
fn thousand_catastrophic_patterns_share_one_budget() {
    let patterns: Vec<String> = (0..1000).map(|number| format!("(?=a)(a|a)*b{number}")).collect();
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let (_directory, server) = serving(&patterns, "ALL");
    let context = json!({"context": {"targetingKey": "x", "t": "a".repeat(64), "plan": "pro"}}).to_string();
    for path in [FLAGS.to_owned(), format!("{FLAGS}/f1000")] {
        assert_eq!(post(server.data, &path, &[], &context).status, 200);
    }
    // Evaluating one flag evaluates one segment, whose search has its own limit.
    assert_eq!(server.metric(METRIC), Some(2.0));
    // The next request has a full budget.
    let answer = post(server.data, IDENTITIES, &CLIENT, &body(&[("t", "ab7"), ("plan", "pro")]));
    assert_eq!(enabled(&answer.body), ["f8", "f1001"]);
    assert_eq!(server.metric(METRIC), Some(2.0));
}

/// Serves the small environment.
fn small() -> (Directory, Running) {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    let running = start(directory.path(), |_| {});
    (directory, running)
}

#[test]
fn identity_beyond_the_limits_of_length_is_refused() {
    let (_directory, server) = small();
    let text = |characters: usize| "ö".repeat(characters);
    let of = |identifier: usize, name: usize, value: usize| {
        let traits = [json!({"trait_key": text(name), "trait_value": text(value)})];
        json!({"identifier": text(identifier), "traits": traits})
    };
    for (sent, refused) in [
        (of(2000, 200, 2000), None),
        (of(2001, 1, 1), Some((json!(["body", "identifier"]), 2000))),
        (of(1, 201, 1), Some((json!(["body", "traits", 0, "trait_key"]), 200))),
        (of(1, 1, 2001), Some((json!(["body", "traits", 0, "trait_value"]), 2000))),
    ] {
        // The forms of serializers: without and with spaces, and with escapes.
        let plain = sent.to_string();
        let forms = [plain.clone(), plain.replace("\":", "\": ").replace(",\"", ", \""), plain.replace('ö', "\\u00f6")];
        for form in forms {
            let answer = post(server.data, IDENTITIES, &CLIENT, &form);
            let Some((place, limit)) = &refused else {
                assert_eq!(answer.status, 200, "{}", answer.body);
                continue;
            };
            assert_eq!(answer.status, 400, "{}", answer.body);
            let detail = &serde_json::from_str::<Value>(&answer.body).unwrap()["detail"][0];
            assert_eq!((&detail["type"], &detail["loc"]), (&json!("string_too_long"), place));
            assert_eq!(detail["msg"], format!("String should have at most {limit} characters"));
        }
    }
    for (characters, status) in [(2000, 200), (2001, 400)] {
        let path = format!("{IDENTITIES}?identifier={}", "%C3%B6".repeat(characters));
        assert_eq!(get(server.data, &path, &CLIENT).status, status, "{characters}");
    }
}

#[test]
fn context_beyond_the_limits_of_length_is_refused() {
    let (_directory, server) = small();
    let text = |characters: usize| "ö".repeat(characters);
    let of = |key: usize, name: usize, value: usize| {
        let mut context = json!({"targetingKey": text(key)});
        context[text(name)] = json!(text(value));
        context
    };
    let nested = |context: Value| json!({"targetingKey": "x", "traits": context});
    for (context, refused) in [
        (of(2000, 200, 2000), false),
        (nested(of(2000, 200, 2000)), false),
        (of(2001, 1, 1), true),
        (of(1, 201, 1), true),
        (of(1, 1, 2001), true),
        (nested(of(1, 201, 1)), true),
        (nested(of(1, 1, 2001)), true),
    ] {
        let plain = json!({"context": context}).to_string();
        for form in [plain.clone(), plain.replace('ö', "\\u00f6")] {
            for path in [FLAGS.to_owned(), format!("{FLAGS}/limit")] {
                let answer = post(server.data, &path, &[], &form);
                assert_eq!(answer.status, if refused { 400 } else { 200 }, "{}", answer.body);
                if refused {
                    let failure: Value = serde_json::from_str(&answer.body).unwrap();
                    assert_eq!(failure["errorCode"], "INVALID_CONTEXT");
                    assert!(failure["errorDetails"].as_str().unwrap().contains("characters"), "{failure}");
                }
            }
        }
    }
}

#[test]
fn body_with_a_member_repeated_17_times_is_refused() {
    let (_directory, server) = small();
    for (count, [identities, ofrep]) in [(16, [200, 200]), (17, [400, 400])] {
        let lists = vec![r#""traits":[{"trait_key":"plan","trait_value":"pro"}]"#; count].join(",");
        let answer = post(server.data, IDENTITIES, &CLIENT, &format!("{{\"identifier\":\"x\",{lists}}}"));
        assert_eq!(answer.status, identities, "{}", answer.body);
        let contexts = vec![r#""context":{"targetingKey":"x","plan":"pro"}"#; count].join(",");
        let answer = post(server.data, FLAGS, &[], &format!("{{{contexts}}}"));
        assert_eq!(answer.status, ofrep, "{}", answer.body);
    }
}
