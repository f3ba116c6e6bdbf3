//! Tests of flags that a process overrides, in every dialect, over the sockets of the program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::time::SystemTime;

use hmac_sha256::HMAC;
use remora_snapshot::model::{Split, Variant};
use remora_snapshot::{Written, write};
use serde_json::{Value, json};
use support::client::{Answer, call, get, post};
use support::environment::{CLIENT, CLIENT_KEY, SERVER, client_flags, environment, written};
use support::program::{Program, sidecar};
use support::server::await_condition;
use support::volume::{Directory, Volume};

const IDENTITIES: &str = "/api/v1/identities/";
const OFREP: &str = "/ofrep/v1/evaluate/flags";
const OVERRIDES: &str = r#"{"banner": {"value": "t\u0065sted"}, "dark mode": {"enabled": true, "value": 7},
    "secret": {"enabled": false}, "unknown": {"enabled": true}}"#;
const BANNER: &str =
    r#"{"feature":{"id":1,"name":"banner","type":"STANDARD"},"enabled":true,"feature_state_value":"tested"}"#;
const DARK_MODE: &str =
    r#"{"feature":{"id":2,"name":"dark mode","type":"STANDARD"},"enabled":true,"feature_state_value":7}"#;
const KEY: &str = "0123456789abcdef0123456789abcdef";
const HEADER: &str = "x-remora-override";
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

/// Starts a sidecar that reads signed headers, with a key in its file.
fn accepting(overrides: Option<&str>) -> (Directory, Directory, Program) {
    let (directory, keys) = (Directory::new(), Directory::new());
    for name in ["shop", "other"] {
        let keys = [format!("client-{name}"), CLIENT_KEY.to_owned()];
        let environment = environment(name, &keys[usize::from(name == "shop")], 1);
        directory.volume(name).publish_written(&write(&environment, 1_000_000).unwrap());
    }
    std::fs::write(keys.path().join("key"), KEY).unwrap();
    let mut command = sidecar(directory.path());
    command.arg("--override-key").arg(keys.path().join("key"));
    command.args(overrides.into_iter().flat_map(|overrides| ["--overrides", overrides]));
    let program = Program::start(command);
    (directory, keys, program)
}

/// Signs a header for an environment. It expires after this many seconds.
fn signed_for(environment: &str, seconds: i64, flags: &str) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let expiry = now.checked_add_signed(seconds).unwrap();
    let mac = HMAC::mac(format!("{environment} {expiry} {flags}"), KEY);
    let digits: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{expiry} {digits} {flags}")
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
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(64) && text.contains(r#"such as {"banner": {"enabled": true"#), "{text}");
}

#[test]
fn signed_header_overrides_flags_for_its_request_only() {
    let (_directory, _keys, sidecar) = accepting(Some(r#"{"limit": {"value": 9}, "banner": {"value": "pod"}}"#));
    let header = signed_for(
        "shop",
        60,
        r#"{"banner": {"value": "tested"}, "dark mode": {"enabled": true, "value": 7}, "unknown": {"enabled": true}}"#,
    );
    let plain = |path: &str| get(sidecar.data, path, &CLIENT);
    let tested = |path: &str| get(sidecar.data, path, &[CLIENT[0], (HEADER, &header)]);
    let before = plain("/api/v1/flags/");
    let answer = tested("/api/v1/flags/");
    assert_eq!(answer.body, format!("[{BANNER},{DARK_MODE},{}]", LIMIT.replace(":1}", ":9}")));
    assert_eq!(answer.header("x-remora-overrides"), Some("banner,dark%20mode,limit"));
    assert_eq!(tested("/api/v1/flags/?feature=banner").body, BANNER);
    for identity in ["?identifier=somebody", "?identifier=x&feature=banner"] {
        assert!(tested(&format!("{IDENTITIES}{identity}")).body.contains(BANNER), "{identity}");
    }
    let after = plain("/api/v1/flags/");
    assert_eq!((&after.body, after.header("x-remora-overrides")), (&before.body, Some("limit,banner")));

    let keyed = [("x-api-key", CLIENT_KEY), (HEADER, header.as_str())];
    let all = post(sidecar.data, OFREP, &keyed, "{}");
    let by = |flag: usize| body(&all)["flags"][flag]["metadata"]["overriddenBy"].clone();
    assert_eq!([by(0), by(1), by(2)], ["request", "request", "pod"]);
    let one = body(&post(sidecar.data, &format!("{OFREP}/banner"), &keyed, "{}"));
    assert_eq!((&one["value"], &one["reason"]), (&json!("tested"), &json!("TARGETING_MATCH")));
    let plain = post(sidecar.data, OFREP, &keyed[..1], "{}");
    for header in ["etag", "x-remora-assignment"] {
        assert!(plain.header(header).is_some() && plain.header(header) != all.header(header), "{header}");
    }
    let log = sidecar.stop().join("\n");
    assert!(log.contains("requests may override flags by a header, for tests"), "{log}");
}

#[test]
fn header_that_is_not_valid_is_refused_in_both_dialects_with_the_remedy() {
    let (_directory, keys, sidecar) = accepting(None);
    let flags = r#"{"banner": {"value": "tested"}}"#;
    let refused = |header: &str, expected: &str| {
        let answer = get(sidecar.data, "/api/v1/flags/", &[CLIENT[0], (HEADER, header)]);
        let message = answer.body.clone();
        assert!(answer.status == 403 && message.contains("header X-Remora-Override: "), "{answer:?}");
        assert!(message.contains(expected) && message.starts_with(r#"{"status":"forbidden""#), "{message}");
        let keyed = [("x-api-key", CLIENT_KEY), (HEADER, header)];
        for path in [OFREP.to_owned(), format!("{OFREP}/banner")] {
            let answer = post(sidecar.data, &path, &keyed, "{}");
            let details = serde_json::from_str::<Value>(&answer.body).unwrap()["errorDetails"].to_string();
            assert!(answer.status == 403 && details.contains(expected), "{answer:?}");
        }
    };
    refused("", "`EXPIRY SIGNATURE JSON`");
    refused(flags, "`EXPIRY SIGNATURE JSON`");
    refused(&signed_for("other", 60, flags), r#"not signed for environment \"shop\""#);
    refused(&signed_for("shop", 60, flags).replace("tested", "forged"), "not signed for environment");
    refused(&signed_for("shop", -1, flags), "sign it again");
    refused(&signed_for("shop", 700_000, flags), "more than 7 days");
    refused(&signed_for("shop", 60, r#"{"banner": 1}"#), "JSON of at most 16 flags");
    refused(
        &signed_for("shop", 60, &format!(r#"{{"a": {{"value": "{}"}}}}"#, "x".repeat(4096))),
        "more than 4096 bytes",
    );
    let many: Vec<String> = (0..17).map(|number| format!(r#""f{number}": {{"enabled": true}}"#)).collect();
    refused(&signed_for("shop", 60, &format!("{{{}}}", many.join(","))), "at most 16 flags");

    let valid = signed_for("shop", 60, flags);
    let status = || get(sidecar.data, "/api/v1/flags/", &[CLIENT[0], (HEADER, &valid)]).status;
    assert_eq!(status(), 200);
    // The key is read for each header, so another key and a removed one count at once.
    for (key, expected) in
        [("f".repeat(32), "not signed for environment"), ("short".to_owned(), "no key of 32 to 256 bytes")]
    {
        std::fs::write(keys.path().join("key"), key).unwrap();
        refused(&valid, expected);
    }
    std::fs::write(keys.path().join("key"), format!("{KEY}\n")).unwrap();
    assert_eq!(status(), 200);
    std::fs::remove_file(keys.path().join("key")).unwrap();
    refused(&valid, "no key of 32 to 256 bytes");
    assert_eq!(get(sidecar.data, "/api/v1/flags/", &CLIENT).status, 200);
}

#[test]
fn header_without_a_key_option_is_ignored() {
    let (_directory, _volume, sidecar) = serving(&written(1), None);
    let plain = get(sidecar.data, "/api/v1/flags/", &CLIENT);
    for header in ["", "no header", &signed_for("shop", 60, r#"{"banner": {"value": "tested"}}"#)] {
        let answer = get(sidecar.data, "/api/v1/flags/", &[CLIENT[0], (HEADER, header)]);
        assert_eq!((answer.status, &answer.body, answer.header("x-remora-overrides")), (200, &plain.body, None));
    }
}

/// The answer to reported uses has no flag, so a header that is not valid does not lose them.
#[test]
fn reported_uses_are_counted_whatever_the_header_is() {
    let (_directory, _keys, sidecar) = accepting(None);
    let refused = [CLIENT[0], (HEADER, "no header")];
    assert_eq!(get(sidecar.data, "/api/v1/flags/", &refused).status, 403);
    assert_eq!(post(sidecar.data, "/api/v1/analytics/flags/", &refused, r#"{"banner": 3}"#).status, 200);
}
