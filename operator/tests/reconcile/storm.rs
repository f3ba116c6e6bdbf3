//! A server that fails for many environments at once.

use std::{sync::Arc, time::Duration};

use kube::core::DeserializeGuard;
use remora_operator::{api::FeatureEnvironment, controller::reconcile::reconcile};
use serde_json::{Value, json};

use super::{Cluster, Operator, document, fenv, upstream::Upstream};

const ENVIRONMENTS: usize = 60;

/// Reconciles all environments repeatedly, as often as a controller may, until `is_over`.
async fn turns(operator: &mut Operator, objects: &[Value], is_over: impl Fn(&Cluster, usize) -> bool) {
    for round in 0.. {
        operator.cluster.observe(&mut operator.writer);
        if is_over(&operator.cluster, round) {
            return;
        }
        let all = objects.iter().map(|object| {
            let object: DeserializeGuard<FeatureEnvironment> = serde_json::from_value(object.clone()).unwrap();
            reconcile(Arc::new(object), Arc::clone(&operator.context))
        });
        for outcome in futures::future::join_all(all).await {
            outcome.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn server_errors_for_many_environments_cause_few_requests_and_end() {
    let cluster = Cluster::default();
    let upstream = Upstream::start(&document("a")).await;
    upstream.fail(true);
    let objects: Vec<Value> = (0..ENVIRONMENTS)
        .map(|number| {
            let mut object = fenv(1, &upstream.spec());
            object["metadata"]["name"] = json!(format!("environment-{number}"));
            object["metadata"]["uid"] = json!(format!("uid-{number}"));
            object
        })
        .collect();
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&upstream.origin));
    turns(&mut operator, &objects, |_, round| round == 30).await;
    let asked = upstream.asked();
    // Expected are the concurrent requests to one server and occasional probes. Without a circuit breaker, each
    // environment would send several.
    assert!((3..ENVIRONMENTS / 2).contains(&asked), "{asked} requests");
    assert!(cluster.ours().is_empty());

    upstream.fail(false);
    let well = turns(&mut operator, &objects, |cluster, _| cluster.ours().len() == ENVIRONMENTS);
    tokio::time::timeout(Duration::from_secs(120), well).await.expect("it did not end for all");
    // One request for each environment, and those of environments that tried during the failure.
    assert!(upstream.asked() - asked <= ENVIRONMENTS + 3, "{} requests", upstream.asked() - asked);
}
