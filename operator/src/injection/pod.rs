//! The parts of a pod that injection reads, borrowed from untyped JSON.

use serde_json::{Map, Value};

/// A pod whose structure allows a patch.
pub(super) struct Pod<'a> {
    pub(super) annotations: &'a Map<String, Value>,
    pub(super) labels: Option<&'a Map<String, Value>>,
    pub(super) spec: &'a Map<String, Value>,
    pub(super) volumes: Option<&'a Vec<Value>>,
    pub(super) init: Option<&'a Vec<Value>>,
    pub(super) containers: Option<&'a Vec<Value>>,
}

/// Error: a part of the pod has the wrong type. The API server refuses such a pod too, but may call the webhook first.
#[derive(Debug, thiserror::Error)]
#[error("the pod's {path} must be {expected}")]
pub struct Malformed {
    path: String,
    expected: &'static str,
}

impl<'a> Pod<'a> {
    /// Borrows the parts of a pod, and checks the type of every part that a patch changes.
    ///
    /// # Errors
    ///
    /// Fails if a part has the wrong type, or if the pod has no metadata, annotations or spec.
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
                return Err(malformed("env of a container", "a list"));
            }
            if !matches!(container.get("volumeMounts"), None | Some(Value::Null | Value::Array(_))) {
                return Err(malformed("volumeMounts of a container", "a list"));
            }
        }
        Ok(parts)
    }

    /// Returns all init containers, then all containers.
    pub(super) fn all_containers(&self) -> impl Iterator<Item = &'a Value> {
        self.init.into_iter().flatten().chain(self.containers.into_iter().flatten())
    }

    /// Returns the index of the init container with this name.
    pub(super) fn init_position(&self, container: &str) -> Option<usize> {
        self.init?.iter().position(|candidate| name(candidate) == Some(container))
    }
}

/// Returns the name of a container, volume, port or variable.
pub(super) fn name(item: &Value) -> Option<&str> {
    item.get("name").and_then(Value::as_str)
}

/// True if an init container runs beside the application instead of before it.
pub(super) fn is_native_sidecar(container: &Value) -> bool {
    container.get("restartPolicy").and_then(Value::as_str) == Some("Always")
}

fn malformed(path: &str, expected: &'static str) -> Malformed {
    Malformed { path: path.to_owned(), expected }
}

/// Returns a member that must be an object. `None` if it is absent or null, which the API server treats as absent.
fn object<'a>(parent: &'a Value, key: &str, path: &str) -> Result<Option<&'a Value>, Malformed> {
    match parent.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(member @ Value::Object(_)) => Ok(Some(member)),
        Some(_) => Err(malformed(path, "an object")),
    }
}

/// Returns a member of the spec that must be a list of objects. `None` if it is absent or null.
fn objects<'a>(spec: &'a Value, key: &str) -> Result<Option<&'a Vec<Value>>, Malformed> {
    match spec.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) if items.iter().all(Value::is_object) => Ok(Some(items)),
        Some(_) => Err(malformed(&format!("spec.{key}"), "a list of objects")),
    }
}
