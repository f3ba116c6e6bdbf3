//! Asks the API server if the controller's account has the rights that the chart gives it.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;

use super::facts::{Denied, Deployed, Rights};
use crate::{
    api::{FeatureEnvironment, NamespacedName},
    ask::{
        cluster::{AccessQuestion, Cluster},
        failure::Failure,
    },
};

/// Rights that the controller needs in each namespace with environments, whatever its options are: API group, resource
/// and verb.
pub const CONTROLLER_RIGHTS: [(&str, &str, &str); 17] = [
    ("remora.dev", "featureenvironments", "get"),
    ("remora.dev", "featureenvironments", "list"),
    ("remora.dev", "featureenvironments", "watch"),
    ("remora.dev", "featureenvironments/status", "get"),
    ("remora.dev", "featureenvironments/status", "patch"),
    ("", "configmaps", "get"),
    ("", "configmaps", "list"),
    ("", "configmaps", "watch"),
    ("", "configmaps", "create"),
    ("", "configmaps", "patch"),
    ("", "configmaps", "delete"),
    ("", "secrets", "get"),
    ("", "pods", "list"),
    ("", "pods", "watch"),
    ("", "pods", "patch"),
    ("events.k8s.io", "events", "create"),
    ("events.k8s.io", "events", "patch"),
];
/// Number of namespaces that are checked. The same rules apply to all of them, or one is missing in a list.
const NAMESPACES: usize = 20;
/// Number of questions at one time.
const CONCURRENT: usize = 8;

/// Asks for each right. `None` if no controller is installed, or no environment exists.
pub(super) async fn read(
    cluster: &Cluster,
    system_namespace: &str,
    deployments: &[Deployed],
    environments: &[FeatureEnvironment],
) -> Result<Option<Rights>, Failure> {
    let Some(controller) = deployments.iter().find(|deployment| deployment.component == "controller") else {
        return Ok(None);
    };
    let namespaces: BTreeSet<String> = environments.iter().filter_map(ResourceExt::namespace).collect();
    let namespaces: Vec<String> = namespaces.into_iter().take(NAMESPACES).collect();
    if namespaces.is_empty() {
        return Ok(None);
    }
    let account = &NamespacedName::new(system_namespace, controller.account.as_deref().unwrap_or("default"));
    let questions = namespaces.iter().flat_map(|namespace| CONTROLLER_RIGHTS.map(|needed| (namespace, needed)));
    let asking = questions.map(|(namespace, (group, resource, verb))| async move {
        let is_allowed = cluster.is_allowed(AccessQuestion { account, namespace, group, resource, verb }).await?;
        let denied = || Denied { namespace: namespace.clone(), resource: resource.to_owned(), verb };
        Ok::<_, Failure>((!is_allowed).then(denied))
    });
    let answers: Vec<Option<Denied>> = stream::iter(asking).buffered(CONCURRENT).try_collect().await?;
    let account = account.clone();
    Ok(Some(Rights { account, namespaces: namespaces.len(), denied: answers.into_iter().flatten().collect() }))
}
