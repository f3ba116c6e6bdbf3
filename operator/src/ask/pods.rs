//! `kubectl remora pods`: the pods of an environment and the revision that each serves.

use std::{collections::BTreeMap, fmt};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::ResourceExt;
use remora_tools::counted;
use serde::Serialize;

use super::{
    answer::{Colour, CommandOutput, TextOutput},
    cluster::Cluster,
    failure::Failure,
};
use crate::{
    api::{
        FeatureEnvironment, Revision,
        names::{EnvironmentName, REVISION_MAX, label, sidecar},
    },
    injection::{overrides::Overrides, pods::requests},
};

/// Number of sidecars that are asked at one time.
pub(super) const CONCURRENT: usize = 8;

/// The pods of an environment.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    environment: String,
    /// Revision that is published.
    revision: Option<String>,
    /// The operator's sentence about pods that are behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Why sidecars could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    unasked: Option<String>,
    pods: Vec<Row>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Row {
    pod: String,
    node: String,
    state: State,
    /// Revision that the sidecar serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    /// Time at which the sidecar began to serve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// Flags that the pod overrides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<String>,
    /// Secret with the key of the signed headers by which requests to the pod override flags.
    #[serde(rename = "overrideKey", skip_serializing_if = "Option::is_none")]
    override_key: Option<String>,
    /// Why the pod does not serve the published revision, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Serves the published revision.
    Current,
    /// Serves another revision.
    Behind,
    /// Serves nothing yet, or its sidecar does not run.
    Starting,
    /// Did not answer, or could not be asked.
    Unknown,
}

/// State of a pod as its object in the cluster has it.
#[derive(Debug)]
pub(super) struct Seen {
    pod: String,
    node: String,
    port: u16,
    /// Flags that the sidecar overrides by its arguments.
    overrides: Vec<String>,
    /// Secret with the key of the signed overrides that the sidecar accepts.
    override_key: Option<String>,
    /// Why the sidecar does not run.
    not_running: Option<String>,
    /// Revision that the pod was notified of.
    notified: Option<String>,
}

/// Answer of a sidecar about the environment.
#[derive(Debug, Default, PartialEq)]
struct Reply {
    revision: Option<String>,
    since: Option<Timestamp>,
}

/// Lists the pods, and asks each sidecar through the API server.
pub(super) async fn pods(cluster: &Cluster, environment: &str) -> Result<Listed, Failure> {
    let found = cluster.environment(environment).await?;
    let name: EnvironmentName =
        environment.parse().map_err(|error| Failure::Usage(format!("FeatureEnvironment {environment:?}: {error}")))?;
    let status = found.status.unwrap_or_default();
    let asking = requesting(cluster, &name).await?.into_iter().map(|pod| async {
        let reply = match pod.is_running() {
            false => Ok(Reply::default()),
            true => pod.ask(cluster, "/metrics").await.map(|text| reply(&text, name.as_str())),
        };
        (pod, reply)
    });
    let answers: Vec<_> = stream::iter(asking).buffered(CONCURRENT).collect().await;
    let unasked = answers.iter().find_map(|(_, reply)| match reply {
        Err(failure @ Failure::Forbidden { .. }) => Some(failure.to_string()),
        _ => None,
    });
    let rows = answers.into_iter().map(|(pod, reply)| row(pod, reply, status.revision.as_ref().map(Revision::as_str)));
    Ok(Listed {
        environment: environment.to_owned(),
        pods: rows.collect(),
        problem: status.pods.and_then(|pods| pods.problem),
        revision: status.revision.map(|revision| revision.to_string()),
        unasked,
    })
}

/// Lists the pods that ask for the environment and have not ended.
pub(super) async fn requesting(cluster: &Cluster, environment: &EnvironmentName) -> Result<Vec<Seen>, Failure> {
    let labels = format!("{}={}", label::SIDECAR, label::INJECTED);
    let asks = |pod: &Pod| requests(&pod.metadata, environment) && !has_ended(pod);
    cluster.select(Some(cluster.namespace()), &labels, |pod| asks(&pod).then(|| seen(&pod, environment))).await
}

impl Seen {
    /// True if the sidecar runs.
    pub(super) fn is_running(&self) -> bool {
        self.not_running.is_none()
    }

    /// Asks the sidecar's admin port, through the API server.
    pub(super) async fn ask(&self, cluster: &Cluster, path: &str) -> Result<String, Failure> {
        cluster.ask_pod(cluster.namespace(), &self.pod, self.port, path).await
    }
}

/// Answer of a pod: the data of an environment that it serves.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) revision: String,
    /// Flags that the pod overrides.
    pub(super) overrides: Vec<String>,
}

/// Asks a pod through the API server for the revision that it serves.
pub(super) async fn served(cluster: &Cluster, environment: &FeatureEnvironment, pod: &str) -> Result<Served, Failure> {
    let namespace = cluster.namespace();
    let name = environment.name_any();
    let own: EnvironmentName = name.parse().map_err(|error| Failure::Unreadable(format!("{error}")))?;
    let found: Option<Pod> = cluster.get(namespace, pod).await?;
    let Some(found) = found.filter(|found| requests(&found.metadata, &own)) else {
        return Err(Failure::Usage(format!(
            "namespace {namespace} has no pod {pod:?} that asks for FeatureEnvironment {name:?}: `kubectl remora pods {name} -n {namespace}` lists those that do"
        )));
    };
    let Seen { port, not_running, overrides, .. } = seen(&found, &own);
    if let Some(why) = not_running {
        return Err(Failure::Unreadable(format!("pod {pod} serves no revision: {why}")));
    }
    let metrics = cluster.ask_pod(namespace, pod, port, "/metrics").await?;
    let starting = || format!("pod {pod} serves no revision yet: kubelet has not written its volume");
    let revision = reply(&metrics, own.as_str()).revision.ok_or_else(|| Failure::Unreadable(starting()))?;
    Ok(Served { revision, overrides })
}

/// True if the pod's containers have ended for good, as those of a finished Job.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn seen(pod: &Pod, environment: &EnvironmentName) -> Seen {
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
        .map(|text| Overrides::parse(text).map_or(vec![text.clone()], |read| read.flags().collect()))
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

/// Parses the metrics of a sidecar.
fn reply(metrics: &str, environment: &str) -> Reply {
    let label = format!("environment=\"{environment}\"");
    let sample = |name: &str| {
        let of_name = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} "));
        of_name.into_iter().find(|(labels, _)| labels.split(',').any(|one| one == label))
    };
    let revision = sample("remora_sidecar_revision_info").and_then(|(labels, _)| {
        let revision = labels.split(',').find_map(|one| one.strip_prefix("revision=\""))?;
        // Another program may answer in the place of the sidecar.
        revision.strip_suffix('"').filter(|revision| revision.len() <= REVISION_MAX).map(str::to_owned)
    });
    let since = sample("remora_sidecar_last_swap_timestamp_seconds").and_then(|(_, at)| at.parse::<f64>().ok());
    // A timestamp has milliseconds, which fit into 64 bits for all times that a clock shows.
    let since = since.and_then(|at| Timestamp::from_second(at as i64).ok());
    Reply { revision, since }
}

fn row(pod: Seen, reply: Result<Reply, Failure>, published: Option<&str>) -> Row {
    let Seen { pod, node, overrides, override_key, not_running, notified, .. } = pod;
    let (state, reply, why) = match reply {
        _ if not_running.is_some() => (State::Starting, Reply::default(), not_running),
        Err(failure) => (State::Unknown, Reply::default(), Some(unanswered(&failure))),
        Ok(reply) => match (reply.revision.as_deref(), published) {
            (None, _) => {
                (State::Starting, reply, Some("the pod's volume has no snapshot yet: kubelet writes it".to_owned()))
            }
            (Some(serves), Some(published)) if serves != published => {
                let why = behind(notified.as_deref(), published);
                (State::Behind, reply, Some(why))
            }
            (Some(_), _) => (State::Current, reply, None),
        },
    };
    Row { pod, node, state, revision: reply.revision, since: reply.since, overrides, override_key, why }
}

fn unanswered(failure: &Failure) -> String {
    match failure {
        Failure::Forbidden { .. } => "not asked: a right is missing".to_owned(),
        failure => format!("{failure}; see NetworkPolicies of the namespace, and the pod's Events"),
    }
}

fn behind(notified: Option<&str>, published: &str) -> String {
    if notified == Some(published) {
        "the pod was notified: its kubelet has not written the volume, because the node is slow, the memory limit \
         leaves no room for the volume, or the volume is of an earlier format. See the pod's Events; a restart repairs it"
            .to_owned()
    } else {
        "the pod was not notified yet: its kubelet writes the volume within 60 to 90 s".to_owned()
    }
}

impl CommandOutput for Listed {
    fn text(&self, output: &mut TextOutput) -> fmt::Result {
        let published = self.revision.as_deref().unwrap_or("none");
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for row in &self.pods {
            *counts.entry(row.state.word()).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(state, count)| format!(", {count} {state}")).collect();
        output.line(format!(
            "published revision {published}: {}{}",
            counted(self.pods.len(), "pod"),
            counts.concat()
        ))?;
        let mut rows = vec![["POD", "NODE", "STATE", "REVISION", "SINCE"].map(str::to_owned).to_vec()];
        rows.extend(self.pods.iter().map(|row| {
            let since = row.since.map_or("-".to_owned(), |at| at.to_string());
            let revision = row.revision.clone().unwrap_or_else(|| "-".to_owned());
            vec![row.pod.clone(), row.node.clone(), row.state.word().to_owned(), revision, since]
        }));
        output.table(&rows)?;
        for row in self.pods.iter().filter(|row| !row.overrides.is_empty()) {
            let state = (Colour::Yellow, "overrides flags");
            output.painted_line(format!("{}: ", row.pod), state, format!(": {}", row.overrides.join(", ")))?;
        }
        for (row, secret) in self.pods.iter().filter_map(|row| Some((row, row.override_key.as_ref()?))) {
            let state = (Colour::Yellow, "accepts signed overrides");
            let key = format!(" in requests, with the key of Secret {secret:?}");
            output.painted_line(format!("{}: ", row.pod), state, key)?;
        }
        for (row, why) in self.pods.iter().filter_map(|row| Some((row, row.why.as_ref()?))) {
            let state = (row.state.colour(), row.state.word());
            output.painted_line(format!("{}: ", row.pod), state, format!(": {why}"))?;
        }
        for more in self.problem.iter().chain(&self.unasked) {
            output.line(more)?;
        }
        Ok(())
    }

    fn exit_code(&self) -> u8 {
        if self.unasked.is_some() { 3 } else { u8::from(self.pods.iter().any(|row| row.state != State::Current)) }
    }
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Behind => "behind",
            Self::Starting => "starting",
            Self::Unknown => "unknown",
        }
    }

    fn colour(self) -> Colour {
        match self {
            Self::Current => Colour::Green,
            Self::Behind => Colour::Red,
            Self::Starting | Self::Unknown => Colour::Yellow,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const METRICS: &str = "# TYPE remora_sidecar_revision_info gauge\n\
        remora_sidecar_revision_info{environment=\"shopping\",revision=\"000000000000\"} 1\n\
        remora_sidecar_revision_info{environment=\"shop\",revision=\"3f9c2a7b10de\"} 1\n\
        remora_sidecar_last_swap_timestamp_seconds{environment=\"shop\"} 1800000000.25\n";

    fn pod(state: &serde_json::Value) -> Seen {
        let pod = json!({
            "metadata": {"name": "web-1", "annotations": {"remora.dev/revision.shop": "3f9c2a7b10de 2"}},
            "spec": {"nodeName": "n1", "containers": [], "initContainers": [
                {"name": "remora", "ports": [{"name": "remora-admin", "containerPort": 5001}]},
            ]},
            "status": {"initContainerStatuses": [
                {"name": "remora", "image": "", "imageID": "", "ready": true, "restartCount": 4, "state": state},
            ]},
        });
        seen(&serde_json::from_value(pod).unwrap(), &"shop".parse().unwrap())
    }

    #[test]
    fn metrics_of_sidecar_give_revision_and_time() {
        let found = reply(METRICS, "shop");
        assert_eq!(found.revision.as_deref(), Some("3f9c2a7b10de"));
        assert_eq!(found.since, Timestamp::from_second(1_800_000_000).ok());
        assert_eq!(reply(METRICS, "front"), Reply::default());
        let long =
            format!("remora_sidecar_revision_info{{environment=\"shop\",revision=\"{}\"}} 1\n", "a".repeat(70_000));
        assert_eq!(reply(&long, "shop").revision, None, "no sidecar answers so");
    }

    #[test]
    fn each_cause_has_its_own_state_and_remedy() {
        let running = json!({"running": {}});
        let serves = |published| row(pod(&running), Ok(reply(METRICS, "shop")), Some(published));
        assert_eq!(pod(&running).port, 5001);
        let current = serves("3f9c2a7b10de");
        assert_eq!((current.state, current.why), (State::Current, None));
        let behind = serves("aaaaaaaaaaaa");
        assert!(behind.state == State::Behind && behind.why.unwrap().contains("not notified yet"));
        let notified = Seen { notified: Some("aaaaaaaaaaaa".to_owned()), ..pod(&running) };
        let stuck = row(notified, Ok(reply(METRICS, "shop")), Some("aaaaaaaaaaaa"));
        assert!(stuck.why.unwrap().contains("kubelet has not written the volume"));
        let crashing = row(pod(&json!({"waiting": {"reason": "CrashLoopBackOff"}})), Ok(Reply::default()), None);
        assert!(crashing.state == State::Starting && crashing.why.unwrap().contains("CrashLoopBackOff, 4 restarts"));
        let empty = row(pod(&running), Ok(Reply::default()), Some("aaaaaaaaaaaa"));
        assert!(empty.state == State::Starting && empty.why.unwrap().contains("no snapshot yet"));
    }
}
