//! The annotation `remora.dev/refresh` requests a fetch now, and the status names the request that was served.

use std::{slice::from_ref, time::Duration};

use serde_json::{Value, json};

use super::{Cluster, Operator, asks_source, document, fenv, flags, is, pass, reported, upstream::Upstream, wait};

/// Returns the object of the last report with this request.
fn requesting(cluster: &Cluster, spec: &Value, request: &str) -> Value {
    let mut object = fenv(1, spec);
    object["status"] = cluster.last_status();
    object["metadata"]["annotations"] = json!({"remora.dev/refresh": request});
    object
}

#[tokio::test]
async fn request_fetches_now_and_only_once() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    assert_eq!(cluster.last_status()["lastRefresh"], Value::Null);

    cluster.put(&flags(&document("b")));
    let (_, calls) = operator.turn(reported(&cluster, 1)).await;
    assert!(!asks_source(&calls), "a fetch was due: {calls:?}");
    let before = cluster.last_status()["revision"].clone();
    let (_, calls) = operator.turn(requesting(&cluster, &json!({}), "1")).await;
    assert!(asks_source(&calls), "{calls:?}");
    assert_eq!(cluster.last_status()["lastRefresh"], "1");
    assert_ne!(cluster.last_status()["revision"], before);

    let (_, calls) = operator.turn(requesting(&cluster, &json!({}), "1")).await;
    assert!(calls.is_empty(), "{calls:?}");
    let (_, calls) = Operator::start(&cluster).turn(requesting(&cluster, &json!({}), "1")).await;
    assert!(calls.is_empty(), "after a restart: {calls:?}");
}

#[tokio::test]
async fn request_ignores_back_off_of_failing_source() {
    let cluster = Cluster::default();
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    operator.turn(requesting(&cluster, &json!({}), "1")).await;
    is(&cluster.last_status(), "Fetched", ("False", "ConfigMapNotFound"));
    assert_eq!(cluster.last_status()["lastRefresh"], "1", "a failed fetch serves the request, too");
    // Failures in a row make the back-off longer than the pause between two requests.
    for _ in 0..8 {
        let (action, _) = operator.turn(requesting(&cluster, &json!({}), "1")).await;
        pass(wait(&action)).await;
    }
    let (action, _) = operator.turn(requesting(&cluster, &json!({}), "1")).await;
    assert!(wait(&action) > Duration::from_secs(10), "{action:?}");
    cluster.put(&flags(&document("a")));
    let (_, calls) = operator.turn(requesting(&cluster, &json!({}), "1")).await;
    assert!(!asks_source(&calls), "the source is not in back-off: {calls:?}");
    let (_, calls) = operator.turn(requesting(&cluster, &json!({}), "2")).await;
    assert!(asks_source(&calls), "{calls:?}");
    is(&cluster.last_status(), "Fetched", ("True", "Synced"));
    assert_eq!(cluster.last_status()["lastRefresh"], "2");
}

#[tokio::test]
async fn requests_in_quick_succession_share_one_later_fetch() {
    let cluster = Cluster::default();
    let server = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    operator.turn(fenv(1, &server.spec())).await;
    operator.turn(requesting(&cluster, &server.spec(), "1")).await;
    let asked = server.asked();
    for request in ["2", "3", "4"] {
        let (action, _) = operator.turn(requesting(&cluster, &server.spec(), request)).await;
        assert!(wait(&action) <= Duration::from_secs(5), "{action:?}");
    }
    assert_eq!((server.asked(), &cluster.last_status()["lastRefresh"]), (asked, &json!("1")));
    pass(Duration::from_secs(5)).await;
    operator.turn(requesting(&cluster, &server.spec(), "4")).await;
    assert_eq!((server.asked(), &cluster.last_status()["lastRefresh"]), (asked + 1, &json!("4")));
}

#[tokio::test]
async fn request_of_suspended_environment_waits() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let (_, calls) = operator.turn(requesting(&cluster, &json!({"suspend": true}), "1")).await;
    assert!(!asks_source(&calls), "{calls:?}");
    assert_eq!(cluster.last_status()["lastRefresh"], Value::Null);
    operator.turn(requesting(&cluster, &json!({}), "1")).await;
    assert_eq!(cluster.last_status()["lastRefresh"], "1");
}

#[tokio::test]
async fn request_of_any_length_is_served_once() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let long = "ä".repeat(10_000);
    operator.turn(requesting(&cluster, &json!({}), &long)).await;
    assert_eq!(cluster.last_status()["lastRefresh"], "ä".repeat(64));
    let (_, calls) = operator.turn(requesting(&cluster, &json!({}), &long)).await;
    assert!(calls.is_empty(), "{calls:?}");
}
