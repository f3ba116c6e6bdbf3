//! Reads pods that request flags, quotas and NetworkPolicies.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Pod, ResourceQuota},
        networking::v1::NetworkPolicy,
    },
    apimachinery::pkg::api::resource::Quantity as Amount,
};
use kube::ResourceExt;

use super::{note, requesting::requesting};
use crate::{
    api::{FeatureEnvironment, NamespacedName, names::label},
    ask::{
        check::{
            Check,
            facts::{Quota, Requesting, Unread, Workloads},
        },
        cluster::Cluster,
        failure::Failure,
    },
    injection::quantity::Quantity,
};

/// Reads pods and the objects around them, in one namespace or in all.
pub(super) async fn workloads(
    cluster: &Cluster,
    asked: &Check,
    environments: &[FeatureEnvironment],
    scope: Option<&str>,
    unread: &mut Vec<Unread>,
) -> Workloads {
    let names = environments.iter().map(NamespacedName::of).collect();
    let mut workloads = Workloads { environments: names, ..Workloads::default() };
    let keep = |pod: Pod| requesting(&pod, &asked.system_namespace);
    workloads.pods = note("pods", cluster.select(scope, "", keep).await, unread).unwrap_or_default();
    for namespace in excluded(cluster, &workloads.pods).await {
        workloads.pods.retain(|pod| pod.has_sidecar || pod.namespace != namespace);
    }
    let namespaces: BTreeSet<&String> = workloads.environments.iter().map(|name| &name.namespace).collect();
    let quotas: Option<Vec<ResourceQuota>> = note("quotas", cluster.list(scope, "").await, unread);
    let is_ours = |quota: &&ResourceQuota| quota.namespace().is_some_and(|namespace| namespaces.contains(&namespace));
    workloads.quotas = quotas.iter().flatten().filter(is_ours).flat_map(uses).collect();
    for namespace in silent(environments) {
        let found: Result<Vec<NetworkPolicy>, Failure> = cluster.list(Some(&namespace), "").await;
        let found = note("NetworkPolicies", found, unread).unwrap_or_default();
        let closing = found.iter().filter(|policy| restricts_ingress(policy));
        workloads.policies.extend(closing.map(NamespacedName::of));
    }
    workloads
}

/// Returns the namespaces of pods without a sidecar whose owners have excluded them from injection. A namespace that cannot
/// be read counts as not excluded.
async fn excluded(cluster: &Cluster, pods: &[Requesting]) -> Vec<String> {
    let names: BTreeSet<&String> = pods.iter().filter(|pod| !pod.has_sidecar).map(|pod| &pod.namespace).collect();
    let mut excluded = Vec::new();
    for name in names {
        if let Ok(Some(namespace)) = cluster.get_of_cluster::<Namespace>(name).await
            && namespace.labels().get(label::ADMISSION).is_some_and(|value| value == label::DISABLED)
        {
            excluded.push(name.clone());
        }
    }
    excluded
}

/// Returns the namespaces with pods that do not answer the controller.
fn silent(environments: &[FeatureEnvironment]) -> BTreeSet<String> {
    let is_silent = |found: &&FeatureEnvironment| {
        found.status.as_ref().and_then(|status| status.pods.as_ref()).is_some_and(|pods| pods.silent > 0)
    };
    environments.iter().filter(is_silent).filter_map(ResourceExt::namespace).collect()
}

fn restricts_ingress(policy: &NetworkPolicy) -> bool {
    let types = policy.spec.as_ref().and_then(|spec| spec.policy_types.as_ref());
    types.is_none_or(|types| types.iter().any(|kind| kind == "Ingress"))
}

/// Lists how a quota's room for ConfigMaps and Secrets is used.
fn uses(quota: &ResourceQuota) -> Vec<Quota> {
    let status = quota.status.clone().unwrap_or_default();
    let (used, hard) = (status.used.unwrap_or_default(), status.hard.unwrap_or_default());
    let count = |amounts: &BTreeMap<String, Amount>, resource: &str| {
        let quantity: Quantity = amounts.get(resource)?.0.parse().ok()?;
        i64::try_from(quantity.milli() / 1000).ok()
    };
    ["configmaps", "count/configmaps", "secrets", "count/secrets"]
        .into_iter()
        .filter_map(|resource| {
            Some(Quota {
                namespace: quota.namespace().unwrap_or_default(),
                name: quota.name_any(),
                resource: resource.to_owned(),
                used: count(&used, resource)?,
                hard: count(&hard, resource)?,
            })
        })
        .collect()
}
