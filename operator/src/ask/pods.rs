//! `kubectl remora pods`: the pods of an environment and the revision that each serves.

mod read;
mod row;
mod show;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::Serialize;

pub(super) use self::read::{Seen, requesting};
use self::{
    read::seen,
    row::{Reply, Row, reply, row},
};
use super::{cluster::Cluster, failure::Failure};
use crate::{
    api::{FeatureEnvironment, Revision, names::EnvironmentName},
    injection::pods::requests,
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
