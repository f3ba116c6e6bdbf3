//! API server for exactly the calls of a reconciliation. It records them, and refuses calls on request.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body, runtime::watcher::Event};
use remora_operator::{
    publish::{self, Objects, ObjectsFeed},
    rollout::RunningPodsFeed,
};
use serde_json::{Value, json};

#[derive(Default)]
struct State {
    /// Stored objects: ConfigMaps by name, and Secrets by name with the prefix `secret/`.
    objects: BTreeMap<String, Value>,
    /// Running pods.
    pods: Vec<Value>,
    version: u64,
    calls: Vec<String>,
    statuses: Vec<Value>,
    /// Notes of the Events.
    notes: Vec<String>,
    /// Number of writes that succeed before all others fail.
    lives: Option<usize>,
    /// Objects whose writes are refused, with the answer.
    refused: BTreeMap<String, (u16, Value)>,
    /// Object that cannot be read.
    unreadable: Option<String>,
    /// Answer to every write, for all objects.
    refusal: Option<(u16, Value)>,
    /// True if the pods cannot be listed.
    hides_pods: bool,
    /// True if no Secret that holds a snapshot can be read.
    hides_secrets: bool,
    /// True if the environment key in the Secret was replaced by another one.
    has_other_key: bool,
}

#[derive(Clone, Default)]
pub(super) struct Cluster(Arc<Mutex<State>>);

impl Cluster {
    pub(super) fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let (status, answer) = cluster.answer(parts.method.as_str(), parts.uri.path(), &body);
                let bytes = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, Infallible>(Response::builder().status(status).body(bytes).unwrap())
            }
        });
        Client::new(service, "shop")
    }

    pub(super) fn answer(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut state = self.0.lock().unwrap();
        let name = path.rsplit('/').next().unwrap().to_owned();
        if method != "GET"
            && let Some(refusal) = state.refusal.clone()
        {
            let call = if path.ends_with("/status") {
                "report".to_owned()
            } else {
                format!("{} {name}", method.to_lowercase())
            };
            state.calls.push(call);
            return refusal;
        }
        match (method, path) {
            ("PATCH", path) if path.ends_with("/status") => {
                state.calls.push("report".to_owned());
                state.statuses.push(body["status"].clone());
                (200, fenv(1, &json!({})))
            }
            ("POST", path) if path.ends_with("/events") => {
                state.calls.push(format!("event {}", body["reason"].as_str().unwrap()));
                state.notes.push(body["note"].as_str().unwrap_or_default().to_owned());
                (201, body.clone())
            }
            ("PATCH", path) if path.contains("/events/") => {
                state.calls.push(format!("event {} again", body["reason"].as_str().unwrap()));
                (200, body.clone())
            }
            ("GET", "/api/v1/namespaces/shop/secrets/flagsmith") => {
                state.calls.push("get secret".to_owned());
                let labels = json!({"remora.dev/environment-key": "true"});
                // `ser.key` and `ser.other` in base64.
                let key = if state.has_other_key { "c2VyLm90aGVy" } else { "c2VyLmtleQ==" };
                (200, json!({"metadata": {"name": name, "labels": labels}, "data": {"environment-key": key}}))
            }
            ("GET", "/api/v1/namespaces/shop/pods") => {
                state.calls.push("list pods".to_owned());
                if state.hides_pods {
                    let message = "pods is forbidden";
                    return (403, json!({"status": "Failure", "message": message, "reason": "Forbidden", "code": 403}));
                }
                let items = state.pods.clone();
                (
                    200,
                    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": items}),
                )
            }
            (_, path) if path.starts_with("/api/v1/namespaces/") && path.contains("/configmaps/") => {
                state.calls.push(format!("{} {name}", method.to_lowercase()));
                state.config_map(method, &name, body)
            }
            ("PATCH", path) if path.starts_with("/api/v1/namespaces/shop/pods/") => {
                state.calls.push(format!("nudge {name}"));
                if let Some(refusal) = state.refused.get(&name) {
                    return refusal.clone();
                }
                (
                    200,
                    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": name}}),
                )
            }
            (_, path) if path.starts_with("/api/v1/namespaces/shop/secrets/") => {
                let name = format!("secret/{name}");
                state.calls.push(format!("{} {name}", method.to_lowercase()));
                if method == "GET" && state.hides_secrets {
                    let message = "secrets is forbidden";
                    return (403, json!({"status": "Failure", "message": message, "reason": "Forbidden", "code": 403}));
                }
                state.config_map(method, &name, body)
            }
            _ => panic!("nobody makes this call: {method} {path}"),
        }
    }

    pub(super) fn run(&self, pods: Vec<Value>) {
        self.0.lock().unwrap().pods = pods;
    }

    /// Returns the calls since the last call of this method.
    pub(super) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().calls)
    }

    pub(super) fn put(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.0.lock().unwrap().config_map("PATCH", &name, object);
    }

    /// Stores an object under a given key: keys of Secrets have the prefix `secret/`.
    pub(super) fn put_as(&self, key: &str, object: &Value) {
        self.0.lock().unwrap().config_map("PATCH", key, object);
    }

    /// Stores an object of another owner.
    pub(super) fn put_foreign(&self, name: &str) {
        let mut state = self.0.lock().unwrap();
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"theirs": "x"},
            "metadata": {"name": name, "namespace": "shop", "uid": "theirs", "resourceVersion": "3", "managedFields": [
                {"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}},
            ]},
        });
        state.objects.insert(name.to_owned(), object);
    }

    pub(super) fn take(&self, name: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.remove(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(name).cloned()
    }

    /// Returns the ConfigMaps with Remora's label.
    pub(super) fn ours(&self) -> Vec<Value> {
        let is_ours = |(name, object): &(&String, &Value)| {
            !name.starts_with("secret/") && object["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "remora"
        };
        self.0.lock().unwrap().objects.iter().filter(is_ours).map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().objects.keys().cloned().collect()
    }

    pub(super) fn refuse(&self, name: &str, code: u16, message: &str) {
        self.refuse_with(
            name,
            code,
            json!({"status": "Failure", "message": message, "reason": "Forbidden", "code": code}),
        );
    }

    /// Refuses writes of an object with the API server's own status.
    pub(super) fn refuse_with(&self, name: &str, code: u16, status: Value) {
        self.0.lock().unwrap().refused.insert(name.to_owned(), (code, status));
    }

    /// Fails to return an object.
    pub(super) fn hide(&self, name: &str) {
        self.0.lock().unwrap().unreadable = Some(name.to_owned());
    }

    /// Refuses all writes, or none.
    pub(super) fn refuse_writes(&self, refusal: Option<(u16, Value)>) {
        self.0.lock().unwrap().refusal = refusal;
    }

    /// Refuses to list the pods, or lists them again.
    pub(super) fn hide_pods(&self, hides: bool) {
        self.0.lock().unwrap().hides_pods = hides;
    }

    /// Refuses to read the Secrets that hold snapshots.
    pub(super) fn hide_secrets(&self) {
        self.0.lock().unwrap().hides_secrets = true;
    }

    /// Replaces the environment key in the Secret.
    pub(super) fn replace_key(&self) {
        self.0.lock().unwrap().has_other_key = true;
    }

    /// Lets this many further writes succeed, and fails all later ones.
    pub(super) fn die_after(&self, writes: usize) {
        self.0.lock().unwrap().lives = Some(writes);
    }

    pub(super) fn relent(&self) {
        let mut state = self.0.lock().unwrap();
        state.refused.clear();
        state.unreadable = None;
        state.refusal = None;
        state.lives = None;
    }

    pub(super) fn last_status(&self) -> Value {
        self.0.lock().unwrap().statuses.last().cloned().expect("no status was written")
    }

    /// Returns the first status for which `holds` returns true.
    pub(super) fn first_status(&self, holds: impl Fn(&Value) -> bool) -> Option<Value> {
        self.0.lock().unwrap().statuses.iter().find(|status| holds(status)).cloned()
    }

    /// Returns the notes of all Events.
    pub(super) fn notes(&self) -> Vec<String> {
        self.0.lock().unwrap().notes.clone()
    }

    /// Returns the number of status writes.
    pub(super) fn statuses(&self) -> usize {
        self.0.lock().unwrap().statuses.len()
    }

    /// Updates the controller's watch of pods to the state of the cluster.
    pub(super) fn observe_pods(&self, feed: &mut RunningPodsFeed) {
        feed.apply_watcher_event(&Event::Init);
        for pod in &self.0.lock().unwrap().pods {
            feed.apply_watcher_event(&Event::InitApply(serde_json::from_value(pod.clone()).unwrap()));
        }
        feed.apply_watcher_event(&Event::InitDone);
    }

    /// Updates the controller's watch to the state of the cluster.
    pub(super) fn observe(&self, writer: &mut ObjectsFeed) {
        writer.apply_watcher_event(&Event::Init);
        for object in self.ours() {
            writer.apply_watcher_event(&Event::InitApply(serde_json::from_value(object).unwrap()));
        }
        writer.apply_watcher_event(&Event::InitDone);
    }
}

impl State {
    fn config_map(&mut self, method: &str, name: &str, body: &Value) -> (u16, Value) {
        let missing = json!({"status": "Failure", "message": "not found", "reason": "NotFound", "code": 404});
        match method {
            "GET" if self.unreadable.as_deref() == Some(name) => {
                let message = "the API server is overloaded";
                (503, json!({"status": "Failure", "message": message, "reason": "ServiceUnavailable", "code": 503}))
            }
            "GET" => self.objects.get(name).map_or((404, missing), |object| (200, object.clone())),
            "DELETE" => {
                if let Some(refusal) = self.refused.get(name) {
                    return refusal.clone();
                }
                let found = self.objects.get(name).cloned().unwrap_or_default();
                let wanted = &body["preconditions"];
                assert_eq!(wanted["uid"], found["metadata"]["uid"], "deleted without looking");
                assert_eq!(wanted["resourceVersion"], found["metadata"]["resourceVersion"], "deleted without looking");
                self.objects.remove(name);
                (200, found)
            }
            _ => {
                if let Some(refusal) = self.refused.get(name) {
                    return refusal.clone();
                }
                if self.lives == Some(0) {
                    return (500, json!({"status": "Failure", "message": "gone", "reason": "Gone", "code": 500}));
                }
                self.lives = self.lives.map(|lives| lives - 1);
                self.version += 1;
                let mut object = body.clone();
                let secret = name.starts_with("secret/");
                let fields = if secret { json!({"f:data": {}}) } else { json!({"f:binaryData": {}}) };
                object["metadata"]["uid"] = json!(format!("uid-of-{name}"));
                object["metadata"]["resourceVersion"] = json!(self.version.to_string());
                object["metadata"]["managedFields"] = json!([{
                    "manager": "remora-controller", "operation": "Apply", "fieldsType": "FieldsV1",
                    "fieldsV1": fields,
                }]);
                self.objects.insert(name.to_owned(), object.clone());
                (200, object)
            }
        }
    }
}

/// Returns the published objects of a watch, and its feed.
pub(super) fn watch() -> (Objects, ObjectsFeed) {
    publish::objects()
}

/// Returns a FeatureEnvironment whose document is in the ConfigMap `flags`.
pub(super) fn fenv(generation: i64, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "remora.dev/v1alpha1",
        "kind": "FeatureEnvironment",
        "metadata": {"name": "storefront", "namespace": "shop", "uid": "uid-1", "generation": generation, "resourceVersion": "1"},
        "spec": {"source": {"document": {"configMapKeyRef": {"name": "flags", "key": "environment.json"}}}},
    });
    for (key, value) in more.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}
