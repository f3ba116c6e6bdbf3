//! Tests of OFREP's endpoints, over sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use remora_snapshot::model::{Context, Split, Test, Variant};
use remora_snapshot::write;
use serde_json::{Value, json};
use support::client::{Answer, call, post};
use support::environment::{CLIENT_KEY, SERVER_KEY, environment, written};
use support::server::{Running, serving_volume, start};
use support::volume::Directory;

const FLAG: &str = "/ofrep/v1/evaluate/flags/";
const FLAGS: &str = "/ofrep/v1/evaluate/flags";

fn body(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

fn context(context: &Value) -> String {
    json!({ "context": context }).to_string()
}

#[test]
fn flag_has_value_reason_and_variant() {
    let (_directory, _volume, server) = serving_volume();
    for (sent, value) in [
        (json!({"targetingKey": "x", "plan": "pro"}), "gold"),
        (json!({"plan": "pro", "targetingKey": "x"}), "gold"),
        (json!({"targetingKey": "x", "plan": "free", "traits": {"plan": "pro"}}), "gold"),
        (json!({"traits": {"plan": "pro"}, "plan": "free", "targetingKey": "x"}), "gold"),
        (json!({"targetingKey": "x", "plan": ["pro"], "transient": true, "more": {"plan": "pro"}}), "plain"),
        (json!({"targetingKey": "x", "traits": {"plan": null}, "plan": "pro"}), "plain"),
        (json!({"targetingKey": "somebody", "plan": "pro"}), "mine"),
        // Without a targeting key, the environment's flags are evaluated.
        (json!({"plan": "pro"}), "plain"),
        (json!({"plan": "pro", "targetingKey": ""}), "plain"),
        (json!({"plan": "pro", "targetingKey": null}), "plain"),
    ] {
        let answer = post(server.data, &format!("{FLAG}banner"), &[], &context(&sent));
        assert_eq!(answer.status, 200);
        let flag = body(&answer);
        assert_eq!((&flag["key"], &flag["value"]), (&json!("banner"), &json!(value)), "{sent}");
        assert!(flag["reason"].is_string(), "{flag}");
        assert_eq!(flag["variant"], "", "{flag}");
        assert_eq!(flag["metadata"]["enabled"], true);
    }
    for lenient in ["", "{}"] {
        assert_eq!(body(&post(server.data, &format!("{FLAG}limit"), &[], lenient))["value"], 1, "{lenient:?}");
    }
    let escaped = body(&post(server.data, &format!("{FLAG}dark%20mode"), &[], "{}"));
    assert_eq!((&escaped["key"], &escaped["value"]), (&json!("dark mode"), &json!(false)));
}

#[test]
fn flag_with_a_slash_in_its_name_is_found_with_and_without_escape() {
    let mut environment = environment("shop", CLIENT_KEY, 1);
    environment.features[2].name = "team/limit".to_owned();
    let directory = Directory::new();
    directory.volume("shop").publish_written(&write(&environment, 1_000_000).unwrap());
    let server = start(directory.path(), |_| {});
    for key in ["team/limit", "team%2Flimit", "team/limit/"] {
        let answer = post(server.data, &format!("{FLAG}{key}"), &[], "{}");
        assert_eq!((answer.status, &body(&answer)["value"]), (200, &json!(1)), "{key}: {}", answer.body);
    }
    let unknown = post(server.data, &format!("{FLAG}team/nope"), &[], "{}");
    assert_eq!((unknown.status, &body(&unknown)["errorCode"]), (404, &json!("FLAG_NOT_FOUND")));
}

#[test]
fn white_space_around_names_of_a_context_is_removed() {
    let (_directory, _volume, server) = serving_volume();
    let long = "x".repeat(200);
    for (sent, value) in [
        (json!({"targetingKey": " somebody\t"}), "mine"),
        (json!({"targetingKey": "\u{3000}somebody\u{a0}", "plan": "pro"}), "mine"),
        (json!({"targetingKey": "x", " plan ": "pro"}), "gold"),
        (json!({"targetingKey": "x", "plan": "free", "traits": {"\tplan\u{2003}": "pro"}}), "gold"),
        (json!({"targetingKey": "x", " plan": ["pro"]}), "plain"),
        (json!({"targetingKey": "x", "plan": "pro", (format!(" {long} ")): 1, (format!("{long} ")): []}), "gold"),
        // Without a name, the identity is anonymous, and the environment's flags are evaluated.
        (json!({"targetingKey": " \n", "plan": "pro"}), "plain"),
    ] {
        let answer = post(server.data, &format!("{FLAG}banner"), &[], &context(&sent));
        assert_eq!((answer.status, &body(&answer)["value"]), (200, &json!(value)), "{sent}: {}", answer.body);
    }
    let tag = |sent: &Value| post(server.data, FLAGS, &[], &context(sent)).header("etag").unwrap().to_owned();
    assert_eq!(tag(&json!({"targetingKey": " a ", "b": 1})), tag(&json!({"targetingKey": "a", " b": 1})));
    let refused = post(server.data, FLAGS, &[], &context(&json!({"targetingKey": "x", (format!(" x{long}")): 1})));
    assert_eq!(refused.status, 400, "{}", refused.body);
}

#[test]
fn lists_and_objects_are_compared_by_their_text() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let mut environment = environment("shop", CLIENT_KEY, 1);
    let Test::Compare(_, comparand) = &mut environment.segments[0].rules[0].conditions[0].test else { panic!() };
    comparand.text = "['pro', {'a': None}]".to_owned();
    volume.publish_written(&write(&environment, 1_000_000).unwrap());
    let server = start(directory.path(), |_| {});
    let plan = json!(["pro", {"a": null}]);
    let long = json!(["x".repeat(3_000)]);
    for (sent, value) in [
        (json!({"targetingKey": "x", "plan": plan}), "gold"),
        (json!({"targetingKey": "x", "traits": {"plan": plan}}), "gold"),
        (json!({"targetingKey": "x", "plan": ["pro"]}), "plain"),
        (json!({"targetingKey": "x", "plan": plan, "traits": {"plan": long}}), "plain"),
    ] {
        let answer = post(server.data, &format!("{FLAG}banner"), &[], &context(&sent));
        assert_eq!(body(&answer)["value"], value, "{sent}");
        let answer = post(server.data, FLAGS, &[], &context(&sent));
        assert_eq!(body(&answer)["flags"][0]["value"], value, "{sent}");
    }
}

#[test]
fn invalid_request_gets_the_error_of_the_protocol() {
    let (_directory, _volume, server) = serving_volume();
    let answer = post(server.data, &format!("{FLAG}no%22pe"), &[], "{}");
    assert_eq!(answer.status, 404);
    assert_eq!(body(&answer)["key"], "no\"pe");
    assert_eq!(body(&answer)["errorCode"], "FLAG_NOT_FOUND");
    for (sent, code) in [
        ("{", "PARSE_ERROR"),
        ("nonsense", "PARSE_ERROR"),
        ("[]", "INVALID_CONTEXT"),
        ("{\"context\":null}", "INVALID_CONTEXT"),
        ("{\"context\":[]}", "INVALID_CONTEXT"),
        ("{\"context\":{\"targetingKey\":5}}", "INVALID_CONTEXT"),
    ] {
        let answer = post(server.data, &format!("{FLAG}banner"), &[], sent);
        assert_eq!(answer.status, 400, "{sent}");
        assert_eq!((&body(&answer)["errorCode"], &body(&answer)["key"]), (&json!(code), &json!("banner")), "{sent}");
        let answer = post(server.data, FLAGS, &[], sent);
        assert_eq!(answer.status, 400, "{sent}");
        assert_eq!(body(&answer)["errorCode"], code, "{sent}");
        assert!(body(&answer)["errorDetails"].is_string(), "{sent}");
        assert!(body(&answer).get("key").is_none(), "{sent}");
    }
    let answer = post(server.data, FLAGS, &[], "[]");
    let remedy = r#"the body is not an object: send {"context":{"targetingKey":"..."}}"#;
    assert_eq!(body(&answer)["errorDetails"], remedy);
}

#[test]
fn bulk_answer_has_every_flag_of_the_role() {
    let (_directory, _volume, server) = serving_volume();
    let answer = post(server.data, FLAGS, &[], &context(&json!({"targetingKey": "x", "plan": "pro"})));
    assert_eq!(answer.status, 200);
    let all = body(&answer);
    let keys: Vec<&str> = all["flags"].as_array().unwrap().iter().map(|flag| flag["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["banner", "dark mode", "limit"]);
    assert_eq!(all["flags"][0]["value"], "gold");
    let version = all["metadata"]["version"].as_str().unwrap();
    assert!(answer.header("etag").unwrap().starts_with(&format!("\"{version}-")), "{answer:?}");
}

#[test]
fn matching_entity_tag_answers_304_without_a_body() {
    let (_directory, mut volume, server) = serving_volume();
    let ask = |sent: &Value, tag: &str| post(server.data, FLAGS, &[("if-none-match", tag)], &context(sent));
    let sent = json!({"targetingKey": "x", "plan": "pro", "age": 7});
    let tag = post(server.data, FLAGS, &[], &context(&sent)).header("etag").unwrap().to_owned();
    for form in [tag.clone(), tag.trim_matches('"').to_owned(), format!("W/{tag}"), format!("\"x\", {tag}")] {
        let answer = ask(&sent, &form);
        assert_eq!((answer.status, answer.body.as_str(), answer.header("etag")), (304, "", Some(tag.as_str())));
    }
    // Another order, and members that do not count, make the same context.
    let same = r#"{"context":{"age":7,"none":null,"plan":"free","traits":{"plan":"pro"},"targetingKey":"x"}}"#;
    assert_eq!(post(server.data, FLAGS, &[("if-none-match", &tag)], same).status, 304);
    for other in [
        json!({"targetingKey": "y", "plan": "pro", "age": 7}),
        json!({"targetingKey": "x", "plan": "pro", "age": "7"}),
        json!({"targetingKey": "x", "plan": "pro", "age": 7.0}),
        json!({"targetingKey": "x", "plan": "pro"}),
        json!({"targetingKey": "x", "plan": "pro", "age": [7]}),
        json!({}),
    ] {
        assert_eq!(ask(&other, &tag).status, 200, "{other}");
    }
    let keyed = [("if-none-match", tag.as_str()), ("x-api-key", SERVER_KEY)];
    assert_eq!(post(server.data, FLAGS, &keyed, &context(&sent)).status, 200, "another role");
    volume.publish_written(&written(2));
    let swapped = r#"remora_sidecar_reloads_total{environment="shop",result="swapped"}"#;
    server.await_metric(swapped, |count| count == 2.0);
    assert_eq!(ask(&sent, &tag).status, 200, "another revision");
}

#[test]
fn split_without_targeting_key_is_refused() {
    let directory = Directory::new();
    let mut environment = environment("shop", CLIENT_KEY, 1);
    for (feature, enabled) in [(0, true), (1, false)] {
        let variant = Variant {
            value: "\"b\"".to_owned(),
            key: Some("b".to_owned()),
            weight: 50.0,
            weight_text: "50".to_owned(),
        };
        environment.features[feature].default = Context {
            enabled,
            value: "\"a\"".to_owned(),
            split: Some(Split { seed: "1".to_owned(), variants: vec![variant] }),
        };
    }
    directory.volume("shop").publish_written(&remora_snapshot::write(&environment, 1_000_000).unwrap());
    let server = start(directory.path(), |_| {});
    for anonymous in ["", "{}", r#"{"context":{"plan":"free"}}"#, r#"{"context":{"targetingKey":""}}"#] {
        let answer = post(server.data, &format!("{FLAG}banner"), &[], anonymous);
        assert_eq!((answer.status, &body(&answer)["errorCode"]), (400, &json!("TARGETING_KEY_MISSING")), "{anonymous}");
        assert_eq!(body(&answer)["key"], "banner");
        // Evaluations that no percentage decides are answered: other flags, a disabled flag, and all flags at once.
        assert_eq!(post(server.data, &format!("{FLAG}limit"), &[], anonymous).status, 200);
        assert_eq!(body(&post(server.data, &format!("{FLAG}dark%20mode"), &[], anonymous))["reason"], "DISABLED");
        assert_eq!(body(&post(server.data, FLAGS, &[], anonymous))["flags"][0]["value"], "a");
    }
    let somebody = context(&json!({"targetingKey": "x"}));
    let answer = post(server.data, &format!("{FLAG}banner"), &[], &somebody);
    assert!(["SPLIT", "STATIC"].contains(&body(&answer)["reason"].as_str().unwrap()), "{}", answer.body);
}

#[test]
fn key_selects_environment_and_role() {
    let (directory, _volume, server) = serving_volume();
    let keys = |server: &Running, headers: &[(&str, &str)]| {
        let answer = post(server.data, FLAGS, headers, "{}");
        (answer.status, answer.body.contains("\"secret\""))
    };
    assert_eq!(keys(&server, &[]), (200, false));
    assert_eq!(keys(&server, &[("authorization", "Bearer x")]), (200, false));
    assert_eq!(keys(&server, &[("x-api-key", CLIENT_KEY)]), (200, false));
    assert_eq!(keys(&server, &[("x-api-key", SERVER_KEY)]), (200, true));
    assert_eq!(keys(&server, &[("x-api-key", "nope")]).0, 401);
    assert_eq!(keys(&server, &[("x-api-key", "")]), (200, false));
    assert_eq!(keys(&server, &[("x-api-key", ""), ("x-environment-key", SERVER_KEY)]), (200, true));
    assert_eq!(post(server.data, &format!("{FLAG}secret"), &[], "{}").status, 404);
    assert_eq!(post(server.data, &format!("{FLAG}secret"), &[("x-api-key", SERVER_KEY)], "{}").status, 200);

    let other = remora_snapshot::write(&environment("other", "client-other", 5), 1_000_000).unwrap();
    directory.volume("other").publish_written(&other);
    let several = start(directory.path(), |_| {});
    assert_eq!(keys(&several, &[]).0, 401);
    assert_eq!(keys(&several, &[("x-api-key", "")]).0, 401);
    let answer = post(several.data, &format!("{FLAG}limit"), &[("x-api-key", "client-other")], "{}");
    assert_eq!(body(&answer)["value"], 5);
}

#[test]
fn request_before_data_arrives_gets_503() {
    let directory = Directory::new();
    let server = start(directory.path(), |options| options.environments = vec!["later".to_owned()]);
    for path in [FLAGS.to_owned(), format!("{FLAG}banner")] {
        let answer = call(server.data, "POST", &path, &[], Some("{}"));
        assert_eq!(answer.status, 503);
        assert!(body(&answer)["errorDetails"].is_string());
        assert!(body(&answer).get("errorCode").is_none());
    }
}
