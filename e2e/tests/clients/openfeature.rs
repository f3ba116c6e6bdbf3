//! OpenFeature's SDKs with their OFREP providers. None of these versions reads `OFREP_ENDPOINT` itself: each program
//! passes its value to the provider, and changes nothing else.

use std::convert::identity;

use serde_json::{Value, json};

use crate::client::Client;
use crate::expected::{Expected, Role};
use crate::sidecar::Sidecar;

/// Runs a client with a sidecar. Its answers must be those of `expected.json`, with the exceptions for `who`, as this
/// provider understands them. Repeats this with a sidecar that returns strings with JSON objects as objects.
async fn answers_of(path: &str, who: &str, understood: impl Fn(Value) -> Value) -> Value {
    answers_to("ofrep_objects", &["--ofrep-object-flags", "object"], path, who, &understood).await;
    answers_to("ofrep", &[], path, who, &understood).await
}

async fn answers_to(list: &str, choices: &[&str], path: &str, who: &str, understood: impl Fn(Value) -> Value) -> Value {
    let expected = Expected::read();
    let sidecar = Sidecar::start_with(&expected, choices).await;
    let mut plan = expected.plan(Role::Client);
    plan["server_key"] = expected.key(Role::Server).into();
    let questions = expected.questions(list);
    plan["questions"] = questions.iter().map(|question| question.asked.clone()).collect();
    let answers = Client::run(path, Some(&sidecar), plan).await.finish().await;
    let given = answers["questions"].as_array().expect("a list of answers");
    assert_eq!(given.len(), questions.len());
    for (question, given) in questions.iter().zip(given) {
        assert_eq!(given, &understood(question.answer(who).clone()), "{}", question.asked);
    }
    sidecar.stop().await;
    answers
}

const REFUSED: fn() -> Value = || json!({"value": false, "reason": "ERROR", "error": "GENERAL"});

#[tokio::test]
async fn python_gets_expected_flags() {
    let answers = answers_of("python/ofrep.py", "python", identity).await;
    assert_eq!(answers["metadata"], json!({"featureId": 105, "enabled": true}));
    assert_eq!(answers["server_key"], json!({"value": 40, "reason": "TARGETING_MATCH", "variant": ""}));
    assert_eq!((&answers["wrong_key"], &answers["server_down"]), (&REFUSED(), &REFUSED()));
}

#[tokio::test]
async fn node_gets_expected_flags() {
    let answers = answers_of("node/ofrep.js", "node", identity).await;
    assert_eq!(answers["metadata"], json!({"featureId": 105, "enabled": true}));
    assert_eq!(answers["server_key"], json!({"value": 40, "reason": "TARGETING_MATCH", "variant": ""}));
    assert_eq!((&answers["wrong_key"], &answers["server_down"]), (&REFUSED(), &REFUSED()));
}

#[tokio::test]
async fn web_gets_expected_flags() {
    let answers = answers_of("node/ofrep_web.js", "web", identity).await;
    assert_eq!(answers["metadata"], json!({"featureId": 105, "enabled": true}));
    assert_eq!(answers["server_key"], json!({"value": 40, "reason": "TARGETING_MATCH", "variant": ""}));
    // The client's status holds the error; the provider then reports every flag as not found.
    for (what, status) in [("wrong_key", "FATAL"), ("server_down", "ERROR")] {
        let seen = json!({"status": status, "value": false, "reason": "ERROR", "error": "FLAG_NOT_FOUND"});
        assert_eq!(answers[what], seen, "{what}");
    }
    assert_eq!(answers["polling"], json!({"fetched": [200, 304, 304, 304], "changes": 0, "value": 25}));
}

#[tokio::test]
async fn rust_gets_expected_flags() {
    // This version always reports `STATIC`, whatever the reason is.
    let reason = |mut answer: Value| {
        if answer.get("error").is_none() {
            answer["reason"] = "STATIC".into();
        }
        answer
    };
    let answers = answers_of("rust/ofrep", "rust", reason).await;
    assert_eq!(answers["server_key"], json!({"value": 40, "reason": "STATIC", "variant": ""}));
    assert_eq!((&answers["wrong_key"], &answers["server_down"]), (&REFUSED(), &REFUSED()));
}

#[tokio::test]
async fn java_gets_expected_flags() {
    let answers = answers_of("java/ofrep/Ofrep.java", "java", identity).await;
    assert_eq!(answers["metadata"], json!({"featureId": 105, "enabled": true}));
    assert_eq!(answers["server_key"], json!({"value": 40, "reason": "TARGETING_MATCH", "variant": ""}));
    assert_eq!((&answers["wrong_key"], &answers["server_down"]), (&REFUSED(), &REFUSED()));
}

#[tokio::test]
async fn go_gets_expected_flags() {
    let answers = answers_of("go/ofrep", "go", identity).await;
    assert_eq!(answers["metadata"], json!({"featureId": 105, "enabled": true}));
    assert_eq!(answers["server_key"], json!({"value": 40, "reason": "TARGETING_MATCH", "variant": ""}));
    assert_eq!((&answers["wrong_key"], &answers["server_down"]), (&REFUSED(), &REFUSED()));
}
