//! FeatureEnvironments as the watch reads them.

use std::borrow::Cow;

use futures::{Stream, TryStreamExt};
use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Resource,
    core::{DeserializeGuard, error_boundary::InvalidObject},
    runtime::watcher::{self, Event, watcher},
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::referrers::WatchedEnvironment;
use crate::{
    api::{FeatureEnvironment, names::annotation},
    watched::selection::{Selection, metadata},
};

/// Largest length of an annotation in bytes. The status repeats 64 characters of a request for a fetch.
const ANNOTATION_MAX: usize = 256;

/// A FeatureEnvironment, or the reason why it cannot be read. Its metadata has only what the controller reads; the rest is
/// skipped while an answer of the API server is parsed, because its authors decide how large it is. The schema bounds the
/// spec.
#[derive(Clone, Debug)]
pub(super) struct EnvironmentObject(WatchedEnvironment);

/// Watches FeatureEnvironments.
pub(super) fn environments(
    api: Api<EnvironmentObject>,
) -> impl Stream<Item = watcher::Result<Event<WatchedEnvironment>>> + Send {
    watcher(api, watcher::Config::default()).map_ok(|event| match event {
        Event::Apply(object) => Event::Apply(object.0),
        Event::Delete(object) => Event::Delete(object.0),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(object.0),
        Event::InitDone => Event::InitDone,
    })
}

/// Metadata of a FeatureEnvironment that the controller reads.
struct Read;

impl Selection for Read {
    fn annotation(key: &str) -> usize {
        if [annotation::CONFIRM, annotation::REFRESH].contains(&key) { ANNOTATION_MAX } else { 0 }
    }
}

#[derive(Deserialize)]
struct Object {
    #[serde(deserialize_with = "metadata::<Read, _>")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl<'de> Deserialize<'de> for EnvironmentObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object { metadata, spec, status } = Object::deserialize(deserializer)?;
        let read = serde_json::from_value(spec).and_then(|spec| Ok((spec, serde_json::from_value(status)?)));
        Ok(Self(DeserializeGuard(match read {
            Ok((spec, status)) => Ok(FeatureEnvironment { metadata, spec, status }),
            Err(error) => Err(InvalidObject { error: error.to_string(), metadata }),
        })))
    }
}

impl Resource for EnvironmentObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        FeatureEnvironment::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        FeatureEnvironment::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        FeatureEnvironment::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        FeatureEnvironment::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(metadata: &Value, spec: &Value) -> WatchedEnvironment {
        let object = json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": metadata, "spec": spec});
        serde_json::from_str::<EnvironmentObject>(&object.to_string()).unwrap().0
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
