//! Pod notification: patches one annotation of the injected pods after a publication. Needs the client.
//!
//! Kubelet updates the volumes of a pod when it syncs the pod: every 60 to 90 seconds, and at once when the pod object
//! changes. The annotation holds the published revision, which the sidecar compares with the one it serves. The chart's
//! admission policy lets the controller change this annotation and nothing else of a pod.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde_json::json;

use crate::api::{
    Reason,
    names::{EnvironmentName, FIELD_MANAGER},
};
use crate::injection::pods;

/// Number of patches in flight. Kubelet syncs a patched pod at once, and a node has many pods.
const CONCURRENT_PATCHES: usize = 8;
/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Notifies pods of the published revision.
#[derive(Clone)]
pub struct Nudger {
    client: Client,
}

/// Outcome of a notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nudged {
    /// Number of pods that serve the environment.
    pub pods: usize,
    /// Number of pods that were patched.
    pub notified: usize,
    /// Number of pods that could not be patched. Kubelet updates them within 60 to 90 seconds all the same.
    pub failed: usize,
}

/// Error: the pods of an environment could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused.
    #[error("cannot list the pods to notify: {0}")]
    ListPods(#[source] Box<kube::Error>),
    /// The API server did not answer in time.
    #[error("cannot list the pods to notify: the API server did not answer within 10 s")]
    ListPodsTimeout,
}

impl Error {
    /// Returns the reason in metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::ListPods(_) => Reason::ListPods,
            Self::ListPodsTimeout => Reason::ListPodsTimeout,
        }
    }
}

impl Nudger {
    /// Creates a nudger that patches pods through this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Sets the annotation to `revision` on every pod of the namespace that serves `environment` and has another value.
    ///
    /// # Errors
    /// The pods could not be listed. A single pod that cannot be patched is counted, and is no error.
    pub async fn nudge(&self, namespace: &str, environment: &EnvironmentName, revision: &str) -> Result<Nudged, Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let key = environment.revision_annotation();
        let found = list(&pods, environment).await?;
        let count = found.len();
        let is_outdated =
            |pod: &Injected| pod.annotations.get(&key).and_then(|text| revision_in(text)) != Some(revision);
        let outdated: Vec<Injected> = found.into_iter().filter(is_outdated).collect();
        let names: Vec<String> = outdated.into_iter().map(|pod| pod.name).collect();
        let outdated = names.len();
        let notified = self.patch_all(pods, names, &key, revision).await;
        Ok(Nudged { pods: count, notified, failed: outdated - notified })
    }

    /// Notifies these pods of `revision` once more, for the `time`th time. The number is part of the annotation's value, because
    /// kubelet syncs only pods that change. Returns the number of patched pods.
    pub async fn nudge_again(
        &self,
        namespace: &str,
        environment: &EnvironmentName,
        revision: &str,
        time: usize,
        names: Vec<String>,
    ) -> usize {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        self.patch_all(pods, names, &environment.revision_annotation(), &format!("{revision} {time}")).await
    }

    async fn patch_all(&self, pods: Api<Pod>, names: Vec<String>, key: &str, value: &str) -> usize {
        let body = json!({"metadata": {"annotations": {key: value}}});
        stream::iter(names)
            .map(|name| patch(pods.clone(), name, body.clone()))
            .buffer_unordered(CONCURRENT_PATCHES)
            .filter(|notified| std::future::ready(*notified))
            .count()
            .await
    }
}

/// The revision in an annotation's value, which the number of a repeated notification may follow.
fn revision_in(annotation: &str) -> Option<&str> {
    annotation.split_whitespace().next()
}

struct Injected {
    name: String,
    annotations: BTreeMap<String, String>,
}

/// Lists the injected pods that serve the environment and may still run.
async fn list(api: &Api<Pod>, environment: &EnvironmentName) -> Result<Vec<Injected>, Error> {
    let page = |parameters| async move { api.list_metadata(&parameters).await };
    pods::list(pods::injected(), page, |pod| serving(pod, environment)).await.map_err(|error| match error {
        pods::Error::Refused(error) => Error::ListPods(Box::new(error)),
        pods::Error::Timeout => Error::ListPodsTimeout,
    })
}

fn serving(pod: PartialObjectMeta<Pod>, environment: &EnvironmentName) -> Option<Injected> {
    pods::requests(&pod.metadata, environment).then(|| Injected {
        name: pod.metadata.name.unwrap_or_default(),
        annotations: pod.metadata.annotations.unwrap_or_default(),
    })
}

/// Patches a pod. Returns true if the pod was patched, or no longer exists.
async fn patch(pods: Api<Pod>, name: String, body: serde_json::Value) -> bool {
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let merge = Patch::Merge(&body);
    let patched = tokio::time::timeout(TIMEOUT, pods.patch_metadata(&name, &parameters, &merge)).await;
    match patched {
        Ok(Ok(_)) => true,
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() => true,
        Ok(Err(error)) => {
            tracing::warn!(pod = name, %error, "cannot notify the pod of its revision");
            false
        }
        Err(_) => {
            tracing::warn!(pod = name, "cannot notify the pod of its revision: no answer in time");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Method, Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::api::names::annotation;

    fn pod(inject: &str, deleted: bool) -> PartialObjectMeta<Pod> {
        let mut metadata = kube::core::ObjectMeta { name: Some("p".to_owned()), ..Default::default() };
        metadata.annotations = Some(BTreeMap::from([(annotation::INJECT.to_owned(), inject.to_owned())]));
        metadata.deletion_timestamp =
            deleted.then_some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        PartialObjectMeta { types: None, metadata, _phantom: std::marker::PhantomData }
    }

    #[test]
    fn repeated_notification_names_the_same_revision() {
        assert_eq!((revision_in("0a1b"), revision_in("0a1b 3"), revision_in("")), (Some("0a1b"), Some("0a1b"), None));
    }

    /// Pods in a namespace: many more than anybody patches at one time.
    const PODS: usize = 5_000;

    /// What the API server counts.
    #[derive(Default)]
    struct Counts {
        under_way: usize,
        most: usize,
        lists: usize,
        notified: BTreeMap<String, usize>,
    }

    /// Lists the pods in pages, and takes its time for each patch, so that all that are sent at one time are seen.
    async fn answer(counts: &Mutex<Counts>, request: Request<Body>) -> Response<Body> {
        // The body is dropped before the first await: it is not `Sync`.
        let (parts, _) = request.into_parts();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let path = parts.uri.path().to_owned();
        let answer = if parts.method == Method::PATCH {
            {
                let mut counts = counts.lock();
                counts.under_way += 1;
                counts.most = counts.most.max(counts.under_way);
            }
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let name = path.rsplit('/').next().unwrap().to_owned();
            let mut counts = counts.lock();
            counts.under_way -= 1;
            *counts.notified.entry(name.clone()).or_default() += 1;
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name}})
        } else {
            counts.lock().lists += 1;
            let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
            let from: usize = value("continue").map_or(0, |token| token.parse().unwrap());
            let to = PODS.min(from + value("limit").unwrap().parse::<usize>().unwrap());
            let items: Vec<_> = (from..to)
                .map(|n| json!({"metadata": {"name": format!("web-{n}"), "annotations": {annotation::INJECT: "shop"}}}))
                .collect();
            let next = if to < PODS { to.to_string() } else { String::new() };
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {"continue": next}, "items": items})
        };
        Response::new(Body::from(answer.to_string().into_bytes()))
    }

    #[tokio::test]
    async fn five_thousand_pods_are_notified_once_each_and_eight_at_a_time() {
        let counts = Arc::new(Mutex::new(Counts::default()));
        let counted = Arc::clone(&counts);
        let service = tower::service_fn(move |request| {
            let counted = Arc::clone(&counted);
            async move { Ok::<_, std::convert::Infallible>(answer(&counted, request).await) }
        });
        let nudger = Nudger::new(Client::new(service, "shop"));
        let environment: EnvironmentName = "shop".parse().unwrap();
        let nudged = nudger.nudge("shop", &environment, "0a1b").await.unwrap();
        assert_eq!(nudged, Nudged { pods: PODS, notified: PODS, failed: 0 });
        let counts = counts.lock();
        assert_eq!(counts.most, CONCURRENT_PATCHES, "patches at one time");
        assert_eq!((counts.notified.len(), counts.lists), (PODS, PODS / 500));
        assert!(counts.notified.values().all(|times| *times == 1), "a pod was notified twice");
    }

    #[test]
    fn only_pods_that_serve_the_environment_are_notified() {
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
