//! The fields of a pod that the rollout reads.

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    api::names::annotation,
    watched::{
        partial::{Fields, PartialObject},
        selection::Selection,
    },
};

/// Largest length of an annotation in bytes. The API server refuses longer ones.
const ANNOTATION_MAX: usize = 256 << 10;

/// A pod without the fields that the rollout does not read.
pub type InjectedPod = PartialObject<Pod, PodSelection, Spec, Status>;

/// The annotation with the requested environments, and those with their revisions.
#[derive(Clone, Debug)]
pub struct PodSelection;

impl Selection for PodSelection {
    fn annotation(key: &str) -> usize {
        if key == annotation::INJECT || key.starts_with(annotation::REVISION) { ANNOTATION_MAX } else { 0 }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    pub(super) init_containers: Option<Vec<Container>>,
    pub(super) containers: Option<Vec<Container>>,
    pub(super) resources: Option<Resources>,
    pub(super) volumes: Option<Vec<Volume>>,
}

impl Fields for Spec {}

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
pub struct Status {
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
    pub(super) init_container_statuses: Option<Vec<ContainerStatus>>,
}

impl Fields for Status {}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    pub(super) state: Option<ContainerState>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ContainerState {
    pub(super) running: Option<IgnoredAny>,
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
        assert_eq!(pod.metadata.annotations.as_ref().unwrap().len(), 2);
        let kept = format!("{pod:?}").len();
        assert!(kept < 10_000, "{kept} characters are kept");
    }
}
