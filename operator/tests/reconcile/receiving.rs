//! Signed webhooks of the source trigger a fetch; without a usable secret, the environment is only polled.

use std::{slice::from_ref, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::core::DeserializeGuard;
use remora_operator::{
    api::FeatureEnvironment,
    controller::reconcile::reconcile,
    source::{receiver::Verdict, trigger::Trigger},
};
use ring::hmac;
use serde_json::{Value, json};

use super::{Cluster, Operator, document, fenv, is, pass, settle, until, upstream::Upstream, wait};

const SECRET: &str = "a secret of the shop";

fn put_secret(cluster: &Cluster, secret: &str) {
    let metadata = json!({"name": "hook", "namespace": "shop", "labels": {"remora.dev/environment-key": "true"}});
    let data = json!({"webhook-secret": BASE64_STANDARD.encode(secret)});
    cluster.put_as("secret/hook", &json!({"metadata": metadata, "data": data}));
}

fn sign(secret: &str, body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body);
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn spec(server: &Upstream) -> Value {
    let mut spec = server.spec();
    spec["source"]["flagsmith"]["webhook"] = json!({"secretKeyRef": {"name": "hook"}});
    spec
}

fn reported(cluster: &Cluster, spec: &Value) -> Value {
    let mut object = fenv(1, spec);
    object["status"] = cluster.last_status();
    object
}

#[tokio::test]
async fn signed_webhook_triggers_fetch_of_its_environment() {
    let cluster = Cluster::default();
    put_secret(&cluster, SECRET);
    let server = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    operator.turn(fenv(1, &spec(&server))).await;
    assert_eq!(cluster.last_status()["webhook"], "receiving");
    let receive =
        |secret: &str| operator.receiver.receive("shop", Some("storefront"), Some(&sign(secret, b"{}")), b"{}");
    assert_eq!(receive("another secret, as long"), Verdict::Refused);
    assert_eq!(receive(SECRET), Verdict::Accepted);
    let mut triggers = operator.context.trigger_requests().unwrap();
    let request = tokio::time::timeout(Duration::from_secs(10), triggers.recv()).await.unwrap().unwrap();
    assert_eq!((request.environment.name.as_str(), request.trigger), ("storefront", Trigger::FetchWhole));
}

#[tokio::test]
async fn environment_without_usable_secret_is_polled() {
    let cluster = Cluster::default();
    put_secret(&cluster, "short");
    let server = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    operator.turn(fenv(1, &spec(&server))).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
    let state_text = cluster.last_status()["webhook"].as_str().unwrap().to_owned();
    assert!(state_text.starts_with("polled only: ") && state_text.contains("16 to 1,024 characters"), "{state_text}");
    assert!(!state_text.contains("short"), "{state_text}");

    // The Secret is read again after a minute.
    put_secret(&cluster, SECRET);
    operator.turn(reported(&cluster, &spec(&server))).await;
    assert_eq!(cluster.last_status()["webhook"], state_text);
    pass(Duration::from_secs(61)).await;
    operator.turn(reported(&cluster, &spec(&server))).await;
    assert_eq!(cluster.last_status()["webhook"], "receiving");
}

/// Webhooks that are repeated share the next fetch, which waits the longer, the more the last one cost the server.
#[tokio::test]
async fn webhooks_of_costly_environment_wait_for_its_pause() {
    let cluster = Cluster::default();
    put_secret(&cluster, SECRET);
    let server = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    cluster.observe(&mut operator.writer);
    let answering = server.stall().await;
    let object: DeserializeGuard<FeatureEnvironment> = serde_json::from_value(fenv(1, &spec(&server))).unwrap();
    let reconciling = tokio::spawn(reconcile(Arc::new(object), Arc::clone(&operator.context)));
    until("the source is asked", || server.asked() > 0).await;
    // Six of the 120 s of requests that the server may be asked for in a minute.
    pass(Duration::from_secs(6)).await;
    drop(answering);
    reconciling.await.unwrap().unwrap();
    assert_eq!(cluster.last_status()["webhook"], "receiving");

    let mut triggers = operator.context.trigger_requests().unwrap();
    let receive = || operator.receiver.receive("shop", Some("storefront"), Some(&sign(SECRET, b"{}")), b"{}");
    assert_eq!(receive(), Verdict::Accepted);
    let soon = Duration::from_secs(10);
    tokio::time::timeout(soon, triggers.recv()).await.unwrap().unwrap();
    assert_eq!(receive(), Verdict::Accepted);
    settle().await;
    pass(Duration::from_secs(1)).await;
    settle().await;
    assert!(triggers.try_recv().is_err(), "the pause is too short");
    pass(Duration::from_secs(3)).await;
    tokio::time::timeout(soon, triggers.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn webhook_is_accepted_during_first_fetch() {
    let cluster = Cluster::default();
    put_secret(&cluster, SECRET);
    let server = Upstream::start(&document("a")).await;
    let operator = Operator::start_with(&cluster, from_ref(&server.origin));
    let mut writer = operator.writer;
    cluster.observe(&mut writer);
    let answering = server.stall().await;
    let object: DeserializeGuard<FeatureEnvironment> = serde_json::from_value(fenv(1, &spec(&server))).unwrap();
    let reconciling = tokio::spawn(reconcile(Arc::new(object), Arc::clone(&operator.context)));
    until("the source is asked", || server.asked() > 0).await;
    let verdict = operator.receiver.receive("shop", Some("storefront"), Some(&sign(SECRET, b"{}")), b"{}");
    assert_eq!(verdict, Verdict::Accepted);
    drop(answering);
    reconciling.await.unwrap().unwrap();
}

/// The edit does not concern the webhook.
#[tokio::test]
async fn secret_that_cannot_be_read_after_edit_stays_in_use() {
    let cluster = Cluster::default();
    put_secret(&cluster, SECRET);
    let server = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    operator.turn(fenv(1, &spec(&server))).await;
    cluster.hide_secrets();
    let receive =
        |operator: &Operator| operator.receiver.receive("shop", Some("storefront"), Some(&sign(SECRET, b"{}")), b"{}");
    let (_, calls) = operator.turn(fenv(2, &spec(&server))).await;
    assert!(calls.iter().any(|call| call == "get secret/hook"), "{calls:?}");
    assert_eq!((&cluster.last_status()["webhook"], receive(&operator)), (&json!("receiving"), Verdict::Accepted));
    // The secret of another reference is not known.
    let mut edited = spec(&server);
    edited["source"]["flagsmith"]["webhook"]["secretKeyRef"]["key"] = json!("other");
    operator.turn(fenv(3, &edited)).await;
    assert_eq!(receive(&operator), Verdict::Refused);
}

/// A read that fails says nothing about the Secret.
#[tokio::test]
async fn secret_that_cannot_be_read_again_stays_in_use() {
    let cluster = Cluster::default();
    put_secret(&cluster, SECRET);
    let server = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    operator.turn(fenv(1, &spec(&server))).await;
    let receive =
        |operator: &Operator| operator.receiver.receive("shop", Some("storefront"), Some(&sign(SECRET, b"{}")), b"{}");
    cluster.hide_secrets();
    for _ in 0..3 {
        pass(Duration::from_secs(61)).await;
        let (action, calls) = operator.turn(reported(&cluster, &spec(&server))).await;
        assert_eq!(calls.iter().filter(|call| *call == "get secret/hook").count(), 1, "{calls:?}");
        assert_eq!((&cluster.last_status()["webhook"], receive(&operator)), (&json!("receiving"), Verdict::Accepted));
        assert!(wait(&action) > Duration::from_secs(1), "the Secret is read without rest: {action:?}");
        let (_, calls) = operator.turn(reported(&cluster, &spec(&server))).await;
        assert!(calls.is_empty(), "{calls:?}");
    }

    // A new process has no secret that it could go on with.
    let mut restarted = Operator::start_with(&cluster, from_ref(&server.origin));
    restarted.turn(reported(&cluster, &spec(&server))).await;
    let state_text = cluster.last_status()["webhook"].as_str().unwrap().to_owned();
    assert!(state_text.starts_with("polled only: ") && state_text.contains("secrets is forbidden"), "{state_text}");
    assert_eq!(receive(&restarted), Verdict::Refused);
}

#[tokio::test]
async fn removed_or_suspended_webhook_is_refused() {
    let cluster = Cluster::default();
    put_secret(&cluster, SECRET);
    let server = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    let mut suspended = spec(&server);
    suspended["suspend"] = json!(true);
    for without in [server.spec(), suspended] {
        operator.turn(fenv(1, &spec(&server))).await;
        let signature = sign(SECRET, b"{}");
        let receive = |operator: &Operator| operator.receiver.receive("shop", None, Some(&signature), b"{}");
        assert_eq!(receive(&operator), Verdict::Accepted);
        operator.turn(fenv(2, &without)).await;
        assert_eq!(receive(&operator), Verdict::Refused);
        assert_eq!(cluster.last_status()["webhook"], Value::Null);
    }
}
