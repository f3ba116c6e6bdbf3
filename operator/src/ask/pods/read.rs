//! Reads the pods that ask for an environment, and asks their sidecars.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::ResourceExt;

use crate::{
    api::names::{EnvironmentName, label, sidecar},
    ask::{cluster::Cluster, failure::Failure},
    injection::{flag_overrides::FlagOverrides, pods::requests},
};

/// State of a pod as its object in the cluster has it.
#[derive(Debug)]
pub(in crate::ask) struct Seen {
    pub(super) pod: String,
    pub(super) node: String,
    pub(super) port: u16,
    /// Flags that the sidecar overrides by its arguments.
    pub(super) overrides: Vec<String>,
    /// Secret with the key of the signed overrides that the sidecar accepts.
    pub(super) override_key: Option<String>,
    /// Why the sidecar does not run.
    pub(super) not_running: Option<String>,
    /// Revision that the pod was notified of.
    pub(super) notified: Option<String>,
}

/// Lists the pods that ask for the environment and have not ended.
pub(in crate::ask) async fn requesting(cluster: &Cluster, environment: &EnvironmentName) -> Result<Vec<Seen>, Failure> {
    let labels = format!("{}={}", label::SIDECAR, label::INJECTED);
    let asks = |pod: &Pod| requests(&pod.metadata, environment) && !has_ended(pod);
    cluster.select(Some(cluster.namespace()), &labels, |pod| asks(&pod).then(|| seen(&pod, environment))).await
}

impl Seen {
    /// True if the sidecar runs.
    pub(in crate::ask) fn is_running(&self) -> bool {
        self.not_running.is_none()
    }

    /// Asks the sidecar's admin port, through the API server.
    pub(in crate::ask) async fn ask(&self, cluster: &Cluster, path: &str) -> Result<String, Failure> {
        cluster.ask_pod(cluster.namespace(), &self.pod, self.port, path).await
    }
}

/// True if the pod's containers have ended for good, as those of a finished Job.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns the state of a pod.
pub(super) fn seen(pod: &Pod, environment: &EnvironmentName) -> Seen {
    let mut init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let container = init.find(|container| container.name == sidecar::CONTAINER);
    let ports = container.iter().flat_map(|own| own.ports.iter().flatten());
    let admin = sidecar::admin_port(ports.map(|port| (port.name.as_deref(), port.container_port)));
    let statuses = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let own = statuses.into_iter().find(|container| container.name == sidecar::CONTAINER);
    Seen {
        pod: pod.name_any(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_else(|| "none".to_owned()),
        port: admin.unwrap_or(sidecar::DATA_PORT + 1),
        overrides: container.map(overrides).unwrap_or_default(),
        override_key: container.and_then(|own| override_key(pod, own)),
        not_running: not_running(own),
        notified: environment.notified_revision(pod.annotations()).map(str::to_owned),
    }
}

/// Names the flags that the sidecar's arguments override. The annotation may have changed since the pod was created.
fn overrides(own: &Container) -> Vec<String> {
    let mut arguments = own.args.iter().flatten();
    let given = arguments.find(|argument| *argument == sidecar::OVERRIDES_OPTION).and_then(|_| arguments.next());
    given
        .map(|text| FlagOverrides::parse(text).map_or(vec![text.clone()], |read| read.flags().collect()))
        .unwrap_or_default()
}

/// Names the Secret whose key signs the overrides of requests, if the sidecar accepts them.
fn override_key(pod: &Pod, own: &Container) -> Option<String> {
    own.args.iter().flatten().find(|argument| *argument == sidecar::OVERRIDE_KEY_OPTION)?;
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let volume = volumes.find(|volume| volume.name == sidecar::OVERRIDE_KEY_VOLUME)?;
    volume.secret.as_ref()?.secret_name.clone()
}

fn not_running(own: Option<&ContainerStatus>) -> Option<String> {
    let Some(own) = own else { return Some("the pod is not started on a node yet: see its Events".to_owned()) };
    let state = own.state.clone().unwrap_or_default();
    if state.running.is_some() {
        return None;
    }
    let waiting = state.waiting.and_then(|waiting| waiting.reason);
    let ended = state.terminated.and_then(|ended| ended.reason);
    let reason = waiting.or(ended).unwrap_or_else(|| "no reason given".to_owned());
    Some(format!(
        "the sidecar does not run: {reason}, {} restarts. kubectl logs with -c {} says why",
        own.restart_count,
        sidecar::CONTAINER
    ))
}
