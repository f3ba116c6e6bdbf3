//! Evicts pods without their sidecar through the Eviction API, which respects PodDisruptionBudgets.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use prometheus_client::encoding::EncodeLabelValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::candidates::{Candidate, TIMEOUT};

/// Largest number of evictions per audit.
const EVICTIONS_MAX: usize = 10;

/// Client of the Eviction API.
pub(super) struct Evictor {
    client: Client,
}

/// Outcome of one eviction, and the value of its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum EvictionOutcome {
    /// The API server accepted the eviction.
    Evicted,
    /// A PodDisruptionBudget does not allow the eviction now.
    Blocked,
    /// The pod no longer exists, or another pod has its name.
    Gone,
    /// The API server refused the eviction, or did not answer.
    Failed,
}

/// Selects the pods to evict now: at most [`EVICTIONS_MAX`], and at most one per controller.
///
/// A pod is eligible only if it was created before `works_since`, the start of the current series of successful
/// self-checks. The replacement of a younger pod would lack its sidecar too: something that an eviction does not change
/// kept it out while injection worked. Without this rule the auditor would evict such pods for ever. Pods of a Job are
/// not eligible: the Job may not replace them, and their work would be lost.
pub(super) fn choose(missing: Vec<Candidate>, works_since: Timestamp) -> Vec<Candidate> {
    let mut owners = HashSet::new();
    missing
        .into_iter()
        .filter(|pod| pod.created < works_since)
        .filter(|pod| pod.owner.as_ref().is_some_and(|owner| owner.kind != "Job" && owners.insert(owner.uid.clone())))
        .take(EVICTIONS_MAX)
        .collect()
}

impl Evictor {
    pub(super) fn new(client: Client) -> Evictor {
        Evictor { client }
    }

    pub(super) async fn evict(&self, pod: &Candidate) -> EvictionOutcome {
        let Candidate { namespace, name, uid, .. } = pod;
        // The UID limits the eviction to this pod: the next pod of a StatefulSet has the same name. The object is
        // written by hand because the client's own eviction call sends these options under a field name that the API
        // server does not read.
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let parameters = PostParams::default();
        let request = api.create_subresource::<Value, Value>("eviction", name, &parameters, &eviction);
        let (outcome, error) = match timeout(TIMEOUT, request).await {
            Ok(Ok(_)) => (EvictionOutcome::Evicted, None),
            Ok(Err(kube::Error::Api(status))) if status.code == 429 => (EvictionOutcome::Blocked, Some(status.message)),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() || status.is_conflict() => {
                (EvictionOutcome::Gone, Some(status.message))
            }
            Ok(Err(error)) => (EvictionOutcome::Failed, Some(error.to_string())),
            Err(_) => {
                (EvictionOutcome::Failed, Some(format!("the API server did not answer within {} s", TIMEOUT.as_secs())))
            }
        };
        tracing::info!(namespace, name, ?outcome, error, "tried to evict a pod without its sidecar");
        outcome
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
            environments: String::new(),
            annotations: 0,
        }
    }

    fn chosen(missing: Vec<Candidate>) -> Vec<String> {
        choose(missing, Timestamp::from_second(1000).unwrap()).into_iter().map(|pod| pod.name).collect()
    }

    #[test]
    fn choose_takes_oldest_pod_per_controller_and_skips_jobs_and_new_pods() {
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
    fn choose_takes_at_most_ten_pods() {
        let owners: Vec<String> = (0..50).map(|number| format!("r{number}")).collect();
        let missing = owners.iter().map(|owner| pod(owner, Some(("ReplicaSet", owner)), 1)).collect();
        assert_eq!(chosen(missing).len(), EVICTIONS_MAX);
    }
}
