//! Broken watches, and lists from a cache that lags behind: nothing is written twice because of them.

use std::{
    convert::Infallible,
    future::pending,
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
    rollout::sidecar::SidecarClient,
    source::{
        fetch::{AllowedOrigins, Fetcher, FetcherOptions, SystemLookup},
        receiver::{Verdict, WebhookReceiver},
    },
};
use serde_json::{Value, json};
use tokio::{sync::watch, time::error::Elapsed};

use super::{CORE, Cluster, asks_source, compiler, document, fenv, flags, is};

/// Counters of lists of ConfigMaps.
#[derive(Clone, Default)]
struct Lists {
    /// Lists of Remora's ConfigMaps. The second one is empty, as if nothing were published.
    ours: Arc<Mutex<usize>>,
    /// Lists of all others.
    others: Arc<Mutex<usize>>,
}

/// Returns an API server whose watches end at once, because their resource version is too old: those for whose path
/// and query `breaks` returns true. The others report nothing.
fn client(cluster: &Cluster, lists: &Lists, spec: Value, breaks: fn(&str, &str) -> bool) -> Client {
    let (cluster, lists) = (cluster.clone(), lists.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (cluster, lists, spec) = (cluster.clone(), lists.clone(), spec.clone());
        async move {
            let (parts, body) = request.into_parts();
            let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
            let is_list = ["/configmaps", "/featureenvironments", "/pods"].iter().any(|end| path.ends_with(end));
            let is_watch = query.contains("watch=true");
            if is_watch && !breaks(path, query) {
                pending::<()>().await;
            }
            let (status, answer) = if is_watch {
                let gone = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410});
                (200, json!({"type": "ERROR", "object": gone}))
            } else if is_list {
                (200, list(&cluster, &lists, &spec, path, query))
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

fn list(cluster: &Cluster, lists: &Lists, spec: &Value, path: &str, query: &str) -> Value {
    let (kind, version, items) = if path.ends_with("featureenvironments") {
        ("FeatureEnvironmentList", "remora.dev/v1alpha1", vec![fenv(1, spec)])
    } else if path.ends_with("/pods") {
        ("PodList", "v1", Vec::new())
    } else if query.contains("%21%3D") {
        *lists.others.lock().unwrap() += 1;
        ("PartialObjectMetadataList", "meta.k8s.io/v1", cluster.get("flags").into_iter().collect())
    } else {
        let mut count = lists.ours.lock().unwrap();
        *count += 1;
        let lags = *count == 2;
        ("PartialObjectMetadataList", "meta.k8s.io/v1", if lags { Vec::new() } else { cluster.ours() })
    };
    json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items})
}

pub(super) fn deps(client: Client) -> Deps {
    let _installed_already = rustls::crypto::ring::default_provider().install_default();
    let allowed = AllowedOrigins::new(&[]).unwrap();
    Deps {
        webhook_receiver: WebhookReceiver::default(),
        fetcher: Arc::new(Fetcher::new(client.clone(), FetcherOptions::new(allowed), Arc::new(SystemLookup))),
        compiler: compiler(),
        client,
        sidecars: SidecarClient::new().unwrap(),
        metrics: Metrics::default(),
        instance: "test".to_owned(),
        memory: remora_operator::memory::Memory::with_reserve(remora_operator::controller::reconcile::SNAPSHOTS_MAX),
        publishes_secrets: true,
    }
}

/// Waits until the condition holds, for less than the time between two looks at published objects.
async fn until(holds: impl Fn() -> bool) -> Result<(), Elapsed> {
    let held = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(50), held).await
}

#[tokio::test]
async fn broken_watches_cause_no_second_write() {
    let (cluster, lists) = (Cluster::default(), Lists::default());
    cluster.put(&flags(&document("a")));
    cluster.calls();
    let deps = deps(client(&cluster, &lists, json!({}), |_, _| true));
    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(async move { run(deps, &[], stopping).await });
    let again = async {
        while *lists.ours.lock().unwrap() < 4 {
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

/// Only the watch of published ConfigMaps breaks, so nothing else causes a reconciliation.
#[tokio::test]
async fn object_deleted_while_watch_is_broken_is_restored_after_next_list() {
    let (cluster, lists) = (Cluster::default(), Lists::default());
    cluster.put(&flags(&document("a")));
    let ours = |path: &str, query: &str| path.ends_with("/configmaps") && !query.contains("%21%3D");
    let daily = json!({"refresh": {"interval": "24h"}});
    let deps = deps(client(&cluster, &lists, daily, ours));
    let (_stop, stopping) = watch::channel(false);
    let running = tokio::spawn(async move { run(deps, &[], stopping).await });
    let listed = || *lists.ours.lock().unwrap();
    // The second list lags behind the publication, and a list after it shows the object.
    until(|| cluster.get(CORE).is_some() && listed() > 3).await.expect("it is not published, or not listed again");
    cluster.take(CORE);
    until(|| cluster.get(CORE).is_some()).await.expect("the object is not restored");
    running.abort();
}

/// Only the watch of other ConfigMaps breaks, so nothing else causes a reconciliation.
#[tokio::test]
async fn source_deleted_while_watch_is_broken_is_missed_after_next_list() {
    let (cluster, lists) = (Cluster::default(), Lists::default());
    cluster.put(&flags(&document("a")));
    let others = |path: &str, query: &str| path.ends_with("/configmaps") && query.contains("%21%3D");
    let daily = json!({"refresh": {"interval": "24h"}});
    let deps = deps(client(&cluster, &lists, daily, others));
    let (_stop, stopping) = watch::channel(false);
    let running = tokio::spawn(async move { run(deps, &[], stopping).await });
    let listed = || *lists.others.lock().unwrap();
    // A list after the publication shows the version that was read.
    until(|| cluster.get(CORE).is_some()).await.expect("it is not published");
    let before = listed();
    until(|| listed() > before + 1).await.expect("it is not listed again");
    cluster.calls();
    cluster.take("flags");
    until(|| asks_source(&cluster.calls())).await.expect("nobody misses the source");
    running.abort();
}

/// The environment asks for webhooks, but its Secret does not exist.
#[tokio::test]
async fn first_pass_of_receiver_ends_after_reconciliation_of_all_environments() {
    let (cluster, lists) = (Cluster::default(), Lists::default());
    let source = json!({"flagsmith": {
        "apiUrl": "https://flags.test/api/v1/", "environmentKeySecretRef": {"name": "flagsmith"},
        "webhook": {"secretKeyRef": {"name": "hook"}},
    }});
    let deps = deps(client(&cluster, &lists, json!({"source": source}), |_, _| false));
    let receiver = deps.webhook_receiver.clone();
    receiver.set_leading(true);
    let receive = || receiver.receive("shop", Some("storefront"), Some(&"00".repeat(32)), b"{}");
    let (_stop, stopping) = watch::channel(false);
    let mut running = Box::pin(run(deps, &[], stopping));
    assert!(futures::poll!(&mut running).is_pending());
    assert_eq!(receive(), Verdict::Starting);
    let running = tokio::spawn(running);
    until(|| receive() == Verdict::Refused).await.expect("the first pass does not end");
    assert!(cluster.calls().iter().any(|call| call == "get secret/hook"), "the Secret was not read before");
    running.abort();
}
