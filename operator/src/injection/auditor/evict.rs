//! Makes place for pods that have their sidecar, gently: through the Eviction API, which respects PodDisruptionBudgets.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::candidates::{Candidate, TIMEOUT};

/// Evictions between two looks at all pods.
const AT_MOST: usize = 10;

/// Evicts pods.
pub(super) struct Evictor {
    client: Client,
}

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evicted {
    /// It goes.
    Done,
    /// A PodDisruptionBudget keeps it for now.
    Blocked,
    /// It went by itself.
    Gone,
    /// The API server would not, or did not answer.
    Failed,
}

impl Evicted {
    pub(super) fn outcome(self) -> &'static str {
        match self {
            Evicted::Done => "Evicted",
            Evicted::Blocked => "Blocked",
            Evicted::Gone => "Gone",
            Evicted::Failed => "Failed",
        }
    }
}

/// Which to evict now: a few, and one of each controller's.
///
/// Only those that are older than the present row of successful self-checks. A pod that came without its sidecar while
/// injection worked would come back without it: something keeps it from us that an eviction does not mend, and without this
/// rule it would be evicted for ever. And no pod of a Job: it may not be made again, and its work would be lost.
pub(super) fn choose(missing: Vec<Candidate>, works_since: Timestamp) -> Vec<Candidate> {
    let mut owners = HashSet::new();
    missing
        .into_iter()
        .filter(|pod| pod.created < works_since)
        .filter(|pod| pod.owner.as_ref().is_some_and(|owner| owner.kind != "Job" && owners.insert(owner.uid.clone())))
        .take(AT_MOST)
        .collect()
}

impl Evictor {
    pub(super) fn new(client: Client) -> Evictor {
        Evictor { client }
    }

    pub(super) async fn evict(&self, pod: &Candidate) -> Evicted {
        let Candidate { namespace, name, uid, .. } = pod;
        // Of this pod only: a StatefulSet's next one has the same name. By hand, because the client's own way to evict sends
        // these options under a name that the API server does not read.
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let parameters = PostParams::default();
        let asked = api.create_subresource::<Value, Value>("eviction", name, &parameters, &eviction);
        let (evicted, error) = match timeout(TIMEOUT, asked).await {
            Ok(Ok(_)) => (Evicted::Done, None),
            Ok(Err(kube::Error::Api(status))) if status.code == 429 => (Evicted::Blocked, Some(status.message)),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() || status.is_conflict() => {
                (Evicted::Gone, Some(status.message))
            }
            Ok(Err(error)) => (Evicted::Failed, Some(error.to_string())),
            Err(_) => (Evicted::Failed, Some("no answer in time".to_owned())),
        };
        tracing::info!(namespace, name, outcome = evicted.outcome(), error, "evicting a pod without its sidecar");
        evicted
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    fn pod(name: &str, owner: Option<(&str, &str)>, created: i64) -> Candidate {
        Candidate {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            created: Timestamp::from_second(created).unwrap(),
            owner: owner.map(|(kind, uid)| OwnerReference {
                kind: kind.to_owned(),
                uid: uid.to_owned(),
                controller: Some(true),
                ..OwnerReference::default()
            }),
            asks: [].into(),
        }
    }

    fn chosen(missing: Vec<Candidate>) -> Vec<String> {
        choose(missing, Timestamp::from_second(1000).unwrap()).into_iter().map(|pod| pod.name).collect()
    }

    #[test]
    fn only_what_a_controller_makes_again_and_what_would_come_back_better() {
        let missing = vec![
            pod("bare", None, 1),
            pod("of-a-job", Some(("Job", "j")), 1),
            pod("old", Some(("ReplicaSet", "r")), 1),
            pod("of-the-same", Some(("ReplicaSet", "r")), 1),
            pod("new", Some(("StatefulSet", "s")), 1000),
            pod("other", Some(("StatefulSet", "t")), 999),
        ];
        assert_eq!(chosen(missing), ["old", "other"]);
    }

    #[test]
    fn a_few_at_a_time() {
        let owners: Vec<String> = (0..50).map(|number| format!("r{number}")).collect();
        let missing = owners.iter().map(|owner| pod(owner, Some(("ReplicaSet", owner)), 1)).collect();
        assert_eq!(chosen(missing).len(), AT_MOST);
    }
}
