//! Fake API server that answers `get` requests only.

use std::{collections::HashMap, convert::Infallible, sync::Arc};

use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};

#[derive(Clone, Default)]
pub(super) struct Cluster {
    objects: Arc<Mutex<HashMap<String, Value>>>,
    pub(super) asked: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    pub(super) fn put(&self, kind: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.objects.lock().insert(format!("/api/v1/namespaces/shop/{kind}/{name}"), object);
    }

    /// Copies all objects into another namespace.
    pub(super) fn copy_to(&self, namespace: &str) {
        let mut objects = self.objects.lock();
        let copy = |(path, object): (&String, &Value)| {
            (path.replace("/namespaces/shop/", &format!("/namespaces/{namespace}/")), object.clone())
        };
        let copies: Vec<_> = objects.iter().map(copy).collect();
        objects.extend(copies);
    }

    /// Adds a Secret with its owner's consent.
    pub(super) fn secret(&self, name: &str, key: &str, value: &str) {
        let labels = json!({"remora.dev/environment-key": "true"});
        self.secret_with(name, key, value, &labels);
    }

    pub(super) fn secret_with(&self, name: &str, key: &str, value: &str, labels: &Value) {
        let value = k8s_openapi::ByteString(value.as_bytes().to_vec());
        let mut data = serde_json::Map::new();
        data.insert(key.to_owned(), serde_json::to_value(value).unwrap());
        self.put(
            "secrets",
            json!({"metadata": {"name": name, "resourceVersion": "1", "labels": labels}, "data": data}),
        );
    }

    pub(super) fn config_map(&self, name: &str, version: &str, key: &str, value: &str) {
        let mut data = serde_json::Map::new();
        data.insert(key.to_owned(), value.into());
        self.put("configmaps", json!({"metadata": {"name": name, "resourceVersion": version}, "data": data}));
    }

    pub(super) fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path().to_owned();
            cluster.asked.lock().push(format!("{} {}", request.method(), request.uri()));
            let found = cluster.objects.lock().get(&path).cloned();
            let (status, body) = match found {
                Some(object) => (200, object),
                None => (404, json!({"status": "Failure", "message": "not found", "reason": "NotFound", "code": 404})),
            };
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            let response = http::Response::builder().status(status).body(body).unwrap();
            async move { Ok::<_, Infallible>(response) }
        });
        Client::new(service, "shop")
    }
}
