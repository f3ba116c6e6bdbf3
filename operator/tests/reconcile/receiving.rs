//! Signed webhooks of the source trigger a fetch; without a usable secret, the environment is only polled.

use std::{slice::from_ref, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use remora_operator::source::{receiver::Verdict, trigger::Trigger};
use ring::hmac;
use serde_json::{Value, json};

use super::{Cluster, Operator, document, fenv, is, pass, upstream::Upstream};

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
    let mut triggers = operator.context.triggers().unwrap();
    let request = tokio::time::timeout(Duration::from_secs(10), triggers.recv()).await.unwrap().unwrap();
    assert_eq!((request.name.as_str(), request.trigger), ("storefront", Trigger::FetchWhole));
}

#[tokio::test]
async fn environment_without_usable_secret_is_polled() {
    let cluster = Cluster::default();
    put_secret(&cluster, "short");
    let server = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    operator.turn(fenv(1, &spec(&server))).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
    let standing = cluster.last_status()["webhook"].as_str().unwrap().to_owned();
    assert!(standing.starts_with("polled only: ") && standing.contains("16 to 1,024 characters"), "{standing}");
    assert!(!standing.contains("short"), "{standing}");

    // The Secret is read again after a minute.
    put_secret(&cluster, SECRET);
    operator.turn(reported(&cluster, &spec(&server))).await;
    assert_eq!(cluster.last_status()["webhook"], standing);
    pass(Duration::from_secs(61)).await;
    operator.turn(reported(&cluster, &spec(&server))).await;
    assert_eq!(cluster.last_status()["webhook"], "receiving");
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
