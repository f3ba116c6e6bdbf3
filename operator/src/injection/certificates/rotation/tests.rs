//! Certificate management on a node whose clock jumps by an hour, forward or back, and is corrected later.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc};

use axum::{body::Body, http::Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::*;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// A simulated API server with the Secret and the registration.
#[derive(Clone, Default)]
struct Cluster(Arc<Mutex<Objects>>);

#[derive(Default)]
struct Objects {
    secret: Option<Value>,
    configuration: Value,
    cas: BTreeSet<String>,
}

impl Cluster {
    fn new() -> Cluster {
        let client = json!({"service": {"name": "remora-webhook", "namespace": "remora-system"}});
        let webhook = json!({"name": "pods.remora.dev", "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        let cluster = Cluster::default();
        cluster.0.lock().configuration = json!({"metadata": {"name": "remora"}, "webhooks": [webhook]});
        cluster
    }

    fn client(&self) -> Client {
        let cluster = self.clone();
        let answer = move |request: http::Request<kube::client::Body>| {
            let cluster = cluster.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (status, body) = cluster.0.lock().answer(head.method.as_str(), head.uri.path(), &body);
                Ok::<_, Infallible>(Response::builder().status(status).body(Body::from(body.to_string())).unwrap())
            }
        };
        Client::new(tower::service_fn(answer), "remora-system")
    }

    fn cas(&self) -> usize {
        self.0.lock().cas.len()
    }
}

impl Objects {
    fn answer(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        match (method, path.contains("/secrets")) {
            ("GET", true) => self.secret.clone().map_or((404, missing), |secret| (200, secret)),
            ("POST" | "PUT", true) => {
                let secret: Value = serde_json::from_slice(body).unwrap();
                self.cas.insert(secret["data"]["ca.crt"].as_str().unwrap().to_owned());
                self.secret = Some(secret.clone());
                (200, secret)
            }
            ("GET", false) => (200, self.configuration.clone()),
            ("PATCH", false) => {
                patch(&mut self.configuration, serde_json::from_slice(body).unwrap()).unwrap();
                (200, self.configuration.clone())
            }
            _ => panic!("{method} {path}"),
        }
    }
}

pub(super) fn names() -> Names {
    Names {
        namespace: "remora-system".to_owned(),
        service: "remora-webhook".to_owned(),
        configuration: "remora".to_owned(),
        secret: "remora-webhook-authority".to_owned(),
    }
}

/// Applies a JSON patch as an API server does: a missing field is null.
pub(super) fn patch(object: &mut Value, patch: Value) -> Result<(), json_patch::PatchError> {
    let mut patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
    patch.0.retain(|operation| match operation {
        json_patch::PatchOperation::Test(test) => !(test.value.is_null() && test.path.resolve(object).is_err()),
        _ => true,
    });
    json_patch::patch(object, &patch)
}

struct Replica {
    cluster: Cluster,
    manager: CertificateManager,
}

impl Replica {
    /// Creates a replica that has run for three minutes, so its CA is settled.
    async fn started(at: Timestamp) -> Replica {
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let cluster = Cluster::new();
        let metrics = Metrics::register(&mut Registry::default());
        let manager = CertificateManager::new(cluster.client(), names(), Serving::default(), metrics);
        let mut replica = Replica { cluster, manager };
        replica.checks(at).await;
        replica
    }

    /// Runs 18 checks, ten seconds apart, and returns the time after them: three minutes later.
    async fn checks(&mut self, from: Timestamp) -> Timestamp {
        let mut now = from;
        for _ in 0..18 {
            self.manager.step(now).await.unwrap();
            self.assert_trusted(now);
            now += Duration::from_secs(10);
        }
        now
    }

    fn leaf(&self) -> Validity {
        self.manager.leaf.as_ref().unwrap().validity
    }

    /// Asserts that `caBundle` contains the CA of the serving certificate, and that the certificate is valid by the
    /// replica's clock.
    fn assert_trusted(&self, now: Timestamp) {
        let leaf = self.manager.leaf.as_ref().unwrap();
        let configuration = self.cluster.0.lock().configuration.clone();
        let configuration: MutatingWebhookConfiguration = serde_json::from_value(configuration).unwrap();
        let bundle = configuration.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap();
        let trusted = Certificate::read_all(&bundle.0);
        assert!(trusted.contains(&leaf.signed_by), "at {now}: the serving certificate is not trusted");
        assert!(leaf.validity.from <= now && now < leaf.validity.until, "at {now}: {:?}", leaf.validity);
    }
}

#[derive(Clone, Copy, Debug)]
enum Jump {
    Forth,
    Back,
}

impl Jump {
    fn of(self, now: Timestamp) -> Timestamp {
        let hour = Duration::from_secs(HOUR);
        match self {
            Jump::Forth => now + hour,
            Jump::Back => now - hour,
        }
    }

    fn undone(self, now: Timestamp) -> Timestamp {
        match self {
            Jump::Forth => Jump::Back.of(now),
            Jump::Back => Jump::Forth.of(now),
        }
    }
}

/// Both certificates are older than an hour and neither is due within an hour, so the jump changes nothing.
#[tokio::test]
async fn clock_an_hour_off_renews_only_due_certificates() {
    let start = Timestamp::from_second(1_800_000_000).unwrap();
    for age in [2 * HOUR, DAY, 4 * DAY] {
        for jump in [Jump::Forth, Jump::Back] {
            let mut replica = Replica::started(start).await;
            let leaf = replica.leaf();
            let off = replica.checks(jump.of(start + Duration::from_secs(age))).await;
            replica.checks(jump.undone(off)).await;
            assert_eq!((replica.leaf(), replica.cluster.cas()), (leaf, 1), "{jump:?} at an age of {age} s");
        }
    }
}

/// Both certificates are younger than the hour that the clock loses, or due within the hour that it gains. They are
/// renewed once, and at most once more after the clock is corrected; the serving certificate is trusted at all times.
#[tokio::test]
async fn corrected_clock_ends_renewals() {
    let start = Timestamp::from_second(1_800_000_000).unwrap();
    let due = 7 * DAY * 2 / 3;
    for age in [300, HOUR / 2, due - HOUR / 2, due + 60] {
        for jump in [Jump::Forth, Jump::Back] {
            let mut replica = Replica::started(start).await;
            let off = replica.checks(jump.of(start + Duration::from_secs(age))).await;
            let right = replica.checks(jump.undone(off)).await;
            replica.checks(right).await;
            assert!(replica.cluster.cas() <= 3, "{jump:?} at an age of {age} s");
            let (leaf, cas) = (replica.leaf(), replica.cluster.cas());
            let later = replica.checks(right + Duration::from_secs(600)).await;
            assert_eq!((replica.leaf(), replica.cluster.cas()), (leaf, cas), "{jump:?} at {age} s");
            assert_eq!(needs_renewal(Some(&Ok::<_, Infallible>(leaf)), later), None, "{jump:?} at an age of {age} s");
        }
    }
}
