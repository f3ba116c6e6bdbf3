//! State of the cluster after a step, without what differs between two runs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use remora_operator::api::names::{EnvironmentName, annotation, label};
use serde_json::{Value, json};

use super::{cluster::State, server::Kind};

/// Objects by their kind and name, without what differs between two runs.
type Objects = BTreeMap<String, Value>;

/// State of the cluster after a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct After {
    /// Revision that a new pod serves.
    pub(super) serves: Option<String>,
    /// Revision of which the pod was notified. `None` if it was not notified, or there is no pod.
    pub(super) notified: Option<String>,
    pub(super) objects: Objects,
}

pub(super) fn after(state: &mut State) -> After {
    let serves = state.watcher.serves(&state.server);
    let notified = state.server.get(Kind::Pod, "web").and_then(|pod| notified(pod));
    let owner = state.server.get(Kind::Environment, "storefront").map(|found| found["metadata"]["uid"].clone());
    let owner = owner.unwrap_or_default();
    let ours = state.server.objects().iter().filter(|((kind, _), object)| match kind {
        Kind::ConfigMap | Kind::Secret => object["metadata"]["labels"][label::MANAGED_BY] == label::REMORA,
        Kind::Environment => true,
        Kind::Pod => false,
    });
    let objects = ours.map(|((kind, name), object)| (format!("{kind:?} {name}"), comparable(object, &owner))).collect();
    After { serves, notified, objects }
}

/// Returns the revision of which a pod was notified last.
fn notified(pod: &Value) -> Option<String> {
    let environment: EnvironmentName = "storefront".parse().unwrap();
    let text = pod["metadata"]["annotations"][environment.revision_annotation()].as_str()?;
    text.split(' ').next().map(str::to_owned)
}

/// Removes what differs between two runs: versions, UIDs and times.
fn comparable(object: &Value, owner: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        ["resourceVersion", "uid", "managedFields"].iter().for_each(|field| drop(metadata.remove(*field)));
    }
    for reference in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        reference["uid"] = json!(if reference["uid"] == *owner { "the environment" } else { "another object" });
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(annotation::REFRESH);
        if annotations.is_empty() {
            object["metadata"].as_object_mut().unwrap().remove("annotations");
        }
    }
    if let Some(record) = object["metadata"]["annotations"].get_mut(annotation::RECORD) {
        *record = serde_json::from_str(record.as_str().unwrap()).unwrap();
        ["dropped", "former"].iter().for_each(|field| drop(record.as_object_mut().unwrap().remove(*field)));
    }
    if let Some(status) = object["status"].as_object_mut() {
        // These counts depend on the time of the last observation.
        status.remove("pods");
        status.remove("lastRefresh");
    }
    timeless(&mut object);
    object
}

fn timeless(value: &mut Value) {
    match value {
        Value::String(text) if text.len() < 1_000 && text.contains(':') => {
            let words = text.split(' ').map(|word| if word.parse::<Timestamp>().is_ok() { "(a time)" } else { word });
            *value = json!(words.collect::<Vec<_>>().join(" "));
        }
        Value::Array(values) => values.iter_mut().for_each(timeless),
        Value::Object(values) => values.values_mut().for_each(timeless),
        _ => {}
    }
}

impl After {
    /// Returns the state without earlier revisions and without what changed since them.
    pub(super) fn without_history(&self) -> Self {
        let mut objects = self.objects.clone();
        objects.retain(|name, _| !name.contains("-history-"));
        for object in objects.values_mut() {
            for place in ["/metadata/annotations/remora.dev~1record", "/status"] {
                if let Some(fields) = object.pointer_mut(place).and_then(Value::as_object_mut) {
                    fields.remove("history");
                    fields.remove("changes");
                }
            }
        }
        Self { objects, ..self.clone() }
    }

    /// Lists the published objects that neither the status nor the record of a core names.
    pub(super) fn unnamed(&self) -> Vec<&String> {
        let Some(environment) = self.objects.get("Environment storefront") else {
            return self.published().collect();
        };
        let name: EnvironmentName = "storefront".parse().unwrap();
        let mut named: BTreeSet<String> = BTreeSet::new();
        let status = &environment["status"];
        let kind = status["delivery"]["as"].as_str().unwrap_or("ConfigMap");
        named.extend(
            status["objects"].as_array().into_iter().flatten().map(|name| format!("{kind} {}", name.as_str().unwrap())),
        );
        for (key, object) in &self.objects {
            let history = object["metadata"]["annotations"][annotation::RECORD]["history"].as_array();
            for past in history.into_iter().flatten() {
                let past: remora_operator::publish::ArchivedRevision =
                    serde_json::from_value(with_times(past)).unwrap();
                named.extend(past.objects(&name).map(|name| format!("{} {name}", key.split(' ').next().unwrap())));
            }
        }
        let in_parts = named.iter().any(|name| name.contains("-core-a-") || name.contains("-core-b-"));
        let is_named = |name: &&String| named.contains(*name) || in_parts && name.contains("-core-");
        self.published().filter(|name| !is_named(name)).collect()
    }

    fn published(&self) -> impl Iterator<Item = &String> {
        self.objects.keys().filter(|name| name.starts_with("ConfigMap ") || name.starts_with("Secret "))
    }
}

fn with_times(past: &Value) -> Value {
    let mut past = past.clone();
    past["publishedAt"] = json!("1970-01-01T00:00:00Z");
    past
}
