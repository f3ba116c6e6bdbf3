//! Objects of a kind, without the fields that are not read.

use std::{borrow::Cow, fmt::Debug, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, de::IgnoredAny};

use super::selection::{Selection, metadata};

/// An object of the kind `K` with the metadata that `S` selects, and with the fields of its spec and its status that `P`
/// and `T` name. The other fields are skipped while an answer of the API server is parsed, because the authors of objects
/// decide how large they are.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound(deserialize = "S: Selection, P: Deserialize<'de>, T: Deserialize<'de>"))]
pub struct PartialObject<K, S, P = IgnoredAny, T = IgnoredAny> {
    /// The selected metadata.
    #[serde(deserialize_with = "metadata::<S, _>")]
    pub metadata: ObjectMeta,
    /// The fields of the spec. `None` if the object has no spec.
    pub spec: Option<P>,
    /// The fields of the status. `None` if the object has no status.
    pub status: Option<T>,
    #[serde(skip)]
    kind: PhantomData<fn() -> (K, S)>,
}

/// Fields of a spec or of a status.
pub trait Fields {
    /// True if a field is read. The API server is asked for metadata only if no field of an object is read.
    const ARE_READ: bool = true;
}

impl Fields for IgnoredAny {
    const ARE_READ: bool = false;
}

impl<K, S, P, T> Resource for PartialObject<K, S, P, T>
where
    K: Resource<DynamicType = ()>,
    P: Fields,
    T: Fields,
{
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn metadata_api() -> bool {
        !(P::ARE_READ || T::ARE_READ)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Namespace, Pod};

    use super::*;

    #[derive(Clone, Debug)]
    struct Names;

    impl Selection for Names {}

    #[derive(Clone, Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        node_name: String,
    }

    impl Fields for Spec {}

    #[test]
    fn object_without_fields_is_read_by_metadata_api() {
        assert!(PartialObject::<Namespace, Names>::metadata_api());
        assert!(!PartialObject::<Pod, Names, Spec>::metadata_api());
        assert!(!PartialObject::<Pod, Names, IgnoredAny, Spec>::metadata_api());
    }

    #[test]
    fn named_fields_are_kept_and_others_are_skipped() {
        let pod =
            r#"{"metadata": {"name": "web"}, "spec": {"nodeName": "n", "containers": []}, "status": {"phase": 7}}"#;
        let pod: PartialObject<Pod, Names, Spec> = serde_json::from_str(pod).unwrap();
        assert_eq!(pod.meta().name.as_deref(), Some("web"));
        assert_eq!(pod.spec.unwrap().node_name, "n");
        let pod: PartialObject<Pod, Names, Spec> = serde_json::from_str(r#"{"metadata": {}}"#).unwrap();
        assert!(pod.spec.is_none() && pod.status.is_none());
    }
}
