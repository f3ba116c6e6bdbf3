//! Reads what `check` needs. A part that the caller may not read becomes a fact, and the other parts are read all the
//! same.

mod admission;
mod dry_run;
mod installation;
mod requesting;
mod workloads;

use jiff::Timestamp;
use kube::ResourceExt;

use self::{
    admission::admission,
    dry_run::dry_run,
    installation::{deployments, lease_names, leases},
    workloads::workloads,
};
use super::{
    Check,
    facts::{Facts, Installation, Unread},
    rights, serving,
};
use crate::{
    api::FeatureEnvironment,
    ask::{cluster::Cluster, failure::Failure},
};

/// Labels of the chart's objects.
const CHART: &str = "app.kubernetes.io/name=remora";

/// Reads everything.
///
/// # Errors
/// If the cluster cannot be reached, or does not know FeatureEnvironments, or the caller may not list them.
pub(super) async fn facts(cluster: &Cluster, asked: &Check, now: Timestamp) -> Result<Facts, Failure> {
    let scope = asked.only_namespace.then(|| cluster.namespace());
    let environments: Vec<FeatureEnvironment> = cluster.list(scope, "").await?;
    let mut unread = Vec::new();
    let mut installation = Installation { namespace: asked.system_namespace.clone(), ..Installation::default() };
    installation.api_server = note("API server", cluster.version().await, &mut unread);
    installation.deployments = note("Deployments", deployments(cluster, asked).await, &mut unread);
    let names = lease_names(installation.deployments.as_deref().unwrap_or_default());
    installation.leases = note("Lease", leases(cluster, asked, names).await, &mut unread);
    installation.admission = note("admission", admission(cluster, &asked.system_namespace).await, &mut unread);
    if let (Some(deployments), Some(registrations)) = (&installation.deployments, &installation.admission) {
        let read = serving::read(cluster, &asked.system_namespace, deployments, registrations, now).await;
        installation.serving = note("certificates of the webhook", read, &mut unread).flatten();
    }
    if let Some(deployments) = &installation.deployments {
        let read = rights::read(cluster, &asked.system_namespace, deployments, &environments).await;
        installation.rights = note("rights of the controller", read, &mut unread).flatten();
    }
    if let Some(namespace) = example(&environments, asked) {
        let dry_run = dry_run(cluster, &namespace).await;
        installation.dry_run = note("admission of a pod (dry run)", dry_run, &mut unread).flatten();
    }
    let workloads = workloads(cluster, asked, &environments, scope, &mut unread).await;
    Ok(Facts { installation, environments, workloads, unread })
}

/// Takes what was read, or notes why it was not.
fn note<T>(part: &'static str, read: Result<T, Failure>, unread: &mut Vec<Unread>) -> Option<T> {
    read.map_err(|failure| unread.push(Unread { part, failure })).ok()
}

/// Returns the namespace for the dry run: the first one with an environment.
fn example(environments: &[FeatureEnvironment], asked: &Check) -> Option<String> {
    if asked.no_dry_run { None } else { environments.iter().find_map(ResourceExt::namespace) }
}
