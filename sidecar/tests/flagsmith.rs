//! Tests of Flagsmith's endpoints, over sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use remora_snapshot::model::Feature;
use remora_snapshot::write;
use support::client::{Connection, call, get, post};
use support::environment::{CLIENT, CLIENT_KEY, SERVER, client_flags, environment, written};
use support::server::{serving, start};
use support::volume::Directory;

const KEY: &str = "x-environment-key";

#[test]
fn flags_endpoint_returns_the_flags_of_the_role() {
    let (_directory, server) = serving();
    for path in ["/api/v1/flags/", "/api/v1/flags"] {
        let answer = get(server.data, path, &CLIENT);
        assert_eq!((answer.status, answer.body.as_str()), (200, client_flags(1).as_str()), "{path}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    let answer = get(server.data, "/api/v1/flags/", &SERVER);
    assert!(answer.body.contains("\"secret\""), "{}", answer.body);
    let head = call(server.data, "HEAD", "/api/v1/flags/", &CLIENT, None);
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length"), Some(client_flags(1).len().to_string().as_str()));
}

#[test]
fn flags_endpoint_with_feature_returns_one_flag() {
    let (_directory, server) = serving();
    let answer = get(server.data, "/api/v1/flags/?feature=dark%20mode", &CLIENT);
    let flag =
        r#"{"feature":{"id":2,"name":"dark mode","type":"STANDARD"},"enabled":false,"feature_state_value":null}"#;
    assert_eq!((answer.status, answer.body.as_str()), (200, flag));
    assert_eq!(get(server.data, "/api/v1/flags?x=y&feature=dark+mode", &CLIENT).body, flag);
    for (feature, shown) in [("nope", "nope"), ("secret", "secret"), ("a%22b", "a\\\"b")] {
        let answer = get(server.data, &format!("/api/v1/flags/?feature={feature}"), &CLIENT);
        let body = format!("{{\"status\":\"not_found\",\"message\":\"feature '{shown}' not found\"}}");
        assert_eq!((answer.status, answer.body), (404, body));
    }
    assert_eq!(get(server.data, "/api/v1/flags/?feature=secret", &SERVER).status, 200);
}

#[test]
fn request_without_valid_key_is_unauthorized() {
    let (_directory, server) = serving();
    for path in ["/api/v1/flags/", "/api/v1/identities/?identifier=x"] {
        let answer = get(server.data, path, &[(KEY, "nope\\")]);
        let body = r#"{"status":"unauthorized","message":"unknown key 'nope\\'"}"#;
        assert_eq!((answer.status, answer.body.as_str()), (401, body));
        let answer = get(server.data, path, &[]);
        assert_eq!(answer.status, 401);
        let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body["status"], "unauthorized");
    }
    assert_eq!(post(server.data, "/api/v1/identities/", &[], "{}").status, 401);
    // A header that is not UTF-8 is not a key.
    let mut connection = Connection::open(server.data);
    connection
        .send(b"GET /api/v1/flags/ HTTP/1.1\r\nhost: localhost\r\nx-environment-key: client-key\xff\r\n\r\n")
        .unwrap();
    let answer = connection.receive(false).unwrap();
    assert_eq!((answer.status, answer.body.contains("no key")), (401, true), "{}", answer.body);
}

#[test]
fn identities_with_equal_traits_get_equal_flags() {
    let mut many = environment("shop", CLIENT_KEY, 1);
    let banner = many.features.swap_remove(0);
    many.features = (1..200).map(|id| Feature { id, name: format!("banner {id}"), ..banner.clone() }).collect();
    let flags = many.features.iter().map(|feature| {
        let head = format!(r#"{{"feature":{{"id":{},"name":"{}","type":"STANDARD"}}"#, feature.id, feature.name);
        let value = if feature.id == 1 { "gold" } else { "plain" };
        format!(r#"{head},"enabled":true,"feature_state_value":"{value}"}}"#)
    });
    let gold = flags.collect::<Vec<_>>().join(",");
    let plain = gold.replace("gold", "plain");
    let directory = Directory::new();
    directory.volume("shop").publish_written(&write(&many, 1_000_000).unwrap());
    let server = start(directory.path(), |_| {});
    for number in 0..6 {
        for (plan, flags) in [("pro", &gold), ("free", &plain)] {
            let traits = format!(r#"[{{"trait_key":"plan","trait_value":"{plan}"}}]"#);
            let member = format!(r#""identifier":"user {number}","traits":{traits}"#);
            for identifier in ["once", "twice"] {
                let member = member.replace("user", identifier);
                let answer = post(server.data, "/api/v1/identities/", &CLIENT, &format!("{{{member}}}"));
                assert_eq!(answer.status, 200);
                assert_eq!(answer.body, format!(r#"{{{member},"flags":[{flags}]}}"#), "{number}");
            }
        }
    }
}

#[test]
fn identity_in_query_gets_its_flags() {
    let (_directory, server) = serving();
    let flags = client_flags(1);
    for path in ["/api/v1/identities/?identifier=a%20b&transient=true", "/api/v1/identities?identifier=a+b&feature="] {
        let answer = get(server.data, path, &CLIENT);
        assert_eq!(answer.body, format!(r#"{{"identifier":"a b","traits":[],"flags":{flags}}}"#));
        assert_eq!(answer.status, 200);
    }
    let answer = get(server.data, "/api/v1/identities/?identifier=somebody", &CLIENT);
    assert!(answer.body.contains(r#""feature_state_value":"mine""#), "{}", answer.body);
}

#[test]
fn identity_in_body_gets_its_flags_and_the_echo_of_its_traits() {
    let (_directory, server) = serving();
    let flags = client_flags(1);
    let gold = flags.replace("\"plain\"", "\"gold\"");
    let mine = flags.replace("\"plain\"", "\"mine\"");
    for (body, identifier, traits, flags) in [
        (r#"{"identifier":"x","traits":[]}"#, "\"x\"", "[]", &flags),
        (r#"{"identifier":"x"}"#, "\"x\"", "[]", &flags),
        (
            r#" {"traits":[ {"trait_value":"pro" , "transient":true,"trait_key":"plan","more":[{}]} ],"transient":true,"identifier":"x\u00f6\n"} "#,
            "\"xö\"", // without the white space around it
            r#"[{"trait_key":"plan","trait_value":"pro"}]"#,
            &gold,
        ),
        (
            r#"{"identifier":"x","traits":[{"trait_key":"plan","trait_value":"pro"},{"trait_key":"plan","trait_value":null}]}"#,
            "\"x\"",
            r#"[{"trait_key":"plan","trait_value":"pro"},{"trait_key":"plan","trait_value":null}]"#,
            &gold, // a trait without a value is left out
        ),
        (
            r#"{"traits":[{"trait_key":"plan","trait_value":"pro"}],"identifier":"y","identifier":"x","traits":[{"trait_key":"n"}]}"#,
            "\"x\"",
            r#"[{"trait_key":"n","trait_value":null}]"#,
            &flags,
        ),
        (
            r#"{"identifier":"x","traits":[{"trait_key":"a","trait_value":2.0},{"trait_key":"b","trait_value":-0},{"trait_key":"c","trait_value":true},{"trait_key":"d","trait_value":12345678901234567890123}]}"#,
            "\"x\"",
            r#"[{"trait_key":"a","trait_value":2.0},{"trait_key":"b","trait_value":0},{"trait_key":"c","trait_value":true},{"trait_key":"d","trait_value":12345678901234567890123}]"#,
            &flags,
        ),
        (
            r#"{"identifier":"somebody","traits":[{"trait_key":"plan","trait_value":"pro"}]}"#,
            "\"somebody\"",
            r#"[{"trait_key":"plan","trait_value":"pro"}]"#,
            &mine,
        ),
    ] {
        let answer = post(server.data, "/api/v1/identities/", &CLIENT, body);
        assert_eq!(
            answer.body,
            format!(r#"{{"identifier":{identifier},"traits":{traits},"flags":{flags}}}"#),
            "{body}"
        );
        assert_eq!(answer.status, 200);
    }
}

#[test]
fn anonymous_identity_gets_an_identifier() {
    let (_directory, server) = serving();
    let name = |body: &str| {
        let answer = post(server.data, "/api/v1/identities", &CLIENT, body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        body["identifier"].as_str().unwrap().to_owned()
    };
    let traits = r#""traits":[{"trait_key":"plan","trait_value":"pro"}]"#;
    // SHA-256 of "planpro".
    let digest = "9746f9086f61e37ea956bac460df92fc8108e27b344f6b716dab539fcd89e75b";
    assert_eq!(name(&format!("{{{traits}}}")), digest);
    assert_eq!(name(&format!(r#"{{"identifier":null,{traits}}}"#)), digest);
    assert_eq!(name(&format!(r#"{{"identifier":"",{traits}}}"#)), digest);
    assert_eq!(name("{}").len(), 32);
    assert_ne!(name("{}"), name("{}"));
    for query in ["", "?identifier=", "?transient=true"] {
        let answer = get(server.data, &format!("/api/v1/identities/{query}"), &CLIENT);
        assert!(answer.body.starts_with(r#"{"identifier":""#) && answer.status == 200, "{}", answer.body);
    }
}

#[test]
fn invalid_body_is_refused_with_its_location() {
    let (_directory, server) = serving();
    let long = "x".repeat(2001);
    for (body, kind, place) in [
        (" ", "json_invalid", "[\"body\",1]"),
        ("{", "json_invalid", "[\"body\",1]"),
        ("{\"identifier\":\"\\ud800\"}", "json_invalid", "[\"body\",21]"),
        ("[]", "model_attributes_type", "[\"body\"]"),
        ("{\"identifier\":[5]}", "string_type", "[\"body\",\"identifier\"]"),
        ("{\"identifier\":\"x\",\"traits\":null}", "list_type", "[\"body\",\"traits\"]"),
        ("{\"identifier\":\"x\",\"traits\":{}}", "list_type", "[\"body\",\"traits\"]"),
        ("{\"identifier\":\"x\",\"traits\":[1]}", "model_attributes_type", "[\"body\",\"traits\",0]"),
        ("{\"identifier\":\"x\",\"traits\":[{\"trait_value\":1}]}", "missing", "[\"body\",\"traits\",0,\"trait_key\"]"),
        (
            "{\"identifier\":\"x\",\"traits\":[{\"trait_key\":{}}]}",
            "string_type",
            "[\"body\",\"traits\",0,\"trait_key\"]",
        ),
        (
            &format!(
                "{{\"traits\":[{{\"trait_key\":\"a\"}},{{\"trait_key\":\"b\",\"trait_value\":[\"{}\"]}}]}}",
                "x".repeat(1997)
            ),
            "string_too_long",
            "[\"body\",\"traits\",1,\"trait_value\"]",
        ),
        (
            &format!("{{\"identifier\":\"x\",\"traits\":[{{\"trait_key\":\"b\",\"trait_value\":\"{long}\"}}]}}"),
            "string_too_long",
            "[\"body\",\"traits\",0,\"trait_value\"]",
        ),
    ] {
        let answer = post(server.data, "/api/v1/identities/", &CLIENT, body);
        assert_eq!(answer.status, 400, "{body}");
        let detail: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(detail["detail"][0]["type"], kind, "{body}: {}", answer.body);
        assert_eq!(detail["detail"][0]["loc"].to_string(), place, "{body}");
    }
    let invalid = support::client::Connection::open(server.data)
        .request("POST", "/api/v1/identities/", &CLIENT, Some(b"{\"identifier\":\"\xff\"}"))
        .unwrap();
    assert_eq!(invalid.status, 400);
    // Flagsmith's limits count characters, not bytes.
    let accepted = format!("{{\"traits\":[{{\"trait_key\":\"b\",\"trait_value\":\"{}\"}}]}}", "ö".repeat(2000));
    assert_eq!(post(server.data, "/api/v1/identities/", &CLIENT, &accepted).status, 200);
}

#[test]
fn health_answer_has_the_form_of_the_edge_proxy() {
    let (_directory, server) = serving();
    for path in ["/health", "/health/", "/proxy/health", "/proxy/health/readiness"] {
        let answer = get(server.data, path, &[]);
        assert_eq!(answer.status, 200);
        let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((&body["status"], &body["reason"]), (&"ok".into(), &serde_json::Value::Null));
        let time = body["last_successful_update"].as_str().unwrap();
        assert!(time.len() == "2026-11-21T00:14:21.746216".len() && time.starts_with("20"), "{time}");
    }
    let answer = get(server.data, "/proxy/health/liveness", &[]);
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
}

#[test]
fn unknown_method_or_path_is_refused() {
    let (_directory, server) = serving();
    for (method, path, allowed) in [
        ("POST", "/api/v1/flags/", "GET, HEAD"),
        ("DELETE", "/api/v1/identities/", "GET, HEAD, POST"),
        ("OPTIONS", "/health", "GET, HEAD"),
        ("GET", "/ofrep/v1/evaluate/flags", "POST"),
        ("PUT", "/ofrep/v1/evaluate/flags/x", "POST"),
    ] {
        let answer = call(server.data, method, path, &CLIENT, None);
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allowed)), "{method} {path}");
        assert_eq!(answer.body, r#"{"detail":"Method Not Allowed"}"#);
    }
    let answer = get(server.data, "/api/v2/flags/", &CLIENT);
    assert_eq!((answer.status, answer.body.as_str()), (404, r#"{"detail":"Not Found"}"#));
}

#[test]
fn environments_are_distinguished_by_their_keys() {
    let directory = Directory::new();
    for (name, key, revision) in [("one", "client-one", 1), ("two", "client-two", 2)] {
        let written = remora_snapshot::write(&environment(name, key, revision), 1_000_000).unwrap();
        directory.volume(name).publish_written(&written);
    }
    let server = start(directory.path(), |_| {});
    for (key, revision) in [("client-one", 1), ("client-two", 2)] {
        assert_eq!(get(server.data, "/api/v1/flags/", &[(KEY, key)]).body, client_flags(revision));
    }
    assert!(get(server.data, "/api/v1/flags/", &[(KEY, "ser.server-two")]).body.contains("secret"));
    assert_eq!(get(server.data, "/api/v1/flags/", &[(KEY, "nope")]).status, 401);
}

#[test]
fn request_before_data_arrives_gets_503() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let server = start(directory.path(), |options| options.environments = vec!["later".to_owned()]);
    let missing = r#"{"status":"service_unavailable","message":"Environment not loaded"}"#;
    for path in ["/api/v1/flags/", "/api/v1/identities/?identifier=x"] {
        let answer = get(server.data, path, &CLIENT);
        assert_eq!((answer.status, answer.body.as_str()), (503, missing));
    }
    let answer = get(server.data, "/proxy/health", &[]);
    let body = r#"{"status":"error","reason":"environment document(s) not updated.","last_successful_update":null}"#;
    assert_eq!((answer.status, answer.body.as_str()), (503, body));
    volume.publish_written(&written(1));
    server.await_metric(r#"remora_sidecar_loaded{environment="shop"}"#, |loaded| loaded == 1.0);
    // One of two environments is loaded: its keys are valid, and all others may belong to the other environment.
    assert_eq!(get(server.data, "/api/v1/flags/", &CLIENT).status, 200);
    assert_eq!(get(server.data, "/api/v1/flags/", &[(KEY, "nope")]).status, 503);
    assert_eq!(get(server.data, "/proxy/health", &[]).status, 503);
}

#[test]
fn reported_flag_uses_are_counted_by_known_names() {
    let (_directory, server) = serving();
    const PATH: &str = "/api/v1/analytics/flags/";
    let use_of =
        |flag: &str| server.metric(&format!(r#"remora_sidecar_flag_uses_total{{environment="shop",flag="{flag}"}}"#));
    let other = || server.metric(r#"remora_sidecar_other_flag_uses_total{environment="shop"}"#);
    for _ in 0..2 {
        let answer = post(server.data, PATH, &CLIENT, r#"{"banner": 3, "dark mode": 1, "nope": 2, "x": 5}"#);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    }
    assert_eq!(
        (use_of("banner"), use_of("dark mode"), use_of("nope"), other()),
        (Some(6.0), Some(2.0), None, Some(14.0))
    );
    // A value that is not a count is skipped. A body that is empty or not an object counts nothing.
    assert_eq!(post(server.data, PATH, &CLIENT, r#"{"banner": -1, "limit": "7", "banner": 1.5}"#).status, 200);
    assert_eq!(post(server.data, PATH, &CLIENT, "").status, 200);
    for wrong in [" ", "[]", "{", r#"{"banner": 1"#, r#"{"banner": 1}}"#] {
        assert_eq!(post(server.data, PATH, &CLIENT, wrong).status, 400, "{wrong}");
    }
    assert_eq!(post(server.data, PATH, &[], "{}").status, 401);
    assert_eq!(get(server.data, PATH, &CLIENT).header("allow"), Some("POST"));
    assert_eq!((use_of("banner"), use_of("limit")), (Some(6.0), None));
    let names: Vec<String> = (0..10_000).map(|number| format!("\"name-{number}\":1")).collect();
    assert_eq!(post(server.data, PATH, &CLIENT, &format!("{{{}}}", names.join(","))).status, 200);
    assert_eq!(other(), Some(10_014.0));
}

#[test]
fn evaluations_are_counted_by_environment_and_route() {
    let (_directory, server) = serving();
    get(server.data, "/api/v1/flags/", &CLIENT);
    get(server.data, "/api/v1/identities/?identifier=x", &CLIENT);
    post(server.data, "/api/v1/identities/", &CLIENT, "{}");
    post(server.data, "/ofrep/v1/evaluate/flags/banner", &[], "{}");
    get(server.data, "/api/v1/flags/", &[(KEY, "nope")]);
    // Requests that are refused evaluate nothing.
    let long = format!("/api/v1/identities/?identifier={}", "x".repeat(2_001));
    assert_eq!(get(server.data, &long, &CLIENT).status, 400);
    for path in ["/api/v1/identities/", "/ofrep/v1/evaluate/flags/banner", "/ofrep/v1/evaluate/flags"] {
        assert_eq!(post(server.data, path, &CLIENT, "{").status, 400, "{path}");
    }
    // Neither do requests for a flag that does not exist.
    for path in ["/api/v1/flags/?feature=nope", "/api/v1/identities/?identifier=x&feature=nope"] {
        assert_eq!(get(server.data, path, &CLIENT).status, 404, "{path}");
    }
    assert_eq!(post(server.data, "/ofrep/v1/evaluate/flags/nope", &[], "{}").status, 404);
    let tag = post(server.data, "/ofrep/v1/evaluate/flags", &[], "{}").header("etag").unwrap().to_owned();
    assert_eq!(post(server.data, "/ofrep/v1/evaluate/flags", &[("if-none-match", &tag)], "{}").status, 304);
    for (route, count) in [("flags", 1.0), ("identities", 2.0), ("ofrep_flag", 1.0), ("ofrep_flags", 1.0)] {
        let line = format!(r#"remora_sidecar_evaluations_total{{environment="shop",route="{route}"}}"#);
        assert_eq!(server.metric(&line), Some(count), "{route}");
    }
}
