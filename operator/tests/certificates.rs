//! Tests certificate management of webhook replicas against a simulated API server with the Secret and the
//! registration. Meanwhile a client connects like the real API server, and trusts the `caBundle` of a moment ago.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    future::Future,
    sync::{Arc, Mutex, Once},
    time::{Duration, Instant},
};

use axum::{body::Body, http::Response};
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use http_body_util::BodyExt;
use json_patch::PatchOperation;
use kube::Client;
use prometheus_client::registry::Registry;
use remora_operator::injection::{
    certificates::{CertificateManager, Lifetimes, Names, Serving},
    metrics::Metrics,
};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tower::service_fn;

const SECRET: &str = "remora-webhook-authority";

fn lifetimes() -> Lifetimes {
    Lifetimes {
        ca: Duration::from_secs(6),
        leaf: Duration::from_secs(4),
        // Certificates have whole seconds only: one of the two may have passed already when a CA is created.
        settle: Duration::from_secs(2),
        propagation: Duration::from_millis(10),
        skew: Duration::from_secs(2),
        check: Duration::from_millis(50),
    }
}

fn names() -> Names {
    Names {
        namespace: "remora-system".to_owned(),
        service: "remora-webhook".to_owned(),
        configuration: "remora".to_owned(),
        secret: SECRET.to_owned(),
    }
}

/// A simulated API server.
#[derive(Clone)]
struct Cluster(Arc<Mutex<Objects>>);

struct Objects {
    secret: Option<Value>,
    version: u64,
    configuration: Value,
    /// Distinct CAs that the Secret has contained.
    authorities: BTreeSet<String>,
}

impl Cluster {
    fn new() -> Cluster {
        let client = json!({"service": {"name": "remora-webhook", "namespace": "remora-system", "path": "/mutate"}});
        Cluster(Arc::new(Mutex::new(Objects {
            secret: None,
            version: 0,
            configuration: json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "remora"},
                "webhooks": [{"name": "pods.remora.dev", "clientConfig": client, "sideEffects": "None",
                              "admissionReviewVersions": ["v1"]}],
            }),
            authorities: BTreeSet::new(),
        })))
    }

    fn with<T>(&self, touch: impl FnOnce(&mut Objects) -> T) -> T {
        touch(&mut self.0.lock().unwrap())
    }

    /// Returns the CAs in `caBundle` of the registration, as PEM.
    fn bundle(&self) -> Vec<u8> {
        self.with(|objects| {
            let bundle = objects.configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str();
            BASE64.decode(bundle.unwrap_or_default()).unwrap()
        })
    }

    fn client(&self) -> Client {
        let cluster = self.clone();
        let answer = move |request: http::Request<kube::client::Body>| {
            let cluster = cluster.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (status, body) = cluster.with(|objects| objects.answer(&head, &body));
                let response = Response::builder().status(status).header("content-type", "application/json");
                Ok::<_, Infallible>(response.body(Body::from(body.to_string())).unwrap())
            }
        };
        Client::new(service_fn(answer), "remora-system")
    }
}

impl Objects {
    fn answer(&mut self, head: &http::request::Parts, body: &[u8]) -> (u16, Value) {
        let secrets = "/api/v1/namespaces/remora-system/secrets";
        let configuration = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/remora";
        let path = head.uri.path();
        match (head.method.as_str(), path) {
            ("GET", _) if path == format!("{secrets}/{SECRET}") => {
                self.secret.clone().map_or_else(|| failure(404, "NotFound"), |secret| (200, secret))
            }
            ("POST", _) if path == secrets => match &self.secret {
                Some(_) => failure(409, "AlreadyExists"),
                None => (201, self.store(body)),
            },
            ("PUT", _) if path == format!("{secrets}/{SECRET}") => {
                let sent: Value = serde_json::from_slice(body).unwrap();
                let current = self.secret.as_ref().map(|secret| &secret["metadata"]["resourceVersion"]);
                if current == Some(&sent["metadata"]["resourceVersion"]) {
                    (200, self.store(body))
                } else {
                    failure(409, "Conflict")
                }
            }
            ("GET", _) if path == configuration => (200, self.configuration.clone()),
            ("PATCH", _) if path == configuration => {
                assert_eq!(head.headers["content-type"], "application/json-patch+json");
                let mut patch: json_patch::Patch = serde_json::from_slice(body).unwrap();
                // An API server takes a missing field for null.
                patch.0.retain(|operation| match operation {
                    PatchOperation::Test(test) => {
                        !(test.value.is_null() && test.path.resolve(&self.configuration).is_err())
                    }
                    _ => true,
                });
                match json_patch::patch(&mut self.configuration, &patch) {
                    Ok(()) => (200, self.configuration.clone()),
                    Err(_) => failure(422, "Invalid"),
                }
            }
            (method, _) => panic!("{method} {path} is nothing that a webhook may do"),
        }
    }

    fn store(&mut self, body: &[u8]) -> Value {
        let mut secret: Value = serde_json::from_slice(body).unwrap();
        self.version += 1;
        secret["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.authorities.insert(secret["data"]["ca.crt"].as_str().unwrap().to_owned());
        self.secret = Some(secret.clone());
        secret
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}))
}

/// A running replica. Dropping it stops its tasks.
struct Replica {
    serving: Serving,
    ready: watch::Receiver<bool>,
    registry: Registry,
    _tasks: JoinSet<Infallible>,
}

fn replica(cluster: &Cluster) -> Replica {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| rustls::crypto::ring::default_provider().install_default().unwrap());
    let (told, ready) = watch::channel(false);
    let mut registry = Registry::default();
    let serving = Serving::default();
    let manager = CertificateManager::new(cluster.client(), names(), serving.clone(), Metrics::register(&mut registry))
        .lifetimes(lifetimes());
    let mut tasks = JoinSet::new();
    tasks.spawn(manager.run(move || async move {
        told.send_replace(true);
    }));
    Replica { serving, ready, registry, _tasks: tasks }
}

impl Replica {
    async fn ready(&mut self) {
        within(self.ready.wait_for(|ready| *ready)).await.unwrap();
    }

    /// Connects with TLS like the API server, and trusts the CAs in `bundle`.
    async fn connect(&self, bundle: &[u8]) -> Result<(), std::io::Error> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let (near, far) = tokio::io::duplex(1 << 16);
        let server = tokio_rustls::TlsAcceptor::from(self.serving.server_config());
        let client = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("remora-webhook.remora-system.svc").unwrap();
        let (client, _) = tokio::join!(client.connect(name, near), server.accept(far));
        client.map(|_| ())
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(120), future).await.expect("it takes too long")
}

/// Delay with which the API server reads a change of `caBundle`.
const UNHEARD: Duration = Duration::from_millis(100);

/// Connects to every replica repeatedly until `done`, and returns the number of connections. Each connection trusts the
/// `caBundle` of [`UNHEARD`] before. Panics if a connection fails, unless this test got no time from its machine before.
async fn connect_until(cluster: &Cluster, replicas: &[&Replica], done: impl Fn(&Objects) -> bool) -> usize {
    let mut bundles = VecDeque::from([(Instant::now(), cluster.bundle())]);
    let mut connected = 0;
    let mut latest = Instant::now();
    within(async {
        while !cluster.with(|objects| done(objects)) {
            sleep(Duration::from_millis(10)).await;
            bundles.push_back((Instant::now(), cluster.bundle()));
            while bundles.get(1).is_some_and(|(read, _)| read.elapsed() >= UNHEARD) {
                bundles.pop_front();
            }
            for replica in replicas {
                let is_stalled = |at: Instant, longest: u64| at.elapsed() > Duration::from_millis(longest);
                match replica.connect(&bundles[0].1).await {
                    Ok(_) => {
                        connected += 1;
                        latest = Instant::now();
                    }
                    // An API server would have read the bundle, and the replica renewed its certificate, meanwhile.
                    Err(_) if is_stalled(latest, 1000) || is_stalled(bundles[0].0, 500) => {
                        bundles = VecDeque::from([(Instant::now(), cluster.bundle())]);
                    }
                    Err(error) => panic!("a request fails: {error:?}"),
                }
            }
        }
    })
    .await;
    connected
}

#[tokio::test]
async fn replicas_started_together_share_one_ca() {
    let cluster = Cluster::new();
    let mut replicas = [(); 5].map(|()| replica(&cluster));
    for replica in &mut replicas {
        replica.ready().await;
        replica.connect(&cluster.bundle()).await.unwrap();
    }
    assert_eq!(cluster.with(|objects| objects.authorities.len()), 1);
}

#[tokio::test]
async fn ca_rotation_fails_no_request() {
    let cluster = Cluster::new();
    let mut replicas = [replica(&cluster), replica(&cluster)];
    for replica in &mut replicas {
        replica.ready().await;
    }
    let connected =
        connect_until(&cluster, &[&replicas[0], &replicas[1]], |objects| objects.authorities.len() >= 4).await;
    assert!(connected >= 4 * replicas.len(), "{connected}");
}

#[tokio::test]
async fn deleted_secret_is_recreated_without_failed_request() {
    let cluster = Cluster::new();
    let mut replicas = [replica(&cluster), replica(&cluster)];
    for replica in &mut replicas {
        replica.ready().await;
    }
    cluster.with(|objects| objects.secret = None);
    connect_until(&cluster, &[&replicas[0], &replicas[1]], |objects| objects.authorities.len() >= 3).await;
}

#[tokio::test]
async fn corrupted_secret_is_replaced_without_failed_request() {
    for (key, value) in [("ca.key", "bm8ga2V5"), ("ca.crt", "AAAA"), ("ca.crt", "")] {
        let cluster = Cluster::new();
        let mut replica = replica(&cluster);
        replica.ready().await;
        cluster.with(|objects| objects.secret.as_mut().unwrap()["data"][key] = json!(value));
        connect_until(&cluster, &[&replica], |objects| objects.authorities.len() >= 2).await;
    }
}

#[tokio::test]
async fn emptied_ca_bundle_is_restored() {
    let cluster = Cluster::new();
    let mut replica = replica(&cluster);
    replica.ready().await;
    cluster.with(|objects| objects.configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!(""));
    within(async {
        while cluster.bundle().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    replica.connect(&cluster.bundle()).await.unwrap();
}

#[tokio::test]
async fn foreign_secret_is_not_overwritten() {
    let cluster = Cluster::new();
    let foreign = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "resourceVersion": "1"}, "data": {"a": "Yg=="},
    });
    cluster.with(|objects| objects.secret = Some(foreign.clone()));
    let replica = replica(&cluster);
    let failures = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &replica.registry).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("remora_webhook_certificate_failures_total "));
        count.unwrap().parse::<u32>().unwrap()
    };
    within(async {
        while failures() < 3 {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(!*replica.ready.borrow());
    assert_eq!(cluster.with(|objects| objects.secret.clone()), Some(foreign));
    assert!(cluster.bundle().is_empty());
}
