//! Single calls to the API server, each with an end in time, and what their failures mean.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::{ObjectMeta, PartialObjectMeta, Status},
};

use super::Error;
use crate::names::FIELD_MANAGER;

/// A megabyte on a slow line.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Writes the object; returns its new version.
pub(super) async fn apply(client: &Client, namespace: &str, object: &ConfigMap) -> Result<Option<String>, Error> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let applied = in_time(&name, api.patch(&name, &parameters, &Patch::Apply(object))).await?;
    Ok(applied.metadata.resource_version)
}

/// The object's metadata, as the API server has them now.
pub(super) async fn metadata(client: &Client, namespace: &str, name: &str) -> Result<Option<ObjectMeta>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found: Option<PartialObjectMeta<ConfigMap>> = in_time(name, api.get_metadata_opt(name)).await?;
    Ok(found.map(|found| found.metadata))
}

/// The object; none when it is gone.
pub(super) async fn read(client: &Client, namespace: &str, name: &str) -> Result<Option<ConfigMap>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    in_time(name, api.get_opt(name)).await
}

/// Deletes exactly what was looked at; that it is gone or changed already is no failure.
pub(super) async fn delete(client: &Client, namespace: &str, found: &ObjectMeta) -> Result<(), Error> {
    let name = found.name.clone().unwrap_or_default();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let exactly = Preconditions { uid: found.uid.clone(), resource_version: found.resource_version.clone() };
    let parameters = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
    match tokio::time::timeout(TIMEOUT, api.delete(&name, &parameters)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() || status.is_conflict() => Ok(()),
        Ok(Err(error)) => Err(meaning(&name, error)),
        Err(_) => Err(late(&name)),
    }
}

async fn in_time<T>(name: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(TIMEOUT, call).await {
        Ok(answered) => answered.map_err(|error| meaning(name, error)),
        Err(_) => Err(late(name)),
    }
}

fn late(name: &str) -> Error {
    Error::WriteFailed { name: name.to_owned(), problem: "the API server did not answer in time".to_owned() }
}

/// Whether something was refused because its namespace is on its way out.
pub fn is_terminating(status: &Status) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == "NamespaceTerminating")
}

fn meaning(name: &str, error: kube::Error) -> Error {
    let name = name.to_owned();
    let kube::Error::Api(status) = error else {
        return Error::WriteFailed { name, problem: format!("the API server did not answer: {error}") };
    };
    if is_terminating(&status) {
        Error::NamespaceTerminating
    } else if status.is_forbidden() && status.message.contains("exceeded quota") {
        Error::QuotaExceeded { name, problem: status.message.clone() }
    } else {
        Error::WriteFailed { name, problem: status.message.clone() }
    }
}
