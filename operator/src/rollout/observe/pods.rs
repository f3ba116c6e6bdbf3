//! The injected pods of an environment, and what their objects say about their sidecar and volume.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{Api, Client, ResourceExt};
use remora_snapshot::files::{self, CoreSet};

use crate::{
    api::{
        ObjectKind,
        names::{EnvironmentName, Format, sidecar},
    },
    injection::{Slots, pods, quantity::Quantity},
};

/// A pod whose sidecar serves the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Injected {
    pub(super) uid: String,
    pub(super) name: String,
    /// Admin address of the sidecar, while the sidecar runs.
    pub(super) admin: Option<SocketAddr>,
    /// Capacity of the pod's volumes in bytes, if memory limits bound it.
    pub(super) capacity: Option<u128>,
    /// The volume of the environment, if the pod has one in a known layout.
    pub(super) volume: Option<Mounted>,
}

/// Layout of a pod's volume, which was fixed when the pod was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    pub(super) object_kind: ObjectKind,
    pub(super) format: Format,
    /// Objects that the volume names.
    pub(super) slots: Slots,
}

/// Lists the pods of the namespace that serve the environment and may still run.
pub(super) async fn list(
    client: &Client,
    namespace: &str,
    environment: &EnvironmentName,
) -> Result<Vec<Injected>, pods::Error> {
    let api: &Api<Pod> = &Api::namespaced(client.clone(), namespace);
    let page = |parameters| async move { api.list(&parameters).await };
    pods::list(pods::injected(), page, |pod| injected(&pod, environment)).await
}

fn injected(pod: &Pod, environment: &EnvironmentName) -> Option<Injected> {
    pods::requests(&pod.metadata, environment).then(|| Injected {
        uid: pod.uid().unwrap_or_default(),
        name: pod.name_any(),
        admin: admin(pod),
        capacity: capacity(pod),
        volume: volume(pod, environment),
    })
}

/// Admin address of the sidecar, or `None` while the sidecar does not run.
fn admin(pod: &Pod) -> Option<SocketAddr> {
    let status = pod.status.as_ref()?;
    let mut containers = status.init_container_statuses.iter().flatten();
    let own = containers.find(|container| container.name == sidecar::CONTAINER)?;
    own.state.as_ref()?.running.as_ref()?;
    let mut containers = pod.spec.as_ref()?.init_containers.iter().flatten();
    let own = containers.find(|container| container.name == sidecar::CONTAINER)?;
    let port = own.ports.iter().flatten().find(|port| port.name.as_deref() == Some(sidecar::ADMIN_PORT))?;
    let port = u16::try_from(port.container_port).ok()?;
    Some(SocketAddr::new(status.pod_ip.as_ref()?.parse().ok()?, port))
}

fn volume(pod: &Pod, environment: &EnvironmentName) -> Option<Mounted> {
    let name = environment.volume();
    let volume = pod.spec.as_ref()?.volumes.iter().flatten().find(|volume| volume.name == name)?;
    let sources = volume.projected.as_ref()?.sources.as_ref()?;
    let objects = sources.iter().filter_map(|source| {
        let (object_kind, name) = match (&source.config_map, &source.secret) {
            (Some(map), _) => (ObjectKind::ConfigMap, &map.name),
            (None, Some(secret)) => (ObjectKind::Secret, &secret.name),
            (None, None) => return None,
        };
        environment.format_and_file(name).map(|(format, file)| (object_kind, format, file))
    });
    let (object_kind, format, _) = objects.clone().find(|(_, _, file)| *file == files::CORE)?;
    let count = |prefix: &str| objects.clone().filter(|(_, _, file)| file.starts_with(prefix)).count();
    let parts = CoreSet::ALL.map(|set| count(&format!("core-{set}-")));
    let slots = Slots { overrides: count("overrides-"), core_parts: parts.into_iter().min().unwrap_or_default() };
    Some(Mounted { object_kind, format, slots })
}

/// Capacity of a projected volume in bytes. The volume is a tmpfs as large as the pod's memory limit: that of the pod as a
/// whole, or the sum if every long-running container has a limit.
fn capacity(pod: &Pod) -> Option<u128> {
    let spec = pod.spec.as_ref()?;
    let whole = spec.resources.as_ref().and_then(|resources| resources.limits.as_ref()?.get("memory"));
    if let Some(whole) = whole {
        return bytes(&whole.0);
    }
    let stays = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let initial = spec.init_containers.iter().flatten().filter(stays);
    let limits = spec.containers.iter().chain(initial).map(|container| {
        let limits = container.resources.as_ref()?.limits.as_ref()?;
        bytes(&limits.get("memory")?.0)
    });
    limits.sum()
}

fn bytes(quantity: &str) -> Option<u128> {
    quantity.parse::<Quantity>().ok().map(|quantity| quantity.milli() / 1000)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{api::names::FORMAT, injection::Layout};

    fn read(change: impl FnOnce(&mut Value)) -> Option<Injected> {
        let mut pod = json!({
            "metadata": {"name": "web-1", "uid": "u", "annotations": {"remora.dev/inject": "other, shop"}},
            "spec": {
                "initContainers": [
                    {"name": "remora", "restartPolicy": "Always", "ports": [{"name": "remora-admin", "containerPort": 4778}],
                     "resources": {"limits": {"memory": "32Mi"}}},
                    {"name": "setup"},
                ],
                "containers": [{"name": "app", "resources": {"limits": {"memory": "64Mi"}}}],
            },
            "status": {"podIP": "10.0.0.7", "initContainerStatuses": [
                {"name": "remora", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}},
            ]},
        });
        change(&mut pod);
        injected(&serde_json::from_value(pod).unwrap(), &"shop".parse().unwrap())
    }

    #[test]
    fn running_sidecar_is_asked_on_its_admin_port() {
        assert_eq!(read(|_| {}).unwrap().admin, "10.0.0.7:4778".parse().ok());
        let ended = |pod: &mut Value| {
            pod["status"]["initContainerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 1}});
        };
        assert_eq!(read(ended).unwrap().admin, None);
        assert_eq!(read(|pod| pod["status"]["podIP"] = Value::Null).unwrap().admin, None);
        assert_eq!(read(|pod| pod["status"] = Value::Null).unwrap().admin, None);
        assert_eq!(read(|pod| pod["metadata"]["annotations"]["remora.dev/inject"] = json!("shopping")), None);
    }

    #[test]
    fn volume_gives_kind_and_slots() {
        assert_eq!(read(|_| {}).unwrap().volume, None);
        for (object_kind, overrides, core_parts) in [(ObjectKind::ConfigMap, 8, 0), (ObjectKind::Secret, 64, 17)] {
            let slots = Slots { overrides, core_parts };
            let layout = Layout { object_kind, slots, bytes: 0 };
            let named = |pod: &mut Value| pod["spec"]["volumes"] = json!([layout.volume(&"shop".parse().unwrap())]);
            assert_eq!(read(named).unwrap().volume, Some(Mounted { object_kind, format: FORMAT, slots }));
        }
    }

    #[test]
    fn volume_gives_format_version() {
        let earlier = FORMAT.earlier().next().unwrap();
        let environment: EnvironmentName = "shop".parse().unwrap();
        let of = |file: &str| json!({"configMap": {"name": environment.object_in(earlier, file)}});
        let sources = [of("core"), of("overrides-00"), of("overrides-01"), json!({"downwardAPI": {}})];
        let volume = json!({"name": environment.volume(), "projected": {"sources": sources}});
        let named = |pod: &mut Value| pod["spec"]["volumes"] = json!([volume]);
        let slots = Slots { overrides: 2, core_parts: 0 };
        let mounted = Mounted { object_kind: ObjectKind::ConfigMap, format: earlier, slots };
        assert_eq!(read(named).unwrap().volume, Some(mounted));
    }

    #[test]
    fn volume_capacity_is_sum_of_memory_limits() {
        assert_eq!(read(|_| {}).unwrap().capacity, Some(96 << 20));
        let unlimited = |pod: &mut Value| pod["spec"]["containers"][0]["resources"] = json!({});
        assert_eq!(read(unlimited).unwrap().capacity, None);
        let whole = |pod: &mut Value| pod["spec"]["resources"] = json!({"limits": {"memory": "1Gi"}});
        assert_eq!(read(whole).unwrap().capacity, Some(1 << 30));
    }
}
