//! Requests that Flagsmith's API accepts although they do not have the documented form: the sidecar answers each of
//! them with the flags that the API would return.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use remora_snapshot::write;
use serde_json::{Value, json};
use support::client::{get, post};
use support::environment::{CLIENT, CLIENT_KEY, SERVER, environment};
use support::server::{Running, serving, start};
use support::volume::Directory;

const IDENTITIES: &str = "/api/v1/identities/";
const FLAGS: &str = "/api/v1/flags/";

fn answer(server: &Running, body: &str) -> Value {
    let answer = post(server.data, IDENTITIES, &CLIENT, body);
    assert_eq!(answer.status, 200, "{body}: {}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

/// Value of the flag `banner`: "plain", "gold" by the trait `plan`, "mine" for `somebody`.
fn banner(answer: &Value) -> &Value {
    let flags = answer["flags"].as_array().unwrap();
    &flags.iter().find(|flag| flag["feature"]["name"] == "banner").unwrap()["feature_state_value"]
}

#[test]
fn identifier_that_is_a_number_is_its_text() {
    let (_directory, server) = serving();
    for (sent, identifier) in [("5", "5"), ("-0", "0"), ("1.50", "1.5")] {
        for body in [format!(r#"{{"identifier":{sent}}}"#), format!(r#"{{"identifier": {sent}, "traits": []}}"#)] {
            assert_eq!(answer(&server, &body)["identifier"], identifier, "{body}");
        }
    }
}

#[test]
fn name_of_a_trait_that_is_a_number_is_its_text() {
    let (_directory, server) = serving();
    let answer = answer(
        &server,
        r#"{"identifier":"x","traits":[{"trait_key":5,"trait_value":1},{"trait_key":1.0,"trait_value":3}]}"#,
    );
    let names: Vec<&Value> = answer["traits"].as_array().unwrap().iter().map(|row| &row["trait_key"]).collect();
    assert_eq!(names, ["5", "1.0"]);
}

#[test]
fn identifier_or_name_of_a_trait_that_is_a_boolean_is_refused() {
    let (_directory, server) = serving();
    for value in ["true", "false"] {
        for (body, place) in [
            (format!(r#"{{"identifier":{value}}}"#), r#"["body","identifier"]"#),
            (
                format!(r#"{{"identifier":"x","traits":[{{"trait_key":{value},"trait_value":1}}]}}"#),
                r#"["body","traits",0,"trait_key"]"#,
            ),
        ] {
            let answer = post(server.data, IDENTITIES, &CLIENT, &body);
            let expected = format!(r#"{{"detail":[{{"type":"string_type","loc":{place},"#);
            assert!(answer.status == 400 && answer.body.starts_with(&expected), "{body}: {}", answer.body);
        }
    }
}

#[test]
fn white_space_around_names_is_removed() {
    let (_directory, server) = serving();
    for space in [" ", "\\t", "\\u00a0", "\u{3000}"] {
        let somebody = answer(&server, &format!(r#"{{"identifier":"{space}somebody{space}"}}"#));
        assert_eq!((&somebody["identifier"], banner(&somebody)), (&json!("somebody"), &json!("mine")), "{space:?}");
        for form in [r#"{"trait_key":"NAME","trait_value":"pro"}"#, r#"{"trait_key": "NAME", "trait_value": "pro"}"#] {
            let row = form.replace("NAME", &format!("{space}plan{space}"));
            let pro = answer(&server, &format!(r#"{{"identifier":"x","traits":[{row}]}}"#));
            assert_eq!(banner(&pro), "gold", "{row}");
            assert_eq!(pro["traits"], json!([{"trait_key": "plan", "trait_value": "pro"}]), "{row}");
        }
        let anonymous = answer(&server, &format!(r#"{{"identifier":"{space}"}}"#));
        assert_eq!(anonymous["identifier"].as_str().unwrap().len(), 32, "{space:?}");
    }
}

/// The API does not store anonymous identities, so they have no overrides, whatever their identifier is.
#[test]
fn override_does_not_apply_to_anonymous_identity() {
    // The identifier of an anonymous identity with this trait: SHA-256 of "planfree".
    let digest = "00b46d4fc80bdcd2ad23a0003815c162159798772de27b75c617425530587288";
    let traits = r#""traits":[{"trait_key":"plan","trait_value":"free"}]"#;
    let mut environment = environment("shop", CLIENT_KEY, 1);
    environment.identity_overrides[0].identifier = digest.to_owned();
    let directory = Directory::new();
    directory.volume("shop").publish_written(&write(&environment, 1_000_000).unwrap());
    let server = start(directory.path(), |_| {});
    let anonymous = answer(&server, &format!("{{{traits}}}"));
    assert_eq!((&anonymous["identifier"], banner(&anonymous)), (&json!(digest), &json!("plain")));
    let named = answer(&server, &format!(r#"{{"identifier":"{digest}",{traits}}}"#));
    assert_eq!(banner(&named), "mine");
}

#[test]
fn trait_without_a_value_does_not_replace_an_earlier_one() {
    let (_directory, server) = serving();
    for form in [r#"{"trait_key":"plan","trait_value":null}"#, r#"{"trait_key":"plan"}"#] {
        for separator in [",", ", "] {
            let pro = r#"{"trait_key":"plan","trait_value":"pro"}"#;
            let body = format!(r#"{{"identifier":"x","traits":[{pro}{separator}{form}]}}"#);
            assert_eq!(banner(&answer(&server, &body)), "gold", "{body}");
        }
    }
    let spaced = r#"{"identifier": "x", "traits": [{"trait_key": "plan", "trait_value": "pro"}, {"trait_key": "plan", "trait_value": null}]}"#;
    assert_eq!(banner(&answer(&server, spaced)), "gold");
    let free = r#"{"identifier":"x","traits":[{"trait_key":"plan","trait_value":"pro"},{"trait_key":"plan","trait_value":"free"}]}"#;
    assert_eq!(banner(&answer(&server, free)), "plain");
}

#[test]
fn list_and_object_are_traits_of_their_text() {
    let (_directory, server) = serving();
    let body = r#"{"identifier":"x","traits":[{"trait_key":"a","trait_value":[1, "b", null]},{"trait_key":"c","trait_value":{"d": true}}]}"#;
    let expected =
        json!([{"trait_key": "a", "trait_value": "[1, 'b', None]"}, {"trait_key": "c", "trait_value": "{'d': True}"}]);
    assert_eq!(answer(&server, body)["traits"], expected);
}

#[test]
fn empty_body_is_an_anonymous_identity() {
    let (_directory, server) = serving();
    let answer = answer(&server, "");
    assert_eq!((answer["identifier"].as_str().unwrap().len(), banner(&answer)), (32, &json!("plain")));
}

#[test]
fn feature_is_found_without_regard_to_case() {
    let (_directory, server) = serving();
    for name in ["banner", "BANNER", "Banner"] {
        let answer = get(server.data, &format!("{FLAGS}?feature={name}"), &CLIENT);
        assert!(answer.status == 200 && answer.body.contains(r#""name":"banner""#), "{name}: {}", answer.body);
    }
    for (name, key, status) in [("SECRET", CLIENT, 404), ("SECRET", SERVER, 200), ("banners", CLIENT, 404)] {
        assert_eq!(get(server.data, &format!("{FLAGS}?feature={name}"), &key).status, status, "{name}");
    }
}

#[test]
fn empty_feature_is_the_first_flag() {
    let (_directory, server) = serving();
    for query in ["?feature=", "?feature"] {
        let answer = get(server.data, &format!("{FLAGS}{query}"), &CLIENT);
        assert!(answer.status == 200 && answer.body.starts_with(r#"{"feature":{"id":1,"#), "{}", answer.body);
    }
}

#[test]
fn feature_of_an_identity_is_that_flag_alone() {
    let (_directory, server) = serving();
    let answer = get(server.data, &format!("{IDENTITIES}?identifier=somebody&feature=banner"), &CLIENT);
    let expected =
        r#"{"feature":{"id":1,"name":"banner","type":"STANDARD"},"enabled":true,"feature_state_value":"mine"}"#;
    assert_eq!((answer.status, answer.body.as_str()), (200, expected));
    // Here, unlike for flags/, the API compares names exactly.
    for (name, key, status) in
        [("BANNER", CLIENT, 404), ("secret", CLIENT, 404), ("secret", SERVER, 200), ("none", SERVER, 404)]
    {
        let answer = get(server.data, &format!("{IDENTITIES}?identifier=somebody&feature={name}"), &key);
        assert_eq!(answer.status, status, "{name}: {}", answer.body);
    }
}

#[test]
fn transient_identity_of_a_query_has_no_override() {
    let (_directory, server) = serving();
    for (query, expected) in [("", "mine"), ("&transient=", "mine"), ("&transient=true", "plain")] {
        let answer = get(server.data, &format!("{IDENTITIES}?identifier=somebody{query}"), &CLIENT);
        assert_eq!(banner(&serde_json::from_str(&answer.body).unwrap()), expected, "{query}");
        let answer = get(server.data, &format!("{IDENTITIES}?identifier=somebody{query}&feature=banner"), &CLIENT);
        assert!(answer.body.contains(expected), "{query}: {}", answer.body);
    }
    // In a body, `transient` only decides what the server stores.
    assert_eq!(banner(&answer(&server, r#"{"identifier":"somebody","transient":true}"#)), "mine");
}

#[test]
fn transient_that_the_api_reads_as_a_boolean_is_accepted() {
    let (_directory, server) = serving();
    let words = ["t", "y", "yes", "true", "on", "1", "f", "n", "no", "false", "off", "0", "YES", "oFF", "tr\\u0075e"];
    let strings = words.map(|word| format!("\"{word}\""));
    let others = ["true", "false", "0", "1", "-0", "0.0", "-0.0", "1.0", "10e-1", "0e5"].map(str::to_owned);
    for value in strings.iter().chain(&others) {
        for body in [
            format!(r#"{{"identifier":"somebody","transient":{value}}}"#),
            format!(r#"{{"identifier":"somebody","transient":null,"transient":{value}}}"#),
            format!(
                r#"{{"identifier":"somebody","traits":[{{"trait_key":"a","trait_value":1,"transient":{value}}}]}}"#
            ),
        ] {
            assert_eq!(banner(&answer(&server, &body)), "mine", "{body}");
        }
    }
}

#[test]
fn invalid_member_that_is_repeated_is_replaced() {
    let (_directory, server) = serving();
    let pro = r#"[{"trait_key":"plan","trait_value":"pro"}]"#;
    let long = "x".repeat(2001);
    for invalid in ["true", "[]", "{}", &format!("\"{long}\""), r#""\u0000""#] {
        let body = format!(r#"{{"identifier":{invalid},"identifier":"somebody"}}"#);
        assert_eq!(banner(&answer(&server, &body)), "mine", "{body}");
    }
    let list = |item: &str| format!("[{item}]");
    for invalid in [
        "null".to_owned(),
        "{}".to_owned(),
        "\"x\"".to_owned(),
        list("null"),
        list("{}"),
        list(r#"{"trait_key":true}"#),
        list(&format!(r#"{{"trait_key":"plan","trait_value":"{long}"}}"#)),
        list(r#"{"trait_key":"a","trait_value":1},{"trait_key":"b","transient":[]},[{}]"#),
    ] {
        let body = format!(r#"{{"identifier":"x","traits":{invalid},"traits":{pro}}}"#);
        let replaced = answer(&server, &body);
        assert_eq!((banner(&replaced), replaced["traits"].to_string().as_str()), (&json!("gold"), pro), "{body}");
        let body = format!(r#"{{"identifier":"x","traits":{pro},"traits":{invalid}}}"#);
        assert_eq!(post(server.data, IDENTITIES, &CLIENT, &body).status, 400, "{body}");
        let body = format!(r#"{{"identifier":"x","traits":{invalid},"traits":{pro}"#);
        let malformed = post(server.data, IDENTITIES, &CLIENT, &body);
        assert!(malformed.status == 400 && malformed.body.contains("json_invalid"), "{body}: {}", malformed.body);
    }
    for (invalid, valid) in [
        ("trait_key\":true", "trait_key\":\"plan\""),
        ("trait_key\":\"\\u0000\"", "trait_key\":\"plan\""),
        (&format!("trait_value\":\"{long}\""), "trait_value\":\"pro\""),
        (&format!("trait_value\":[\"{long}\"]"), "trait_value\":\"pro\""),
        ("transient\":7", "transient\":false"),
    ] {
        let body = |first: &str, last: &str| {
            let others = r#""trait_key":"plan","trait_value":"pro""#;
            format!(r#"{{"identifier":"x","traits":[{{{others},"{first},"{last}}}]}}"#)
        };
        let replaced = answer(&server, &body(invalid, valid));
        assert_eq!((banner(&replaced), replaced["traits"].to_string().as_str()), (&json!("gold"), pro), "{invalid}");
        assert_eq!(post(server.data, IDENTITIES, &CLIENT, &body(valid, invalid)).status, 400, "{invalid}");
    }
}

#[test]
fn transient_that_is_no_boolean_is_refused() {
    let (_directory, server) = serving();
    for value in
        ["null", "2", "-1", "0.5", "1e1", r#""""#, r#"" true""#, r#""2""#, r#""null""#, r#""ja""#, "[]", "[true]", "{}"]
    {
        for (body, place) in [
            (format!(r#"{{"identifier":"x","transient":{value}}}"#), r#"["body","transient"]"#),
            (format!(r#"{{"transient":true,"transient":{value},"identifier":"x"}}"#), r#"["body","transient"]"#),
            (
                format!(r#"{{"identifier":"x","traits":[{{"transient":{value},"trait_key":"a","trait_value":1}}]}}"#),
                r#"["body","traits",0,"transient"]"#,
            ),
        ] {
            let answer = post(server.data, IDENTITIES, &CLIENT, &body);
            let expected = format!(r#"{{"detail":[{{"type":"bool_parsing","loc":{place},"#);
            assert!(answer.status == 400 && answer.body.starts_with(&expected), "{body}: {}", answer.body);
        }
    }
}

#[test]
fn null_character_in_a_name_is_refused() {
    let (_directory, server) = serving();
    for name in ["\\u0000", "a\\u0000", " \\u0000a ", "\\u0000é\\n"] {
        for (body, place) in [
            (format!(r#"{{"identifier":"{name}"}}"#), r#"["body","identifier"]"#),
            (
                format!(r#"{{"identifier":"x","traits":[{{"trait_key":"{name}","trait_value":1}}]}}"#),
                r#"["body","traits",0,"trait_key"]"#,
            ),
        ] {
            let answer = post(server.data, IDENTITIES, &CLIENT, &body);
            let expected = format!(r#"{{"detail":[{{"type":"null_character","loc":{place},"#);
            assert!(answer.status == 400 && answer.body.starts_with(&expected), "{body}: {}", answer.body);
        }
    }
    let text = r#"{"identifier":"\\u0000","traits":[{"trait_key":"a","trait_value":"\u0000"}]}"#;
    assert_eq!(answer(&server, text)["identifier"], "\\u0000", "a backslash, and a value");
}
