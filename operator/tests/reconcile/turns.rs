//! Environments of one namespace beyond the reconciliations that it may have at one time: the runtime reconciles them when
//! their turn comes.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use remora_operator::controller::reconcile::run;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Cluster, document, fenv, flags, watches::deps};

/// More environments than a namespace has reconciliations at one time.
const ENVIRONMENTS: usize = 80;

fn core(number: usize) -> String {
    format!("remora-environment-{number}-v3-core")
}

fn list(path: &str, cluster: &Cluster) -> Value {
    let environment = |number: usize| {
        let mut object = fenv(1, &json!({"refresh": {"interval": "24h"}}));
        object["metadata"]["name"] = json!(format!("environment-{number}"));
        object["metadata"]["uid"] = json!(format!("uid-{number}"));
        object
    };
    let (kind, version, items) = if path.ends_with("featureenvironments") {
        ("FeatureEnvironmentList", "remora.dev/v1alpha1", (0..ENVIRONMENTS).map(environment).collect())
    } else if path.ends_with("/pods") {
        ("PodList", "v1", Vec::new())
    } else {
        ("PartialObjectMetadataList", "meta.k8s.io/v1", cluster.ours())
    };
    json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items})
}

/// Returns an API server that answers writes of statuses only once `is_open` is true. `reporting` counts those that wait for
/// that.
fn client(cluster: &Cluster, is_open: watch::Receiver<bool>, reporting: Arc<AtomicUsize>) -> Client {
    let cluster = cluster.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (cluster, mut is_open, reporting) = (cluster.clone(), is_open.clone(), Arc::clone(&reporting));
        async move {
            let (parts, body) = request.into_parts();
            let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
            if query.contains("watch=true") {
                pending::<()>().await;
            }
            if parts.method == "PATCH" && path.ends_with("/status") && !*is_open.borrow() {
                reporting.fetch_add(1, Ordering::Relaxed);
                is_open.wait_for(|open| *open).await.unwrap();
            }
            let is_list = ["/configmaps", "/featureenvironments", "/pods"].iter().any(|end| path.ends_with(end));
            let (status, answer) = if is_list {
                (200, list(path, &cluster))
            } else {
                let body = body.collect().await.unwrap().to_bytes();
                cluster.answer(parts.method.as_str(), path, &serde_json::from_slice(&body).unwrap_or(Value::Null))
            };
            Ok::<_, Infallible>(
                Response::builder().status(status).body(Body::from(answer.to_string().into_bytes())).unwrap(),
            )
        }
    });
    Client::new(service, "shop")
}

#[tokio::test]
async fn environments_that_wait_for_their_turn_are_reconciled_when_others_end() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let (open, is_open) = watch::channel(false);
    let reporting = Arc::new(AtomicUsize::new(0));
    let deps = deps(client(&cluster, is_open, Arc::clone(&reporting)));
    let (_stop, stopping) = watch::channel(false);
    let running = tokio::spawn(async move { run(deps, &[], stopping).await });
    super::until("half of the places are used", || reporting.load(Ordering::Relaxed) == 64).await;
    open.send_replace(true);
    // Without a trigger, they would be reconciled after a minute.
    let published = || (0..ENVIRONMENTS).all(|number| cluster.get(&core(number)).is_some());
    let all = tokio::time::timeout(Duration::from_secs(30), async {
        while !published() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(all.await.is_ok(), "{:?}", cluster.names());
    assert_eq!(reporting.load(Ordering::Relaxed), 64, "a namespace has at most half of the places");
    running.abort();
}
