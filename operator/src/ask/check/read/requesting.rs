//! Describes a pod that requests flags. Pure.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::ResourceExt;

use crate::{
    api::names::{annotation, sidecar},
    ask::check::facts::Requesting,
    injection::{PodContext, is_candidate, missing_sidecar},
};

/// Label of a Deployment's pods: the last part of their ReplicaSet's name.
const TEMPLATE_HASH: &str = "pod-template-hash";
/// Largest number of environments that are looked at of one pod. The webhook admits fewer.
const NAMES_MAX: usize = 16;
/// Number of characters of such a name that findings show. No FeatureEnvironment has a longer name.
const NAME_MAX: usize = 64;

/// Describes a pod that requests flags. `None` if it does not, or never gets a sidecar, or has ended.
pub(super) fn requesting(pod: &Pod, system_namespace: &str) -> Option<Requesting> {
    let namespace = pod.namespace()?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_ended = pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"));
    if has_ended || !is_candidate(pod.annotations(), &namespace, system_namespace) {
        return None;
    }
    let sidecar = sidecar_of(pod);
    let has_sidecar = sidecar.is_some();
    if !has_sidecar {
        let value = serde_json::to_value(pod).ok()?;
        // A pod that would not be injected today either, such as one on the host's network, is no fault.
        missing_sidecar(&value, &PodContext::new(&namespace), system_namespace)?;
    }
    let statuses = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let own = statuses.into_iter().find(|status| status.name == sidecar::CONTAINER);
    let names = pod.annotations().get(annotation::INJECT)?.split(',');
    Some(Requesting {
        name: pod.name_any(),
        environments: names.take(NAMES_MAX).map(|name| name.trim().chars().take(NAME_MAX).collect()).collect(),
        has_sidecar,
        image: sidecar.and_then(|own| own.image.clone()),
        workload: workload(pod, &namespace),
        waits: own.and_then(waits),
        restarts: own.map(|own| own.restart_count).unwrap_or_default(),
        namespace,
    })
}

fn sidecar_of(pod: &Pod) -> Option<&Container> {
    let mut init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    init.find(|own| own.name == sidecar::CONTAINER && own.restart_policy.as_deref() == Some("Always"))
}

/// Returns kind, namespace and name of the object that creates the pod, or of the pod itself. A Deployment creates pods by
/// a ReplicaSet, whose name begins with the Deployment's.
fn workload(pod: &Pod, namespace: &str) -> String {
    let Some(owner) = pod.owner_references().iter().find(|owner| owner.controller == Some(true)) else {
        return format!("pod {namespace}/{}", pod.name_any());
    };
    let hash = pod.labels().get(TEMPLATE_HASH).filter(|_| owner.kind == "ReplicaSet");
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    match deployment {
        Some(name) => format!("Deployment {namespace}/{name}"),
        None => format!("{} {namespace}/{}", owner.kind, owner.name),
    }
}

/// Returns why a sidecar does not run. A container that is being created is no fault yet.
fn waits(own: &ContainerStatus) -> Option<String> {
    let waiting = own.state.as_ref()?.waiting.as_ref()?;
    let reason =
        waiting.reason.clone().filter(|reason| reason != "PodInitializing" && reason != "ContainerCreating")?;
    let message = waiting.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    Some(format!("{reason}{message}"))
}
