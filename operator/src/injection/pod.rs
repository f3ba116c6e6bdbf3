//! The parts of a pod that matter here, borrowed from untyped JSON.

use serde_json::{Map, Value};

/// A pod whose shape allows a patch.
pub(super) struct Pod<'a> {
    pub(super) annotations: &'a Map<String, Value>,
    pub(super) labels: Option<&'a Map<String, Value>>,
    pub(super) spec: &'a Map<String, Value>,
    pub(super) volumes: Option<&'a Vec<Value>>,
    pub(super) init: Option<&'a Vec<Value>>,
    pub(super) containers: Option<&'a Vec<Value>>,
}

/// Something of the pod is not what it must be. The API server refuses such a pod itself; we may be asked before.
#[derive(Debug, thiserror::Error)]
#[error("the pod's {path} is not {expected}")]
pub struct Malformed {
    path: String,
    expected: &'static str,
}

impl<'a> Pod<'a> {
    /// Checks every part that a patch touches.
    pub(super) fn read(pod: &'a Value) -> Result<Self, Malformed> {
        let metadata = object(pod, "metadata", "metadata")?.ok_or_else(|| malformed("metadata", "an object"))?;
        let spec = object(pod, "spec", "spec")?.ok_or_else(|| malformed("spec", "an object"))?;
        let parts = Pod {
            annotations: object(metadata, "annotations", "metadata.annotations")?
                .and_then(Value::as_object)
                .ok_or_else(|| malformed("metadata.annotations", "an object"))?,
            labels: object(metadata, "labels", "metadata.labels")?.and_then(Value::as_object),
            volumes: objects(spec, "volumes")?,
            init: objects(spec, "initContainers")?,
            containers: objects(spec, "containers")?,
            spec: spec.as_object().ok_or_else(|| malformed("spec", "an object"))?,
        };
        for container in parts.all_containers() {
            if !matches!(container.get("env"), None | Some(Value::Null | Value::Array(_))) {
                return Err(malformed("list env of a container", "a list"));
            }
            if !matches!(container.get("volumeMounts"), None | Some(Value::Null | Value::Array(_))) {
                return Err(malformed("list volumeMounts of a container", "a list"));
            }
        }
        Ok(parts)
    }

    /// Init containers and containers.
    pub(super) fn all_containers(&self) -> impl Iterator<Item = &'a Value> {
        self.init.into_iter().flatten().chain(self.containers.into_iter().flatten())
    }

    /// Where the init container of this name is.
    pub(super) fn init_position(&self, container: &str) -> Option<usize> {
        self.init?.iter().position(|candidate| name(candidate) == Some(container))
    }
}

/// The name of a container, volume, port or variable.
pub(super) fn name(item: &Value) -> Option<&str> {
    item.get("name").and_then(Value::as_str)
}

/// Whether an init container stays beside the application instead of running before it.
pub(super) fn is_native_sidecar(container: &Value) -> bool {
    container.get("restartPolicy").and_then(Value::as_str) == Some("Always")
}

fn malformed(path: &str, expected: &'static str) -> Malformed {
    Malformed { path: path.to_owned(), expected }
}

/// A member that is an object, absent, or null, which to the API server is absent.
fn object<'a>(parent: &'a Value, key: &str, path: &str) -> Result<Option<&'a Value>, Malformed> {
    match parent.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(member @ Value::Object(_)) => Ok(Some(member)),
        Some(_) => Err(malformed(path, "an object")),
    }
}

/// A member that is a list of objects, absent or null.
fn objects<'a>(spec: &'a Value, key: &str) -> Result<Option<&'a Vec<Value>>, Malformed> {
    match spec.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) if items.iter().all(Value::is_object) => Ok(Some(items)),
        Some(_) => Err(malformed(&format!("spec.{key}"), "a list of objects")),
    }
}
