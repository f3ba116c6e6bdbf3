//! Pods that are notified of a published revision.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Cluster, Operator, document, fenv, flags, reported};

fn pod(number: usize) -> Value {
    let annotations = json!({"remora.dev/inject": "storefront"});
    json!({"metadata": {"namespace": "shop", "name": format!("web-{number}"), "annotations": annotations}})
}

/// Waits until this many pods are notified, and returns all calls.
async fn notified(cluster: &Cluster, count: usize) -> Vec<String> {
    let mut calls = Vec::new();
    let all = async {
        while calls.iter().filter(|call: &&String| call.starts_with("nudge ")).count() < count {
            calls.extend(cluster.calls());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("not all pods are notified");
    calls
}

#[tokio::test]
async fn change_notifies_each_pod_once_and_lists_none() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    cluster.run((0..50).map(pod).collect());
    let mut operator = Operator::start(&cluster);
    let (_, mut calls) = operator.turn(fenv(1, &json!({}))).await;
    let before = calls.iter().filter(|call| call.starts_with("nudge ")).count();
    calls.extend(notified(&cluster, 50 - before).await);
    let mut pods: Vec<&String> = calls.iter().filter(|call| call.starts_with("nudge ")).collect();
    pods.sort();
    pods.dedup();
    assert_eq!(pods.len(), 50, "{calls:?}");
    assert!(!calls.contains(&"list pods".to_owned()), "{calls:?}");
    assert!(calls.contains(&"report".to_owned()), "the status does not wait for the pods");

    let (_, calls) = operator.turn(reported(&cluster, 1)).await;
    assert!(calls.is_empty(), "{calls:?}");
}

/// Some pods can never be patched, such as those whose annotations are full.
#[tokio::test]
async fn pods_that_cannot_be_notified_do_not_get_a_request_in_each_reconciliation() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    cluster.run((0..3).map(pod).collect());
    cluster.refuse("web-1", 422, "metadata.annotations: Too long");
    let mut operator = Operator::start(&cluster);
    let (_, mut calls) = operator.turn(fenv(1, &json!({}))).await;
    let before = calls.iter().filter(|call| call.starts_with("nudge ")).count();
    calls.extend(notified(&cluster, 3 - before).await);
    for _ in 0..20 {
        let (_, more) = operator.turn(reported(&cluster, 1)).await;
        calls.extend(more);
    }
    let nudges = calls.iter().filter(|call| *call == "nudge web-1").count();
    // On a slow machine, the back-off ends before the last turn.
    assert!(nudges < 5, "{nudges} of 21 turns: {calls:?}");
}
