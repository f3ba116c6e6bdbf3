//! The state of one pod, by its object and by the answer of its sidecar. Pure.

use jiff::Timestamp;
use serde::Serialize;

use super::read::Seen;
use crate::{
    api::names::REVISION_MAX,
    ask::{
        exposition::{Sample, samples},
        failure::Failure,
    },
};

/// A pod in the list.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) pod: String,
    pub(super) node: String,
    pub(super) state: State,
    /// Revision that the sidecar serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revision: Option<String>,
    /// Time at which the sidecar began to serve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Timestamp>,
    /// Flags that the pod overrides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) overrides: Vec<String>,
    /// Secret with the key of the signed headers by which requests to the pod override flags.
    #[serde(rename = "overrideKey", skip_serializing_if = "Option::is_none")]
    pub(super) override_key: Option<String>,
    /// Why the pod does not serve the published revision, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
}

/// State of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Serves the published revision.
    Current,
    /// Serves another revision.
    Behind,
    /// Serves nothing yet, or its sidecar does not run.
    Starting,
    /// Did not answer, or could not be asked.
    Unknown,
}

/// Answer of a sidecar about the environment.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Reply {
    pub(super) revision: Option<String>,
    pub(super) since: Option<Timestamp>,
}

/// Parses the metrics of a sidecar.
pub(super) fn reply(metrics: &str, environment: &str) -> Reply {
    let is_own = |sample: &Sample<'_>| sample.label("environment") == Some(environment);
    let revision = samples(metrics, "remora_sidecar_revision_info").find(is_own);
    // Another program may answer in the place of the sidecar.
    let revision = revision.and_then(|sample| sample.label("revision")).filter(|text| text.len() <= REVISION_MAX);
    let swap = samples(metrics, "remora_sidecar_last_swap_timestamp_seconds").find(is_own);
    Reply { revision: revision.map(str::to_owned), since: swap.and_then(|sample| sample.time()) }
}

/// Returns the row of a pod, while `published` is the published revision.
pub(super) fn row(pod: Seen, reply: Result<Reply, Failure>, published: Option<&str>) -> Row {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::read::seen, *};

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
