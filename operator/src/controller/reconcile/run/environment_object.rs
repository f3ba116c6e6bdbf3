//! FeatureEnvironments as the watch reads them.

use futures::{Stream, TryStreamExt};
use kube::{
    Api, Resource,
    core::{DeserializeGuard, error_boundary::InvalidObject},
    runtime::watcher::{self, Event, watcher},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use super::referrers::WatchedEnvironment;
use crate::{
    api::{FeatureEnvironment, FeatureEnvironmentSpec, FeatureEnvironmentStatus, names::annotation},
    watched::{
        bounded::metadata_bytes,
        partial::{Fields, PartialObject},
        selection::Selection,
    },
};

/// Largest length of an annotation in bytes. The status repeats 64 characters of a request for a fetch.
const ANNOTATION_MAX: usize = 256;

/// A FeatureEnvironment whose spec or status may not be readable. The schema bounds both.
pub(super) type EnvironmentObject =
    PartialObject<FeatureEnvironment, Selected, Parsed<FeatureEnvironmentSpec>, Parsed<FeatureEnvironmentStatus>>;

/// Watches FeatureEnvironments.
pub(super) fn environments(
    api: Api<EnvironmentObject>,
) -> impl Stream<Item = watcher::Result<Event<WatchedEnvironment>>> + Send {
    watcher(api, watcher::Config::default()).map_ok(|event| match event {
        Event::Apply(object) => Event::Apply(watched(object)),
        Event::Delete(object) => Event::Delete(watched(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(watched(object)),
        Event::InitDone => Event::InitDone,
    })
}

/// Memory of an environment beside its object, in bytes: its state, its tasks and its metrics.
const STATE_BYTES: usize = 6 << 10;

/// Returns the memory that an environment takes in bytes, without its snapshot and its documents, which have bounds of their
/// own. A text is in memory twice, in the object and in the state.
pub(super) fn environment_bytes(environment: &WatchedEnvironment) -> usize {
    let texts = match &environment.0 {
        Ok(environment) => {
            serde_json::to_string(&(&environment.spec, &environment.status)).map_or(0, |texts| texts.len())
        }
        Err(invalid) => invalid.error.len(),
    };
    STATE_BYTES + metadata_bytes(environment.meta()) + 2 * texts
}

/// Metadata of a FeatureEnvironment that the controller reads.
#[derive(Clone, Debug)]
pub(super) struct Selected;

impl Selection for Selected {
    fn annotation(key: &str) -> usize {
        if [annotation::CONFIRM, annotation::REFRESH].contains(&key) { ANNOTATION_MAX } else { 0 }
    }
}

/// Part of an object, or the reason why it cannot be read.
#[derive(Clone, Debug)]
pub(super) struct Parsed<T>(Result<T, String>);

impl<T> Fields for Parsed<T> {}

impl<T: DeserializeOwned> From<Value> for Parsed<T> {
    fn from(part: Value) -> Self {
        Self(serde_json::from_value(part).map_err(|error| error.to_string()))
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Value::deserialize(deserializer)?.into())
    }
}

fn watched(object: EnvironmentObject) -> WatchedEnvironment {
    let EnvironmentObject { metadata, spec, status, .. } = object;
    let spec = spec.unwrap_or_else(|| Value::Null.into()).0;
    let read = spec.and_then(|spec| Ok((spec, status.map(|status| status.0).transpose()?)));
    DeserializeGuard(match read {
        Ok((spec, status)) => Ok(FeatureEnvironment { metadata, spec, status }),
        Err(error) => Err(InvalidObject { error, metadata }),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(metadata: &Value, spec: &Value) -> WatchedEnvironment {
        let object = json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": metadata, "spec": spec});
        watched(serde_json::from_str(&object.to_string()).unwrap())
    }

    #[test]
    fn metadata_whose_size_authors_decide_is_not_kept() {
        let source = json!({"source": {"document": {"configMapKeyRef": {"name": "flags", "key": "k"}}}});
        let mut annotations = json!({"remora.dev/refresh": "x".repeat(100_000), "remora.dev/confirm": "0a1b"});
        let mut fields = json!({});
        for number in 0..40_000 {
            annotations[format!("{number:04x}")] = json!("");
            fields[format!("f:{number:04x}")] = json!({});
        }
        let found = read(
            &json!({
                "name": "storefront", "namespace": "shop", "uid": "u", "generation": 3, "annotations": annotations,
                "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:annotations": fields}}}],
            }),
            &source,
        );
        let kept = format!("{:?}", found.meta()).len();
        assert!(kept < 2_000, "{kept} characters are kept of 40,000 annotations");
        let found = found.0.unwrap();
        assert_eq!(found.metadata.generation, Some(3));
        assert_eq!(found.metadata.annotations.unwrap()["remora.dev/confirm"], "0a1b");
    }

    #[test]
    fn environment_that_cannot_be_read_keeps_its_name() {
        let invalid = read(&json!({"name": "a"}), &json!({"source": 7})).0.unwrap_err();
        assert_eq!(invalid.metadata.name.as_deref(), Some("a"));
        assert!(read(&json!({"name": "a"}), &Value::Null).0.is_err());
    }
}
