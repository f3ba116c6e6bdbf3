//! Makes kubelets look: patches one annotation on the injected pods. Needs the client.
//!
//! A kubelet rewrites a pod's volumes when it next syncs the pod, every 60 to 90 seconds, and at once when the pod changes. So
//! after a publication each pod is told the revision that it should have, which is also what its sidecar compares with
//! what it serves. The chart's admission policy allows the controller this annotation and nothing else of a pod.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde_json::json;

use crate::names::{EnvironmentName, FIELD_MANAGER};
use crate::pods;

/// Patches under way at one time: a kubelet syncs each pod at once, and nodes have many.
const AT_ONCE: usize = 8;
/// For one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Tells pods what they should have.
#[derive(Clone)]
pub struct Nudger {
    client: Client,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nudged {
    /// Pods that serve the environment.
    pub pods: usize,
    /// How many of them had to be told.
    pub told: usize,
    /// How many could not be told; kubelets bring the snapshot to them too, in their own time.
    pub failed: usize,
}

/// Why pods are not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not list them.
    #[error("cannot list the pods to nudge: {0}")]
    ListPods(#[source] Box<kube::Error>),
    /// Nor did it answer in time.
    #[error("cannot list the pods to nudge: the API server did not answer within 10s")]
    ListPodsTimeout,
}

impl Error {
    /// The label of metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ListPods(_) => "ListPods",
            Self::ListPodsTimeout => "ListPodsTimeout",
        }
    }
}

impl Nudger {
    /// A nudger that patches through this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Tells every pod of the namespace that serves `environment` that it should have `revision`, where it was not told.
    ///
    /// # Errors
    /// If the pods are not known. A single pod that cannot be patched is no error: it is counted.
    pub async fn nudge(&self, namespace: &str, environment: &EnvironmentName, revision: &str) -> Result<Nudged, Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let key = environment.revision_annotation();
        let found = list(&pods, environment).await?;
        let count = found.len();
        let is_outdated = |pod: &Injected| pod.annotations.get(&key).and_then(|text| told(text)) != Some(revision);
        let outdated: Vec<Injected> = found.into_iter().filter(is_outdated).collect();
        let names: Vec<String> = outdated.into_iter().map(|pod| pod.name).collect();
        let outdated = names.len();
        let told = self.tell_all(pods, names, &key, revision).await;
        Ok(Nudged { pods: count, told, failed: outdated - told })
    }

    /// Tells these pods once more that they should have `revision`, for the `time`th time: in other words than before, as a
    /// pod that does not change is not looked at. Returns how many were told.
    pub async fn again(
        &self,
        namespace: &str,
        environment: &EnvironmentName,
        revision: &str,
        time: usize,
        names: Vec<String>,
    ) -> usize {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        self.tell_all(pods, names, &environment.revision_annotation(), &format!("{revision} {time}")).await
    }

    async fn tell_all(&self, pods: Api<Pod>, names: Vec<String>, key: &str, value: &str) -> usize {
        let body = json!({"metadata": {"annotations": {key: value}}});
        stream::iter(names)
            .map(|name| tell(pods.clone(), name, body.clone()))
            .buffer_unordered(AT_ONCE)
            .filter(|told| std::future::ready(*told))
            .count()
            .await
    }
}

/// The revision that an annotation tells; behind it may be how often it was told.
fn told(annotation: &str) -> Option<&str> {
    annotation.split_whitespace().next()
}

struct Injected {
    name: String,
    annotations: BTreeMap<String, String>,
}

/// The pods that were injected with the environment and may still run.
async fn list(api: &Api<Pod>, environment: &EnvironmentName) -> Result<Vec<Injected>, Error> {
    let page = |parameters| async move { api.list_metadata(&parameters).await };
    pods::list(pods::injected(), page, |pod| serving(pod, environment)).await.map_err(|error| match error {
        pods::Error::Refused(error) => Error::ListPods(Box::new(error)),
        pods::Error::Late => Error::ListPodsTimeout,
    })
}

fn serving(pod: PartialObjectMeta<Pod>, environment: &EnvironmentName) -> Option<Injected> {
    pods::serves(&pod.metadata, environment).then(|| Injected {
        name: pod.metadata.name.unwrap_or_default(),
        annotations: pod.metadata.annotations.unwrap_or_default(),
    })
}

/// Whether the pod was told, or is gone.
async fn tell(pods: Api<Pod>, name: String, body: serde_json::Value) -> bool {
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(&body);
    let patched = tokio::time::timeout(TIMEOUT, pods.patch_metadata(&name, &parameters, &patch)).await;
    match patched {
        Ok(Ok(_)) => true,
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() => true,
        Ok(Err(error)) => {
            tracing::warn!(pod = name, %error, "the pod could not be told of its revision");
            false
        }
        Err(_) => {
            tracing::warn!(pod = name, "the pod could not be told of its revision in time");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::annotation;

    fn pod(inject: &str, deleted: bool) -> PartialObjectMeta<Pod> {
        let mut metadata = kube::core::ObjectMeta { name: Some("p".to_owned()), ..Default::default() };
        metadata.annotations = Some(BTreeMap::from([(annotation::INJECT.to_owned(), inject.to_owned())]));
        metadata.deletion_timestamp =
            deleted.then_some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        PartialObjectMeta { types: None, metadata, _phantom: std::marker::PhantomData }
    }

    #[test]
    fn what_was_told_again_was_told() {
        assert_eq!((told("0a1b"), told("0a1b 3"), told("")), (Some("0a1b"), Some("0a1b"), None));
    }

    #[test]
    fn only_pods_that_serve_the_environment_are_told() {
        let environment: EnvironmentName = "shop".parse().unwrap();
        for (inject, deleted, serves) in [
            ("shop", false, true),
            ("other, shop", false, true),
            ("shopping", false, false),
            ("", false, false),
            ("shop", true, false),
        ] {
            assert_eq!(serving(pod(inject, deleted), &environment).is_some(), serves, "{inject:?}");
        }
    }
}
