//! With a list of namespaces, the operator sends no request about any other namespace.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use kube::{Client, client::Body};
use remora_operator::{
    controller::{
        metrics::Metrics,
        reconcile::{Deps, run},
    },
    rollout::sidecar::SidecarClient,
    source::fetch::{AllowedOrigins, Fetcher, FetcherOptions, SystemLookup},
};
use serde_json::json;
use tokio::sync::watch;

/// Returns the paths of list requests to an API server without objects.
async fn listed(namespaces: &[&str], count: usize) -> BTreeSet<String> {
    let _installed_already = rustls::crypto::ring::default_provider().install_default();
    let paths = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&paths);
    let service = tower::service_fn(move |request: Request<Body>| {
        let seen = Arc::clone(&seen);
        async move {
            let query = request.uri().query().unwrap_or_default();
            if query.contains("watch=true") {
                std::future::pending::<()>().await;
            }
            let is_of_others = request.uri().path().ends_with("configmaps") && query.contains("%21%3D");
            let manager = if is_of_others { " of others" } else { "" };
            seen.lock().unwrap().insert(request.uri().path().to_owned() + manager);
            let kind = match request.uri().path().rsplit('/').next() {
                Some("configmaps") => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
                Some("pods") => ("PodList", "v1"),
                _ => ("FeatureEnvironmentList", "remora.dev/v1alpha1"),
            };
            let list = json!({"kind": kind.0, "apiVersion": kind.1, "metadata": {"resourceVersion": "1"}, "items": []});
            Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
        }
    });
    let client = Client::new(service, "default");
    let allowed = AllowedOrigins::new(&[]).unwrap();
    let deps = Deps {
        webhook_receiver: remora_operator::source::receiver::WebhookReceiver::default(),
        fetcher: Arc::new(Fetcher::new(client.clone(), FetcherOptions::new(allowed), Arc::new(SystemLookup))),
        compiler: super::compiler(),
        client,
        sidecars: SidecarClient::new().unwrap(),
        metrics: Metrics::default(),
        instance: "test".to_owned(),
        memory: remora_operator::memory::Memory::with_reserve(remora_operator::controller::reconcile::SNAPSHOTS_MAX),
        publishes_secrets: true,
    };
    let (stop, stopping) = watch::channel(false);
    let namespaces: Vec<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
    let running = tokio::spawn(async move { run(deps, &namespaces, stopping).await });
    let all = async {
        while paths.lock().unwrap().len() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("not everything was asked for");
    stop.send_replace(true);
    tokio::time::timeout(Duration::from_secs(20), running).await.expect("it does not end").unwrap();
    let paths = paths.lock().unwrap();
    paths.clone()
}

#[tokio::test]
async fn listed_namespaces_are_the_only_ones_watched() {
    let expected: BTreeSet<String> = ["payments", "shop"]
        .iter()
        .flat_map(|namespace| {
            [
                format!("/api/v1/namespaces/{namespace}/configmaps"),
                format!("/api/v1/namespaces/{namespace}/configmaps of others"),
                format!("/api/v1/namespaces/{namespace}/pods"),
                format!("/apis/remora.dev/v1alpha1/namespaces/{namespace}/featureenvironments"),
            ]
        })
        .collect();
    assert_eq!(listed(&["shop", "payments", "shop"], expected.len()).await, expected);
}

#[tokio::test]
async fn operator_without_namespace_list_watches_whole_cluster() {
    let expected = [
        "/api/v1/configmaps",
        "/api/v1/configmaps of others",
        "/api/v1/pods",
        "/apis/remora.dev/v1alpha1/featureenvironments",
    ];
    assert_eq!(listed(&[], expected.len()).await, expected.map(str::to_owned).into());
}
