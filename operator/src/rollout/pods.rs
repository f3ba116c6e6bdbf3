//! The injected pods of an environment, and what their objects say about their sidecar and volume.
//!
//! One watch reports the pods of all environments, so that a change of an environment lists none. Only a decision that a
//! pod created a moment ago could turn lists them: see [`list`].

use std::{net::SocketAddr, sync::Arc};

use futures::StreamExt;
use jiff::Timestamp;
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use remora_snapshot::files::{self, CoreSet};

use super::injected_pod::{Container, InjectedPod, Resources};
use crate::{
    api::{
        NamespacedName, ObjectKind,
        names::{EnvironmentName, Format, NOTIFICATION_MAX, notified_revision, sidecar},
    },
    injection::{Slots, pods, quantity::Quantity},
    watched::{Feed, View, Views, Watched, bounded::bounded, watched},
};

/// Number of pods in a page of the watch's list. The text of a page is in memory as a whole, and a pod may have 1.5 MiB.
const PAGE: u32 = 25;
/// Memory of the view that an environment has of a pod, in bytes, without the name of the pod.
const VIEW_BYTES: usize = 600;
/// Memory of the name of a pod, in bytes, without its text.
const NAME_BYTES: usize = 100;
/// Number of pod names in a message.
const NAMED: usize = 3;

/// Injected pods that may still run, by environment, from a watch. Pods that are being deleted are among them.
pub type RunningPods = Watched<Arc<Injected>>;

/// Writes the events of the watch to [`RunningPods`].
pub type RunningPodsFeed = Feed<InjectedPod, Arc<Injected>>;

impl View for Arc<Injected> {}

/// Creates an empty set of pods and its feed.
#[must_use]
pub fn running_pods() -> (RunningPods, RunningPodsFeed) {
    watched(views)
}

/// Watches the injected pods. Never returns.
pub async fn follow(api: Api<InjectedPod>, mut feed: RunningPodsFeed) {
    let selected = pods::injected();
    let selected = watcher::Config {
        label_selector: selected.label_selector,
        field_selector: selected.field_selector,
        page_size: Some(PAGE),
        ..watcher::Config::default()
    };
    let events = bounded(watcher(api, selected), "injected pods", view_bytes);
    let mut events = events.default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => drop(feed.apply_watcher_event(&event)),
            Err(error) => tracing::warn!(%error, "cannot watch the injected pods; trying again"),
        }
    }
    std::future::pending::<()>().await;
}

/// Returns the memory that the views of the pod take in bytes.
fn view_bytes(pod: &InjectedPod) -> usize {
    // A pod that requests no environment has no view, and is remembered by its name.
    let name = NAME_BYTES + pod.name_any().len();
    name + views(pod).iter().map(|(_, view)| VIEW_BYTES + view.name.len()).sum::<usize>()
}

/// Returns what each environment that the pod serves needs to know of it.
fn views(pod: &InjectedPod) -> Views<Arc<Injected>> {
    let view = |environment: EnvironmentName| (environment.to_string(), Arc::new(Injected::of(pod, &environment)));
    pods::environments(pod.meta()).into_iter().map(view).collect()
}

/// Returns the pods that serve the environment and are not being deleted.
pub(super) fn staying(pods: &RunningPods, namespace: &str, environment: &EnvironmentName) -> Vec<Arc<Injected>> {
    let mut found = pods.of(&NamespacedName::new(namespace, environment.as_str()));
    found.retain(|pod| !pod.is_ending);
    found
}

/// A pod whose sidecar serves the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    pub(crate) uid: String,
    pub(super) name: String,
    /// True if the pod is being deleted. Its application may go on until the grace period ends.
    pub(super) is_ending: bool,
    /// The annotation that notifies the pod, as the watch shows it.
    pub(super) annotation: RevisionAnnotation,
    /// Admin address of the sidecar, while the sidecar runs.
    pub(crate) admin: Option<SocketAddr>,
    /// Capacity of the pod's volumes in bytes, if memory limits bound it.
    pub(super) capacity: Option<u128>,
    /// The volume of the environment, if the pod has one in a known layout.
    pub(super) volume: Option<Mounted>,
    /// Time at which the pod was created.
    pub(crate) created: Option<Timestamp>,
}

/// Content of the annotation that notifies a pod of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RevisionAnnotation {
    /// The pod has no such annotation.
    Absent,
    Text(String),
    /// A text that is longer than any notification. It is not kept: a user may have written a quarter of a megabyte.
    TooLong,
}

impl RevisionAnnotation {
    /// Returns the revision, which the number of a repeated notification may follow.
    pub(super) fn revision(&self) -> Option<&str> {
        match self {
            Self::Text(text) => notified_revision(text),
            Self::Absent | Self::TooLong => None,
        }
    }
}

/// Layout of a pod's volume, which was fixed when the pod was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    pub(super) object_kind: ObjectKind,
    pub(super) format: Format,
    /// Objects that the volume names.
    pub(super) slots: Slots,
}

/// Lists the pods of the namespace that serve the environment and may still run, also those that the watch does not show
/// yet.
pub(super) async fn list(
    client: &Client,
    namespace: &str,
    environment: &EnvironmentName,
) -> Result<Vec<Injected>, pods::Error> {
    let keep = |pod: InjectedPod| injected(&pod, environment);
    pods::list(client, Some(namespace), pods::Form::Object, pods::injected(), keep).await
}

fn injected(pod: &InjectedPod, environment: &EnvironmentName) -> Option<Injected> {
    pods::requests(pod.meta(), environment).then(|| Injected::of(pod, environment))
}

impl Injected {
    fn of(pod: &InjectedPod, environment: &EnvironmentName) -> Self {
        Self {
            uid: pod.uid().unwrap_or_default(),
            name: pod.name_any(),
            is_ending: pod.meta().deletion_timestamp.is_some(),
            annotation: match pod.annotations().get(&environment.revision_annotation()) {
                None => RevisionAnnotation::Absent,
                Some(text) if text.len() <= NOTIFICATION_MAX => RevisionAnnotation::Text(text.clone()),
                Some(_) => RevisionAnnotation::TooLong,
            },
            admin: admin(pod),
            capacity: capacity(pod),
            volume: volume(pod, environment),
            created: pod.meta().creation_timestamp.as_ref().map(|created| created.0),
        }
    }
}

/// Counts the pods, and names the first few.
pub(super) fn named(pods: &[&Injected]) -> String {
    let mut names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    names.sort_unstable();
    let (rest, plural) = (names.len().saturating_sub(NAMED), if names.len() == 1 { "" } else { "s" });
    names.truncate(NAMED);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("{} pod{plural} ({}{more})", pods.len(), names.join(", "))
}

#[cfg(test)]
impl Injected {
    /// A pod of which only name and UID are known.
    pub(super) fn named(name: &str) -> Self {
        Self {
            uid: name.to_owned(),
            name: name.to_owned(),
            is_ending: false,
            annotation: RevisionAnnotation::Absent,
            admin: None,
            capacity: None,
            volume: None,
            created: None,
        }
    }
}

/// Admin address of the sidecar, or `None` while the sidecar does not run.
fn admin(pod: &InjectedPod) -> Option<SocketAddr> {
    let status = pod.status.as_ref()?;
    let mut containers = status.init_container_statuses.iter().flatten();
    let own = containers.find(|container| container.name == sidecar::CONTAINER)?;
    own.state.as_ref()?.running.as_ref()?;
    let mut containers = pod.spec.as_ref()?.init_containers.iter().flatten();
    let own = containers.find(|container| container.name == sidecar::CONTAINER)?;
    let port = sidecar::admin_port(own.ports.iter().flatten().map(|port| (port.name.as_deref(), port.container_port)))?;
    Some(SocketAddr::new(status.pod_ip.as_ref()?.parse().ok()?, port))
}

fn volume(pod: &InjectedPod, environment: &EnvironmentName) -> Option<Mounted> {
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
fn capacity(pod: &InjectedPod) -> Option<u128> {
    let spec = pod.spec.as_ref()?;
    if let Some(whole) = memory_limit(spec.resources.as_ref()) {
        return bytes(whole);
    }
    let stays = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let initial = spec.init_containers.iter().flatten().filter(stays);
    let containers = spec.containers.iter().flatten().chain(initial);
    containers.map(|container| bytes(memory_limit(container.resources.as_ref())?)).sum()
}

fn memory_limit(resources: Option<&Resources>) -> Option<&str> {
    resources?.limits.as_ref()?.memory.as_deref()
}

fn bytes(quantity: &str) -> Option<u128> {
    quantity.parse::<Quantity>().ok().map(|quantity| quantity.milli() / 1000)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::REVISION_MAX;
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
        let pod: InjectedPod = serde_json::from_value(pod).unwrap();
        let environment = "shop".parse().unwrap();
        injected(&pod, &environment)
    }

    #[test]
    fn repeated_notification_names_the_same_revision() {
        let annotation = |text: &str| {
            read(|pod| pod["metadata"]["annotations"]["remora.dev/revision.shop"] = json!(text)).unwrap().annotation
        };
        assert_eq!((annotation("0a1b").revision(), annotation("0a1b 3").revision()), (Some("0a1b"), Some("0a1b")));
        assert_eq!((annotation("").revision(), read(|_| {}).unwrap().annotation), (None, RevisionAnnotation::Absent));
        assert_eq!(annotation(&"0".repeat(REVISION_MAX + 1)).revision(), None);
        let longest = format!("{} 100", "0".repeat(REVISION_MAX));
        assert_eq!(annotation(&longest), RevisionAnnotation::Text(longest));
        let long = annotation(&"0 ".repeat(REVISION_MAX));
        assert_eq!(long, RevisionAnnotation::TooLong, "each pod would keep the text in memory");
    }

    fn pod(name: &str, inject: &str) -> InjectedPod {
        let metadata = json!({"name": name, "namespace": "n", "annotations": {"remora.dev/inject": inject}});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn pod_has_a_view_for_each_of_its_environments() {
        let environments = |inject: &str| -> Vec<String> {
            views(&pod("p", inject)).into_iter().map(|(environment, _)| environment).collect()
        };
        assert_eq!(environments("other, shop"), ["other", "shop"]);
        assert_eq!(environments("shopping,No Name"), ["shopping"]);
        assert!(environments("").is_empty());
        let many = (0..1_000).map(|number| format!("e{number}")).collect::<Vec<_>>().join(",");
        assert!(environments(&many).is_empty(), "the webhook admits no such pod");
    }

    #[test]
    fn pod_without_environment_takes_memory_for_its_name() {
        let bytes = |name: &str, inject: &str| view_bytes(&pod(name, inject));
        assert_eq!(bytes("p", ""), NAME_BYTES + 1);
        assert_eq!(bytes(&"p".repeat(253), "No Name"), NAME_BYTES + 253);
        assert_eq!(bytes("p", "shop"), NAME_BYTES + VIEW_BYTES + 2);
    }

    #[test]
    fn pod_that_is_being_deleted_does_not_stay() {
        let (running, mut feed) = running_pods();
        let mut deleted = pod("deleted", "shop");
        deleted.meta_mut().deletion_timestamp = serde_json::from_value(json!("2026-11-20T00:00:00Z")).unwrap();
        for pod in [pod("web", "shop"), deleted] {
            feed.apply_watcher_event(&watcher::Event::Apply(pod));
        }
        assert_eq!(running.of(&NamespacedName::new("n", "shop")).len(), 2);
        let staying = staying(&running, "n", &"shop".parse().unwrap());
        assert_eq!(staying.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["web"]);
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
