//! API server in memory, with the rules of a real one that matter for a controller: resource versions, preconditions,
//! server-side apply by one manager, owner references, and a log of all changes for watches.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use serde_json::{Value, json};

/// Largest size of an object's data in bytes, as base64.
const DATA_MAX: usize = (1 << 20) / 3 * 4;

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    ConfigMap,
    Secret,
    Environment,
    Pod,
}

/// Kind and name of an object.
pub(super) type Key = (Kind, String);

/// A change of an object. `None` if the object was deleted.
pub(super) type Change = (Key, Option<Arc<Value>>);

/// Answer to a request: the code and the body.
pub(super) type Answer = (u16, Value);

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: Value,
    /// True if the answer should have no more than the metadata.
    pub(super) metadata_only: bool,
}

impl Call {
    pub(super) fn is_write(&self) -> bool {
        self.method != "GET"
    }

    /// True for a request about the Lease.
    pub(super) fn is_lease(&self) -> bool {
        self.path.contains("/leases")
    }

    /// True for a write of a published object.
    pub(super) fn is_publication(&self) -> bool {
        self.is_write() && (self.path.contains("/configmaps/") || self.path.contains("/secrets/"))
    }

    /// True for a notification of a pod.
    pub(super) fn is_notification(&self) -> bool {
        self.is_write() && self.path.contains("/pods/")
    }

    /// Returns what the request does, without its body.
    pub(super) fn describe(&self) -> String {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        match self.path.as_str() {
            path if path.ends_with("/status") => "report".to_owned(),
            path if path.contains("/events") => format!("event {}", self.body["reason"].as_str().unwrap_or_default()),
            path if path.contains("/secrets/") => format!("{} secret/{name}", self.method.to_lowercase()),
            path if path.contains("/pods/") => format!("{} pod/{name}", self.method.to_lowercase()),
            _ => format!("{} {name}", self.method.to_lowercase()),
        }
    }
}

#[derive(Default)]
pub(super) struct Server {
    objects: BTreeMap<Key, Arc<Value>>,
    version: u64,
    uids: u64,
    /// All changes, oldest first.
    pub(super) log: Vec<Change>,
    /// Requests that no real API server would get from the controller.
    pub(super) unknown: Vec<String>,
}

impl Server {
    pub(super) fn answer(&mut self, call: &Call) -> Answer {
        let (code, body) = self.dispatch(call);
        let is_object = body["kind"] != "Status" && body.get("items").is_none();
        if call.metadata_only && code < 300 && is_object {
            let metadata = body["metadata"].clone();
            let kind = "PartialObjectMetadata";
            return (code, json!({"kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": metadata}));
        }
        (code, body)
    }

    fn dispatch(&mut self, call: &Call) -> Answer {
        let path = call.path.strip_suffix("/status").unwrap_or(&call.path);
        let mut parts = path.rsplit('/');
        let (name, collection) = (parts.next().unwrap().to_owned(), parts.next().unwrap().to_owned());
        let method = call.method.as_str();
        if path.contains("/events") {
            return (if method == "POST" { 201 } else { 200 }, call.body.clone());
        }
        if (method, name.as_str()) == ("GET", "pods") {
            let pods = self.objects.iter().filter(|((kind, _), _)| *kind == Kind::Pod);
            let pods: Vec<Value> = pods.map(|(_, pod)| Value::clone(pod)).collect();
            let (kind, version) =
                if call.metadata_only { ("PartialObjectMetadataList", "meta.k8s.io/v1") } else { ("PodList", "v1") };
            return (200, json!({"kind": kind, "apiVersion": version, "metadata": {}, "items": pods}));
        }
        let kind = match collection.as_str() {
            "configmaps" => Kind::ConfigMap,
            "secrets" => Kind::Secret,
            "pods" => Kind::Pod,
            "featureenvironments" => Kind::Environment,
            _ => return self.unknown(call),
        };
        let key = (kind, name);
        let found = self.objects.get(&key).cloned();
        match (method, found) {
            ("GET", Some(found)) => (200, Value::clone(&found)),
            ("GET" | "DELETE", None) => failure(404, "NotFound"),
            ("DELETE", Some(found)) => {
                let wanted = &call.body["preconditions"];
                let fits = |field: &str| wanted[field].is_null() || wanted[field] == found["metadata"][field];
                if !(fits("uid") && fits("resourceVersion")) {
                    return failure(409, "Conflict");
                }
                self.remove(&key);
                (200, Value::clone(&found))
            }
            ("PATCH", Some(found)) if call.path.ends_with("/status") => {
                self.checked(key, &found, &call.body, |object, body| object["status"] = body["status"].clone())
            }
            ("PATCH", Some(found)) if kind == Kind::Pod => {
                let operations = call.body.as_array().unwrap();
                let value = |operation: &Value| found.pointer(operation["path"].as_str().unwrap()).cloned();
                // A real API server takes a missing field for null.
                let holds = |operation: &Value| value(operation).unwrap_or_default() == operation["value"];
                let (tests, set): (Vec<&Value>, _) = operations.iter().partition(|operation| operation["op"] == "test");
                if !tests.into_iter().all(holds) {
                    return failure(422, "Invalid");
                }
                let set: json_patch::Patch = serde_json::from_value(json!(set)).unwrap();
                let patch = |object: &mut Value, _: &Value| json_patch::patch(object, &set).unwrap();
                self.checked(key, &found, &Value::Null, patch)
            }
            ("PATCH", None) if kind == Kind::Pod || call.path.ends_with("/status") => failure(404, "NotFound"),
            ("PATCH", Some(found)) => self.checked(key, &found, &call.body, |object, body| {
                let (uid, version) = (object["metadata"]["uid"].take(), object["metadata"]["resourceVersion"].take());
                *object = body.clone();
                object["metadata"]["uid"] = uid;
                object["metadata"]["resourceVersion"] = version;
                manage(object, kind);
            }),
            ("PATCH", None) if !call.body["metadata"]["uid"].is_null() => failure(409, "Conflict"),
            // A real API server ignores the resource version of an apply that creates an object.
            ("PATCH", None) => {
                let mut object = call.body.clone();
                manage(&mut object, kind);
                self.create(key, object)
            }
            _ => self.unknown(call),
        }
    }

    fn unknown(&mut self, call: &Call) -> Answer {
        self.unknown.push(format!("{} {}", call.method, call.path));
        failure(405, "MethodNotAllowed")
    }

    /// Changes an object if the request's preconditions hold. Without a difference, the object keeps its version.
    fn checked(&mut self, key: Key, found: &Value, body: &Value, change: impl FnOnce(&mut Value, &Value)) -> Answer {
        let wanted = &body["metadata"];
        let fits = |field: &str| wanted[field].is_null() || wanted[field] == found["metadata"][field];
        if !(fits("uid") && fits("resourceVersion")) {
            return failure(409, "Conflict");
        }
        let mut object = found.clone();
        change(&mut object, body);
        if object == *found {
            return (200, object);
        }
        if data_bytes(&object) > DATA_MAX {
            return failure(422, "Invalid");
        }
        (200, self.store(key, object))
    }

    fn create(&mut self, key: Key, mut object: Value) -> Answer {
        if data_bytes(&object) > DATA_MAX {
            return failure(422, "Invalid");
        }
        self.uids += 1;
        object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        (201, self.store(key, object))
    }

    fn store(&mut self, key: Key, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let stored = Arc::new(object.clone());
        self.log.push((key.clone(), Some(Arc::clone(&stored))));
        self.objects.insert(key, stored);
        object
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let removed = self.objects.remove(key)?;
        self.version += 1;
        self.log.push((key.clone(), None));
        Some(removed)
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(&(kind, name.to_owned()))
    }

    pub(super) fn objects(&self) -> &BTreeMap<Key, Arc<Value>> {
        &self.objects
    }

    /// Stores an object as a person does, with a new UID if it did not exist. Keeps the status.
    pub(super) fn put(&mut self, kind: Kind, mut object: Value) {
        let key = (kind, object["metadata"]["name"].as_str().unwrap().to_owned());
        match self.objects.get(&key) {
            Some(found) => {
                object["metadata"]["uid"] = found["metadata"]["uid"].clone();
                if !found["status"].is_null() {
                    object["status"] = found["status"].clone();
                }
                self.store(key, object);
            }
            None => {
                self.create(key, object);
            }
        }
    }

    /// Deletes the objects whose owner does not exist, as Kubernetes' garbage collector does. Returns their number.
    pub(super) fn collect_garbage(&mut self) -> usize {
        let alive: HashSet<&str> =
            self.objects.values().filter_map(|object| object["metadata"]["uid"].as_str()).collect();
        let is_orphan = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().all(|owner| !alive.contains(owner["uid"].as_str().unwrap())))
        };
        let garbage: Vec<Key> =
            self.objects.iter().filter(|(_, object)| is_orphan(object)).map(|(key, _)| key.clone()).collect();
        garbage.iter().for_each(|key| drop(self.remove(key)));
        garbage.len()
    }
}

/// Records the controller as the only manager of the object's data.
fn manage(object: &mut Value, kind: Kind) {
    let data = if kind == Kind::Secret { "f:data" } else { "f:binaryData" };
    object["metadata"]["managedFields"] = json!([{
        "manager": "remora-controller", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {data: {}},
    }]);
}

fn data_bytes(object: &Value) -> usize {
    let fields = ["data", "binaryData"].into_iter().filter_map(|field| object[field].as_object());
    fields.flat_map(|field| field.values()).filter_map(Value::as_str).map(str::len).sum()
}

pub(super) fn failure(code: u16, reason: &str) -> Answer {
    (code, json!({"kind": "Status", "status": "Failure", "message": reason, "reason": reason, "code": code}))
}
