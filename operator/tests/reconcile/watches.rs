//! Broken watches, and lists from a cache that lags behind: nothing is written twice because of them.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use remora_operator::{
    controller::{
        metrics::Metrics,
        reconcile::{Deps, run},
    },
    rollout::observe::SidecarClient,
    source::fetch::{AllowedOrigins, DOCUMENT_MAX, Fetcher, SystemLookup},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{CORE, Cluster, compiler, document, fenv, flags, is};

/// Counter of lists of Remora's ConfigMaps. The second list is empty, as if nothing were published.
#[derive(Clone, Default)]
struct Lists(Arc<Mutex<usize>>);

/// Returns an API server whose watches all end at once, because their resource version is too old.
fn client(cluster: &Cluster, lists: &Lists) -> Client {
    let (cluster, lists) = (cluster.clone(), lists.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (cluster, lists) = (cluster.clone(), lists.clone());
        async move {
            let (parts, body) = request.into_parts();
            let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
            let is_list = ["/configmaps", "/featureenvironments", "/pods"].iter().any(|end| path.ends_with(end));
            let (status, answer) = if query.contains("watch=true") {
                let gone = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410});
                (200, json!({"type": "ERROR", "object": gone}))
            } else if is_list {
                (200, list(&cluster, &lists, path, query))
            } else {
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                cluster.answer(parts.method.as_str(), path, &body)
            };
            let bytes = Body::from(format!("{answer}\n").into_bytes());
            Ok::<_, Infallible>(Response::builder().status(status).body(bytes).unwrap())
        }
    });
    Client::new(service, "shop")
}

fn list(cluster: &Cluster, lists: &Lists, path: &str, query: &str) -> Value {
    let (kind, version, items) = if path.ends_with("featureenvironments") {
        ("FeatureEnvironmentList", "remora.dev/v1alpha1", vec![fenv(1, &json!({}))])
    } else if path.ends_with("/pods") {
        ("PodList", "v1", Vec::new())
    } else if query.contains("%21%3D") {
        ("PartialObjectMetadataList", "meta.k8s.io/v1", Vec::new())
    } else {
        let mut count = lists.0.lock().unwrap();
        *count += 1;
        let lags = *count == 2;
        ("PartialObjectMetadataList", "meta.k8s.io/v1", if lags { Vec::new() } else { cluster.ours() })
    };
    json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items})
}

#[tokio::test]
async fn broken_watches_cause_no_second_write() {
    let _installed_already = rustls::crypto::ring::default_provider().install_default();
    let (cluster, lists) = (Cluster::default(), Lists::default());
    cluster.put(&flags(&document("a")));
    cluster.calls();
    let client = client(&cluster, &lists);
    let allowed = AllowedOrigins::new(&[]).unwrap();
    let deps = Deps {
        receiver: remora_operator::source::receiver::Receiver::default(),
        fetcher: Arc::new(Fetcher::new(client.clone(), allowed, Arc::new(SystemLookup), DOCUMENT_MAX)),
        compiler: compiler(),
        client,
        sidecars: SidecarClient::new().unwrap(),
        metrics: Metrics::default(),
        instance: None,
    };
    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(async move { run(deps, &[], stopping).await });
    let again = async {
        while *lists.0.lock().unwrap() < 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), again).await.expect("it does not list again");
    stop.send_replace(true);
    tokio::time::timeout(Duration::from_secs(20), running).await.expect("it does not end").unwrap();
    let calls = cluster.calls();
    let writes: Vec<&String> = calls.iter().filter(|call| call.starts_with("patch ")).collect();
    assert_eq!(writes, [&format!("patch {CORE}")], "{calls:?}");
    assert!(calls.iter().filter(|call| **call == format!("get {CORE}")).count() > 1, "nothing lagged: {calls:?}");
    is(&cluster.last_status(), "Ready", ("True", "Published"));
}
