//! API server over HTTP for exactly the calls of a whole operator. It stores what the operator writes, and its watches
//! report no changes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A cluster with the namespace `shop`.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) address: SocketAddr,
    content: Arc<Content>,
}

#[derive(Default)]
struct Content {
    environments: Vec<Value>,
    /// ConfigMaps and Secrets of the namespace, by kind and name.
    objects: Mutex<BTreeMap<String, Value>>,
    /// Last status of each environment.
    statuses: Mutex<BTreeMap<String, Value>>,
    lease: Mutex<Option<Value>>,
    version: AtomicUsize,
    lease_writes: AtomicUsize,
}

impl Cluster {
    /// Starts a cluster with these FeatureEnvironments, and with these documents in ConfigMaps.
    pub(crate) async fn start(environments: Vec<Value>, documents: BTreeMap<String, String>) -> Self {
        let objects = documents.into_iter().map(|(name, document)| {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"environment.json": document},
                "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"},
            });
            (format!("configmaps/{name}"), object)
        });
        let objects = Mutex::new(objects.collect());
        let content = Arc::new(Content { environments, objects, ..Content::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(answer).with_state(Arc::clone(&content));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, content }
    }

    /// Returns status, reason and message of a condition that the operator has written.
    pub(crate) fn condition(&self, environment: &str, kind: &str) -> Option<(String, String, String)> {
        let statuses = self.content.statuses.lock().unwrap();
        let conditions = statuses.get(environment)?["conditions"].as_array()?.clone();
        let found = conditions.into_iter().find(|condition| condition["type"] == kind)?;
        let text = |member: &str| found[member].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("reason"), text("message")))
    }

    /// Returns how often the lease was taken or renewed.
    pub(crate) fn lease_writes(&self) -> usize {
        self.content.lease_writes.load(Ordering::SeqCst)
    }
}

async fn answer(State(content): State<Arc<Content>>, request: Request) -> Response {
    if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
        return Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>()).into_response();
    }
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let path: Vec<&str> = parts.uri.path().split('/').skip(1).collect();
    let (status, answer) = content.answer(&parts.method, &path, body);
    (StatusCode::from_u16(status).unwrap(), axum::Json(answer)).into_response()
}

fn not_found() -> (u16, Value) {
    (404, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}))
}

impl Content {
    fn next_version(&self) -> String {
        (self.version.fetch_add(1, Ordering::SeqCst) + 2).to_string()
    }

    fn answer(&self, method: &Method, path: &[&str], body: Value) -> (u16, Value) {
        let list = |items: Value| {
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
        };
        match (method.as_str(), path) {
            ("GET", ["apis", "remora.dev", "v1alpha1", "featureenvironments"]) => list(json!(self.environments)),
            ("GET", ["api", "v1", "namespaces"]) => list(json!([{"metadata": {"name": "shop"}}])),
            ("GET", ["api", "v1", "configmaps" | "pods"] | ["api", "v1", "namespaces", _, "pods"]) => list(json!([])),
            ("PATCH", ["apis", "remora.dev", .., "featureenvironments", name, "status"]) => {
                self.statuses.lock().unwrap().insert((*name).to_owned(), body["status"].clone());
                let found = self.environments.iter().find(|environment| environment["metadata"]["name"] == *name);
                found.map_or_else(not_found, |environment| (200, environment.clone()))
            }
            ("POST" | "PATCH", ["api" | "apis", .., "events"] | ["api" | "apis", .., "events", _]) => (201, body),
            (_, ["apis", "coordination.k8s.io", ..]) => self.lease(method, body),
            ("GET", ["api", "v1", "namespaces", "shop", "secrets", name]) if !name.starts_with("remora-") => {
                let key = json!(ByteString(format!("ser.{name}").into_bytes()));
                let labels = json!({"remora.dev/environment-key": "true"});
                (200, json!({"metadata": {"name": name, "labels": labels}, "data": {"environment-key": key}}))
            }
            (_, ["api", "v1", "namespaces", "shop", kind @ ("configmaps" | "secrets"), name]) => {
                self.object(method, &format!("{kind}/{name}"), body)
            }
            _ => not_found(),
        }
    }

    fn lease(&self, method: &Method, mut body: Value) -> (u16, Value) {
        let mut lease = self.lease.lock().unwrap();
        if method == Method::GET {
            return lease.clone().map_or_else(not_found, |lease| (200, lease));
        }
        self.lease_writes.fetch_add(1, Ordering::SeqCst);
        body["metadata"]["resourceVersion"] = json!(self.next_version());
        *lease = Some(body.clone());
        (200, body)
    }

    fn object(&self, method: &Method, key: &str, mut body: Value) -> (u16, Value) {
        let mut objects = self.objects.lock().unwrap();
        match *method {
            Method::GET => objects.get(key).cloned().map_or_else(not_found, |object| (200, object)),
            Method::DELETE => objects.remove(key).map_or_else(not_found, |object| (200, object)),
            _ => {
                body["metadata"]["uid"] = json!(key);
                body["metadata"]["resourceVersion"] = json!(self.next_version());
                let fields = if key.starts_with("secrets/") { "f:data" } else { "f:binaryData" };
                body["metadata"]["managedFields"] = json!([{
                    "manager": "remora-controller", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {fields: {}},
                }]);
                objects.insert(key.to_owned(), body.clone());
                (200, body)
            }
        }
    }
}
