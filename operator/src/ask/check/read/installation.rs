//! Reads the Deployments of the chart and the controllers' Leases.

use std::collections::BTreeSet;

use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease};
use kube::ResourceExt;

use super::CHART;
use crate::{
    api::names::LEASE,
    ask::{
        check::{
            Check,
            facts::{Deployed, Holder, LeaseState},
        },
        cluster::Cluster,
        failure::Failure,
    },
};

/// Name of the volume with the webhook's certificate, if another program writes it.
const CERTIFICATE_VOLUME: &str = "certificate";
/// Option of a controller that names its Lease.
const LEASE_OPTION: &str = "--lease=";
/// Option of a webhook that names the image of the sidecar.
const IMAGE_OPTION: &str = "--sidecar-image=";

/// Reads the chart's Deployments.
pub(super) async fn deployments(cluster: &Cluster, asked: &Check) -> Result<Vec<Deployed>, Failure> {
    let found: Vec<Deployment> = cluster.list(Some(&asked.system_namespace), CHART).await?;
    Ok(found.iter().map(deployed).collect())
}

fn deployed(deployment: &Deployment) -> Deployed {
    let label = |key: &str| deployment.labels().get(key).cloned().unwrap_or_default();
    let component = deployment.spec.selector.match_labels.as_ref();
    let component = component.and_then(|labels| labels.get("app.kubernetes.io/component").cloned());
    let pod = deployment.spec.template.spec.as_ref();
    let mut volumes = pod.iter().flat_map(|pod| pod.volumes.iter().flatten());
    let certificate = volumes.find(|volume| volume.name == CERTIFICATE_VOLUME);
    let containers = || pod.iter().flat_map(|pod| &pod.containers);
    let option = |name: &str| {
        let mut options = containers().flat_map(|container| container.args.iter().flatten());
        options.find_map(|option| option.strip_prefix(name)).map(str::to_owned)
    };
    Deployed {
        account: pod.and_then(|pod| pod.service_account_name.clone()),
        certificate_secret: certificate.and_then(|volume| volume.secret.as_ref()?.secret_name.clone()),
        lease: option(LEASE_OPTION),
        sidecar_image: option(IMAGE_OPTION),
        name: deployment.name_any(),
        component: component.unwrap_or_default(),
        version: label("app.kubernetes.io/version"),
        wanted: deployment.spec.replicas.unwrap_or(1),
        ready: deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default(),
    }
}

/// Returns the names of the controllers' Leases. Controllers of earlier versions have no option for it.
pub(super) fn lease_names(deployments: &[Deployed]) -> BTreeSet<String> {
    let controllers = deployments.iter().filter(|deployment| deployment.component == "controller");
    let names: BTreeSet<String> =
        controllers.map(|controller| controller.lease.clone().unwrap_or_else(|| LEASE.to_owned())).collect();
    if names.is_empty() { BTreeSet::from([LEASE.to_owned()]) } else { names }
}

/// Reads the Leases of these names.
pub(super) async fn leases(
    cluster: &Cluster,
    asked: &Check,
    names: BTreeSet<String>,
) -> Result<Vec<LeaseState>, Failure> {
    let mut leases = Vec::new();
    for name in names {
        let found: Option<Lease> = cluster.get(&asked.system_namespace, &name).await?;
        let holder = found.map(|lease| {
            let spec = lease.spec.unwrap_or_default();
            Holder { name: spec.holder_identity, renewed: spec.renew_time.map(|at| at.0) }
        });
        leases.push(LeaseState { name, holder });
    }
    Ok(leases)
}
