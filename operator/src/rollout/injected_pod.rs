//! The fields of a pod that the rollout reads.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use crate::api::names::annotation;

/// A pod without the fields that the rollout does not read. They are skipped while an answer of the API server is parsed,
/// because the authors of pods decide how large they are.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InjectedPod {
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
    pub(super) spec: Option<Spec>,
    pub(super) status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) init_containers: Option<Vec<Container>>,
    pub(super) containers: Option<Vec<Container>>,
    pub(super) resources: Option<Resources>,
    pub(super) volumes: Option<Vec<Volume>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) restart_policy: Option<String>,
    pub(super) ports: Option<Vec<Port>>,
    pub(super) resources: Option<Resources>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Port {
    pub(super) name: Option<String>,
    pub(super) container_port: i32,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Resources {
    pub(super) limits: Option<Limits>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Limits {
    pub(super) memory: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) projected: Option<Projected>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Projected {
    pub(super) sources: Option<Vec<Source>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Source {
    pub(super) config_map: Option<Named>,
    pub(super) secret: Option<Named>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Named {
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
    pub(super) init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    pub(super) state: Option<ContainerState>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ContainerState {
    pub(super) running: Option<IgnoredAny>,
}

/// Reads the metadata that the watch and the rollout need.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        annotations: Option<Annotations>,
    }
    let metadata = Metadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        creation_timestamp: metadata.creation_timestamp,
        deletion_timestamp: metadata.deletion_timestamp,
        annotations: metadata.annotations.map(|annotations| annotations.0),
        ..ObjectMeta::default()
    })
}

/// The annotation with the requested environments, and those with their revisions.
struct Annotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Selected;
        impl<'de> Visitor<'de> for Selected {
            type Value = Annotations;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("annotations")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Annotations, M::Error> {
                let mut selected = BTreeMap::new();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    if key == annotation::INJECT || key.starts_with(annotation::REVISION) {
                        selected.insert(key.into_owned(), map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Annotations(selected))
            }
        }
        deserializer.deserialize_map(Selected)
    }
}

impl Resource for InjectedPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
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
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_whose_size_authors_of_pods_decide_are_not_kept() {
        let large = "x".repeat(100_000);
        let pod = json!({
            "metadata": {
                "name": "web", "namespace": "shop", "labels": {"large": large}, "managedFields": [{"manager": large}],
                "annotations": {"remora.dev/inject": "storefront", "remora.dev/revision.storefront": "0a1b", "large": large},
            },
            "spec": {"containers": [{"name": "web", "image": large, "env": [{"name": "large", "value": large}]}]},
            "status": {"message": large},
        });
        let pod: InjectedPod = serde_json::from_str(&pod.to_string()).unwrap();
        assert_eq!(pod.meta().annotations.as_ref().unwrap().len(), 2);
        let kept = format!("{pod:?}").len();
        assert!(kept < 10_000, "{kept} characters are kept");
    }
}
