//! Tests of flags that a process overrides, in every dialect, over the sockets of the program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use remora_snapshot::model::{Split, Variant};
use remora_snapshot::{Written, write};
use serde_json::{Value, json};
use support::client::{Answer, call, get, post};
use support::environment::{CLIENT_KEY, SERVER_KEY, client_flags, environment, written};
use support::program::{Program, sidecar};
use support::server::await_condition;
use support::volume::{Directory, Volume};

const CLIENT: [(&str, &str); 1] = [("x-environment-key", CLIENT_KEY)];
const SERVER: [(&str, &str); 1] = [("x-environment-key", SERVER_KEY)];
const IDENTITIES: &str = "/api/v1/identities/";
const OFREP: &str = "/ofrep/v1/evaluate/flags";
const OVERRIDES: &str = r#"{"banner": {"value": "t\u0065sted"}, "dark mode": {"enabled": true, "value": 7},
    "secret": {"enabled": false}, "unknown": {"enabled": true}}"#;
const BANNER: &str =
    r#"{"feature":{"id":1,"name":"banner","type":"STANDARD"},"enabled":true,"feature_state_value":"tested"}"#;
const DARK_MODE: &str =
    r#"{"feature":{"id":2,"name":"dark mode","type":"STANDARD"},"enabled":true,"feature_state_value":7}"#;
const LIMIT: &str = r#"{"feature":{"id":3,"name":"limit","type":"STANDARD"},"enabled":true,"feature_state_value":1}"#;

fn serving(written: &Written, overrides: Option<&str>) -> (Directory, Volume, Program) {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    volume.publish_written(written);
    let mut command = sidecar(directory.path());
    command.args(overrides.into_iter().flat_map(|overrides| ["--overrides", overrides]));
    let program = Program::start(command);
    (directory, volume, program)
}

fn body(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

/// Returns the answer, which must name the overridden flags.
fn marked(answer: Answer) -> Answer {
    assert_eq!(answer.header("x-remora-overrides"), Some("banner,dark%20mode,secret"), "{answer:?}");
    answer
}

#[test]
fn overridden_flags_are_answered_in_flagsmiths_dialect() {
    let (_directory, _volume, sidecar) = serving(&written(1), Some(OVERRIDES));
    let all = format!("[{BANNER},{DARK_MODE},{LIMIT}]");
    let flags = |query: &str, key| marked(get(sidecar.data, &format!("/api/v1/flags/{query}"), key));
    assert_eq!(flags("", &CLIENT).body, all);
    for query in ["?feature=banner", "?feature=BANNER", "?feature="] {
        assert_eq!(flags(query, &CLIENT).body, BANNER, "{query}");
    }
    assert_eq!(flags("?feature=limit", &CLIENT).body, LIMIT);
    for absent in ["?feature=unknown", "?feature=secret"] {
        assert_eq!(flags(absent, &CLIENT).status, 404, "{absent}");
    }
    assert_eq!(body(&flags("?feature=secret", &SERVER))["enabled"], false);

    // Overrides precede those of segments and identities.
    for (identifier, plan) in [("x", "free"), ("x", "pro"), ("somebody", "pro")] {
        let traits = json!([{"trait_key": "plan", "trait_value": plan}]);
        let sent = json!({"identifier": identifier, "traits": traits}).to_string();
        let answer = marked(post(sidecar.data, IDENTITIES, &CLIENT, &sent));
        assert_eq!(answer.status, 200);
        assert!(answer.body.ends_with(&format!(r#","flags":{all}}}"#)), "{}", answer.body);
        assert!(answer.header("x-remora-assignment").is_some());
    }
    let answer = marked(get(sidecar.data, &format!("{IDENTITIES}?identifier=somebody"), &CLIENT));
    assert!(answer.body.ends_with(&format!(r#","flags":{all}}}"#)), "{}", answer.body);
    let one = format!("{IDENTITIES}?identifier=somebody&feature=banner");
    assert_eq!(marked(get(sidecar.data, &one, &CLIENT)).body, BANNER);
}

#[test]
fn overridden_flags_are_answered_by_ofrep_with_metadata() {
    let (_directory, _volume, sidecar) = serving(&written(1), Some(OVERRIDES));
    let sent = json!({"context": {"targetingKey": "somebody", "plan": "pro"}}).to_string();
    let expected = |id: u32, key: &str, value: Value| {
        json!({
            "key": key, "value": value, "reason": "TARGETING_MATCH", "variant": "",
            "metadata": {"featureId": id, "enabled": true, "overriddenBy": "pod"},
        })
    };
    let banner = expected(1, "banner", json!("tested"));
    let dark_mode = expected(2, "dark mode", json!(7));
    let one = |flag: &str, sent: &str| marked(post(sidecar.data, &format!("{OFREP}/{flag}"), &[], sent));
    assert_eq!(body(&one("banner", &sent)), banner);
    assert_eq!(body(&one("dark%20mode", "")), dark_mode);
    let limit = body(&one("limit", &sent));
    assert_eq!((&limit["value"], &limit["metadata"]), (&json!(1), &json!({"featureId": 3, "enabled": true})));
    assert_eq!(one("unknown", &sent).status, 404);
    let all = marked(post(sidecar.data, OFREP, &[], &sent));
    assert_eq!(body(&all)["flags"], json!([banner, dark_mode, limit]));
    let secret = marked(post(sidecar.data, &format!("{OFREP}/secret"), &SERVER, &sent));
    let expected = json!({"featureId": 4, "enabled": false, "overriddenBy": "pod"});
    assert_eq!((&body(&secret)["reason"], &body(&secret)["metadata"]), (&json!("DISABLED"), &expected));
}

#[test]
fn entity_tag_and_assignment_differ_from_those_without_overrides() {
    let (_one, _volume, plain) = serving(&written(1), None);
    let (_other, _volume, tested) = serving(&written(1), Some(OVERRIDES));
    let (_third, _volume, other) = serving(&written(1), Some(r#"{"banner": {"value": "other"}}"#));
    let bulk = |program: &Program, tag: &str| {
        call(program.data, "POST", OFREP, &[("if-none-match", tag), ("content-type", "application/json")], Some("{}"))
    };
    let tags = [&plain, &tested, &other].map(|program| {
        let answer = bulk(program, "\"none\"");
        [answer.header("etag").unwrap().to_owned(), answer.header("x-remora-assignment").unwrap().to_owned()]
    });
    for part in [0, 1] {
        assert!(tags[0][part] != tags[1][part] && tags[1][part] != tags[2][part], "{tags:?}");
    }
    assert_eq!(bulk(&tested, &tags[0][0]).status, 200, "an answer without overrides is no longer valid");
    assert_eq!(marked(bulk(&tested, &tags[1][0])).status, 304);
}

#[test]
fn overrides_apply_to_later_revisions_and_to_no_unknown_flag() {
    let (_directory, mut volume, sidecar) = serving(&written(1), Some(r#"{"unknown": {"enabled": true}}"#));
    let flags = |program: &Program| get(program.data, "/api/v1/flags/", &CLIENT);
    let answer = flags(&sidecar);
    assert_eq!((answer.body.as_str(), answer.header("x-remora-overrides")), (client_flags(1).as_str(), None));

    let mut later = environment("shop", CLIENT_KEY, 2);
    later.features[2].name = "unknown".to_owned();
    later.features[2].default.enabled = false;
    volume.publish_written(&write(&later, 1_000_000).unwrap());
    await_condition("another revision", || flags(&sidecar).header("x-remora-overrides") == Some("unknown"));
    assert_eq!(body(&get(sidecar.data, "/api/v1/flags/?feature=unknown", &CLIENT))["enabled"], true);
    let log = sidecar.stop().join("\n");
    assert!(log.contains(r#"this process overrides flags, for tests: ["unknown"]"#), "{log}");
}

#[test]
fn overridden_value_takes_the_place_of_a_split() {
    let mut split = environment("shop", CLIENT_KEY, 1);
    let variant = Variant { weight: 50.0, weight_text: "50".to_owned(), value: "2".to_owned(), key: None };
    split.features[2].default.split = Some(Split { seed: "1".to_owned(), variants: vec![variant] });
    let written = write(&split, 1_000_000).unwrap();
    for (overrides, expected) in [
        (r#"{"limit": {"value": 9}}"#, 200),
        (r#"{"limit": {"enabled": true}}"#, 400),
        (r#"{"limit": {"enabled": false}}"#, 200),
    ] {
        let (_directory, _volume, sidecar) = serving(&written, Some(overrides));
        let answer = post(sidecar.data, &format!("{OFREP}/limit"), &[], "{}");
        assert_eq!(answer.status, expected, "{overrides}: {answer:?}");
    }
}

#[test]
fn invalid_overrides_end_the_program_with_the_grammar() {
    let mut command = sidecar(std::path::Path::new("."));
    let output = command.args(["--overrides", r#"{"banner": true}"#]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(64) && said.contains(r#"such as {"banner": {"enabled": true"#), "{said}");
}
