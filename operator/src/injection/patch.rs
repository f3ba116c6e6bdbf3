//! Turns a plan into JSON Patch operations on the pod of the request.

use json_patch::{AddOperation, Patch, PatchOperation, jsonptr::PointerBuf};
use serde_json::{Map, Value, json};

use super::{
    plan::Plan,
    pod::{Pod, name},
};
use crate::api::names::{annotation, label, sidecar};

/// Returns the `add` operations for everything in `plan` that `pod` lacks. Empty if the pod has everything.
///
/// The plan must be the one that was made for this pod.
pub(super) fn patch(pod: &Pod<'_>, plan: &Plan) -> Patch {
    let mut operations = Operations(Vec::new());
    mark(pod, plan, &mut operations);
    volumes(pod, plan, &mut operations);
    containers(pod, plan, &mut operations);
    Patch(operations.0)
}

struct Operations(Vec<PatchOperation>);

impl Operations {
    fn add<const N: usize>(&mut self, path: [&str; N], value: Value) {
        let path = PointerBuf::from_tokens(path);
        self.0.push(PatchOperation::Add(AddOperation { path, value }));
    }
}

/// Adds the label by which the controller finds the pods to notify, and the annotation that records the injection for
/// people.
fn mark(pod: &Pod<'_>, plan: &Plan, operations: &mut Operations) {
    if pod.labels.is_none() {
        operations.add(["metadata", "labels"], json!({}));
    }
    let label = pod.labels.and_then(|labels| labels.get(label::SIDECAR)).and_then(Value::as_str);
    if label != Some(label::INJECTED) {
        operations.add(["metadata", "labels", label::SIDECAR], json!(label::INJECTED));
    }
    // A record beside an existing sidecar stays, whatever it contains: it is for people only, and an operator of
    // another version would otherwise change it with every request. Without a sidecar, the record is the author's and
    // is replaced.
    let ours = pod.init_position(sidecar::CONTAINER).is_some() && pod.annotations.contains_key(annotation::INJECTED);
    if !ours {
        operations.add(["metadata", "annotations", annotation::INJECTED], json!(plan.record));
    }
}

fn volumes(pod: &Pod<'_>, plan: &Plan, operations: &mut Operations) {
    let present = |wanted: &Value| pod.volumes.into_iter().flatten().any(|volume| name(volume) == name(wanted));
    let missing: Vec<_> = plan.volumes.iter().filter(|volume| !present(volume)).collect();
    if pod.volumes.is_none() && !missing.is_empty() {
        operations.add(["spec", "volumes"], json!([]));
    }
    for volume in missing {
        operations.add(["spec", "volumes", "-"], volume.clone());
    }
}

/// Adds the sidecar in front of all init containers, then variables and mounts to every container that starts after it.
fn containers(pod: &Pod<'_>, plan: &Plan, operations: &mut Operations) {
    let position = pod.init_position(sidecar::CONTAINER);
    if position.is_none() {
        if pod.init.is_none() {
            operations.add(["spec", "initContainers"], json!([]));
        }
        operations.add(["spec", "initContainers", "0"], plan.sidecar.clone());
    }
    for (index, container) in pod.init.into_iter().flatten().enumerate() {
        match position {
            // The sidecar, added in front, moves the container by one.
            None => container_behind("initContainers", index + 1, container, plan, operations),
            Some(sidecar) if index > sidecar => {
                container_behind("initContainers", index, container, plan, operations);
            }
            Some(_) => {}
        }
    }
    for (index, container) in pod.containers.into_iter().flatten().enumerate() {
        container_behind("containers", index, container, plan, operations);
    }
}

fn container_behind(list: &str, index: usize, container: &Value, plan: &Plan, operations: &mut Operations) {
    let index = index.to_string();
    variables(list, &index, container, plan, operations);
    mounts(list, &index, container, plan, operations);
}

fn mounts(list: &str, index: &str, container: &Value, plan: &Plan, operations: &mut Operations) {
    let present = container.get("volumeMounts").and_then(Value::as_array);
    // An existing mount at the same path stays.
    let path = |mount: &Value| mount.get("mountPath").and_then(Value::as_str).map(str::to_owned);
    let missing =
        plan.mounts.iter().filter(|wanted| !present.into_iter().flatten().any(|mount| path(mount) == path(wanted)));
    for (place, mount) in missing.enumerate() {
        if place == 0 && present.is_none() {
            operations.add(["spec", list, index, "volumeMounts"], json!([]));
        }
        operations.add(["spec", list, index, "volumeMounts", "-"], mount.clone());
    }
}

fn variables(list: &str, index: &str, container: &Value, plan: &Plan, operations: &mut Operations) {
    let env = container.get("env").and_then(Value::as_array);
    let missing = plan
        .variables
        .iter()
        .filter(|(wanted, _)| !env.into_iter().flatten().any(|variable| name(variable) == Some(wanted)));
    // In front of the others and in their order: a variable can refer to earlier ones with $(NAME).
    for (place, (name, value)) in missing.enumerate() {
        if place == 0 && env.is_none() {
            operations.add(["spec", list, index, "env"], json!([]));
        }
        let variable = Map::from_iter([("name".to_owned(), json!(name)), ("value".to_owned(), json!(value))]);
        operations.add(["spec", list, index, "env", &place.to_string()], Value::Object(variable));
    }
}
