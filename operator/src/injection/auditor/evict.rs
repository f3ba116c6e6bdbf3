//! Evicts pods without their sidecar through the Eviction API, which respects PodDisruptionBudgets.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use prometheus_client::encoding::EncodeLabelValue;
use serde_json::{Value, json};

use super::{
    candidates::{Candidate, TIMEOUT},
    rounds::{by_namespace, in_rounds},
};
use crate::api_call::{CallError, within};

/// Largest number of evictions per audit.
pub(super) const EVICTIONS_MAX: usize = 10;
/// Largest number of attempts per audit, also of those that PodDisruptionBudgets block.
const ATTEMPTS_MAX: usize = 100;

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

/// Selects the pods that may be evicted now: at most one per controller.
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
        .collect()
}

/// Turns of namespaces, and of the pods in each. Without turns, pods whose evictions are always blocked would keep other
/// pods from being tried.
#[derive(Debug, Default)]
pub(super) struct EvictionTurns {
    /// Namespace of the last attempt.
    namespace: String,
    /// Name of the pod that was tried last, by namespace.
    pods: HashMap<String, String>,
}

impl EvictionTurns {
    /// Returns the pods to try now, at most [`ATTEMPTS_MAX`]: in each round one of each namespace. Both the namespaces and
    /// the pods of a namespace are ordered by name, and begin after the one that was tried last.
    pub(super) fn order(&mut self, chosen: Vec<Candidate>) -> Vec<Candidate> {
        let by_namespace = by_namespace(chosen);
        self.pods.retain(|namespace, _| by_namespace.contains_key(namespace));
        let mut namespaces = Vec::new();
        for (namespace, mut pods) in by_namespace {
            pods.sort_by(|one, other| one.name.cmp(&other.name));
            let last = self.pods.get(&namespace).map_or("", String::as_str);
            let next = pods.partition_point(|pod| pod.name.as_str() <= last);
            pods.rotate_left(next);
            namespaces.push((namespace, pods.into_iter()));
        }
        let next = namespaces.partition_point(|(namespace, _)| *namespace <= self.namespace);
        namespaces.rotate_left(next);
        in_rounds(namespaces.into_iter().map(|(_, pods)| pods).collect(), ATTEMPTS_MAX)
    }

    /// Records an attempt.
    pub(super) fn record(&mut self, pod: &Candidate) {
        self.namespace.clone_from(&pod.namespace);
        self.pods.insert(pod.namespace.clone(), pod.name.clone());
    }
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
        let error = within(TIMEOUT, request).await.err();
        let outcome = match &error {
            None => EvictionOutcome::Evicted,
            Some(CallError::Refused(status)) if status.code == 429 => EvictionOutcome::Blocked,
            Some(CallError::Refused(status)) if status.is_not_found() || status.is_conflict() => EvictionOutcome::Gone,
            Some(_) => EvictionOutcome::Failed,
        };
        let error = error.map(|error| error.to_string());
        tracing::info!(namespace, pod = name, ?outcome, error, "tried to evict a pod without its sidecar");
        outcome
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    fn pod(name: &str, owner: Option<(&str, &str)>, created: i64) -> Candidate {
        Candidate {
            created: Timestamp::from_second(created).unwrap(),
            owner: owner.map(|(kind, uid)| OwnerReference {
                kind: kind.to_owned(),
                uid: uid.to_owned(),
                controller: Some(true),
                ..OwnerReference::default()
            }),
            ..Candidate::named("shop", name)
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

    /// Returns pods of one namespace, each of another controller.
    fn pods_of(namespace: &str, names: &[&str]) -> Vec<Candidate> {
        let in_namespace = |name: &&str| Candidate {
            namespace: namespace.to_owned(),
            ..pod(name, Some(("ReplicaSet", &format!("{namespace}-{name}"))), 1)
        };
        names.iter().map(in_namespace).collect()
    }

    #[test]
    fn attempts_are_bounded_and_namespaces_and_pods_have_turns() {
        let numbers: Vec<String> = (0..500).map(|number| format!("{number:03}")).collect();
        let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let missing =
            || [pods_of("crowded", &numbers), pods_of("shop", &["web", "api"]), pods_of("zoo", &["ape"])].concat();
        let names = |pods: &[Candidate]| pods.iter().take(6).map(|pod| pod.name.clone()).collect::<Vec<_>>();
        let mut turns = EvictionTurns::default();
        let first = turns.order(missing());
        assert_eq!(first.len(), ATTEMPTS_MAX);
        assert_eq!(names(&first), ["000", "api", "ape", "001", "web", "002"]);
        first.iter().take(5).for_each(|pod| turns.record(pod));
        assert_eq!(names(&turns.order(missing())), ["ape", "002", "api", "003", "web", "004"]);
        assert!(
            turns.order(Vec::new()).is_empty() && turns.pods.is_empty(),
            "namespaces without such pods are forgotten"
        );
    }
}
