//! Pod notification: patches one annotation of the injected pods after a publication. Needs the client.
//!
//! Kubelet updates the volumes of a pod when it syncs the pod: every 60 to 90 seconds, and at once when the pod object
//! changes. The annotation holds the published revision, which the sidecar compares with the one it serves. The chart's
//! admission policy lets the controller change this annotation and nothing else of a pod.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use json_patch::{AddOperation, PatchOperation, TestOperation, jsonptr::PointerBuf};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::Value;

use super::{
    RunningPods,
    pace::Pace,
    pods::{self, Injected, RevisionAnnotation},
};
use crate::{
    api::{
        NamespacedName, Reason, Revision,
        names::{EnvironmentName, FIELD_MANAGER},
    },
    api_call::{CallError, within},
    counted::Counted,
};

/// Number of patches in flight for one environment. Kubelet syncs a patched pod at once, and a node has many pods.
const CONCURRENT_PATCHES: usize = 8;
/// Number of patches in flight for all environments.
const PATCHES: usize = 16;
/// Time between the beginnings of two patches: 200 a second. A patch that takes 5 ms then occupies one seat of the API
/// server's priority level; the chart gives the controller a level of its own.
const GAP: Duration = Duration::from_millis(5);
/// Age of a revision at which a new pod starts with it, because each kubelet has its objects. Clocks may differ by the
/// larger part of this time.
const DELIVERED_AFTER: Duration = Duration::from_secs(120);
/// Timeout of one request, and of the first list of the pods.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Notifies pods of the published revision.
#[derive(Clone)]
pub struct Nudger {
    client: Client,
    pods: RunningPods,
    patches: Patches,
    /// Environments whose pods are being notified.
    in_progress: Counted<NamespacedName>,
}

/// Permits for patches, which several nudgers may share.
#[derive(Clone, Debug)]
pub struct Patches(Arc<Pace>);

impl Default for Patches {
    fn default() -> Self {
        Self(Arc::new(Pace::new(PATCHES, GAP)))
    }
}

/// Outcome of a notification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nudged {
    /// Number of pods that serve the environment.
    pub pods: usize,
    /// Number of pods that were patched.
    pub notified: usize,
    /// Number of pods that could not be patched. Kubelet updates them within 60 to 90 seconds all the same.
    pub failed: usize,
    /// First of these failures: the pod and the problem.
    pub failure: Option<String>,
}

/// Error: the pods of an environment are not known.
#[derive(Debug, thiserror::Error)]
#[error("cannot list the pods to notify: the API server did not list them within {} s", TIMEOUT.as_secs())]
pub struct NotListed;

impl NotListed {
    /// Returns the reason in metrics.
    pub fn reason(&self) -> Reason {
        Reason::ListPodsTimeout
    }
}

/// True if the pod is not notified of the revision, and may not have started with it.
pub(super) fn is_unnotified(pod: &Injected, revision: &Revision, published_at: Option<Timestamp>) -> bool {
    match (pod.annotation.revision(), pod.created, published_at) {
        (Some(notified), ..) => notified != revision.as_str(),
        // The time is in an annotation that a user may edit: the sum may be beyond what a timestamp can hold.
        (None, Some(created), Some(published_at)) => {
            published_at.checked_add(DELIVERED_AFTER).map_or(true, |delivered| created <= delivered)
        }
        (None, ..) => true,
    }
}

impl Nudger {
    /// Creates a nudger that patches `pods` through this client, with the permits of `patches`.
    pub fn new(client: Client, pods: RunningPods, patches: Patches) -> Self {
        Self { client, pods, patches, in_progress: Counted::default() }
    }

    /// Sets the annotation to `revision` on every pod of the namespace that serves `environment` and has another value.
    /// Pods that started with the revision, which was published at `published_at`, need no annotation: after a restart of
    /// the controller, they may be all pods.
    ///
    /// # Errors
    /// The pods are not listed yet. A single pod that cannot be patched is counted, and is no error.
    pub async fn nudge(
        &self,
        namespace: &str,
        environment: &EnvironmentName,
        revision: &Revision,
        published_at: Option<Timestamp>,
    ) -> Result<Nudged, NotListed> {
        tokio::time::timeout(TIMEOUT, self.pods.ready()).await.map_err(|_| NotListed)?;
        let found = pods::staying(&self.pods, namespace, environment);
        let pods = found.len();
        let outdated = found.into_iter().filter(|pod| is_unnotified(pod, revision, published_at));
        let outdated: Vec<Arc<Injected>> = outdated.collect();
        let count = outdated.len();
        let _notifying = self.in_progress.begin(NamespacedName::new(namespace, environment.as_str()));
        let (notified, failure) = self.patch_all(namespace, environment, outdated, revision.as_str()).await;
        Ok(Nudged { pods, notified, failed: count - notified, failure })
    }

    /// True while [`Nudger::nudge`] patches pods of the environment. Pods that wait for their turn are not late.
    pub(super) fn is_notifying(&self, namespace: &str, environment: &EnvironmentName) -> bool {
        self.in_progress.contains(&NamespacedName::new(namespace, environment.as_str()))
    }

    /// Notifies these pods of `revision` once more. `attempt` is part of the annotation's value, because kubelet syncs only
    /// pods that change. Returns the number of patched pods.
    pub async fn nudge_again(
        &self,
        namespace: &str,
        environment: &EnvironmentName,
        revision: &Revision,
        attempt: usize,
        pods: &[Injected],
    ) -> usize {
        let pods = pods.iter().cloned().map(Arc::new).collect();
        self.patch_all(namespace, environment, pods, &format!("{revision} {attempt}")).await.0
    }

    /// Sets the annotation of the pods to `text`. Returns the number of patched pods, and the first failure.
    async fn patch_all(
        &self,
        namespace: &str,
        environment: &EnvironmentName,
        outdated: Vec<Arc<Injected>>,
        text: &str,
    ) -> (usize, Option<String>) {
        let pods: &Api<Pod> = &Api::namespaced(self.client.clone(), namespace);
        let key = &environment.revision_annotation();
        stream::iter(outdated)
            .map(async |pod| {
                let _permit = self.patches.0.acquire(namespace).await;
                patch(namespace, pods, &pod.name, notification(&pod, key, text)).await
            })
            .buffer_unordered(CONCURRENT_PATCHES)
            .fold((0, None), async |(patched, failure), outcome| match outcome {
                Ok(()) => (patched + 1, failure),
                Err(problem) => (patched, failure.or(Some(problem))),
            })
            .await
    }
}

/// Returns the patch that sets the annotation `key` of the pod to `text`. The patch has no effect on another pod of the same
/// name, nor if the annotation has changed since the pod was read: a patch that arrives late, from a controller that has lost
/// its lease, never replaces a newer revision.
fn notification(pod: &Injected, key: &str, text: &str) -> json_patch::Patch {
    let path = PointerBuf::from_tokens(["metadata", "annotations", key]);
    let before = match &pod.annotation {
        RevisionAnnotation::Absent => Some(Value::Null),
        RevisionAnnotation::Text(text) => Some(Value::from(text.as_str())),
        RevisionAnnotation::TooLong => None,
    };
    let same_pod =
        TestOperation { path: PointerBuf::from_tokens(["metadata", "uid"]), value: Value::from(pod.uid.as_str()) };
    let unchanged = before.map(|value| TestOperation { path: path.clone(), value });
    let tests = [Some(same_pod), unchanged].into_iter().flatten().map(PatchOperation::Test);
    let set = PatchOperation::Add(AddOperation { path, value: Value::from(text) });
    json_patch::Patch(tests.chain([set]).collect())
}

/// Patches a pod, unless it no longer exists. A failure names the pod and the problem.
async fn patch(namespace: &str, pods: &Api<Pod>, name: &str, notification: json_patch::Patch) -> Result<(), String> {
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::<()>::Json(notification);
    let problem = match within(TIMEOUT, pods.patch_metadata(name, &parameters, &patch)).await {
        Ok(_) => return Ok(()),
        Err(CallError::Refused(status)) if status.is_not_found() => return Ok(()),
        Err(CallError::Refused(status)) if status.code == 422 => {
            format!("the pod or its annotation has changed meanwhile, or may not be changed: {status}")
        }
        Err(error) => error.to_string(),
    };
    tracing::debug!(namespace, pod = name, problem, "cannot notify the pod of its revision");
    Err(format!("pod {name}: {problem}"))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, convert::Infallible};

    use http::{Method, Request, Response};
    use kube::{client::Body, runtime::watcher::Event};
    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::{
        api::names::annotation,
        rollout::{RunningPodsFeed, running_pods},
    };

    /// Pods of an environment: many more than anybody patches at one time.
    const PODS: usize = 5_000;

    /// Requests that the API server has received.
    #[derive(Default)]
    struct Counts {
        under_way: usize,
        most: usize,
        others: usize,
        notified: BTreeMap<String, usize>,
    }

    /// Takes its time for each patch, so that all that are sent at one time are seen.
    async fn answer(counts: &Mutex<Counts>, request: Request<Body>) -> Response<Body> {
        // The body is dropped before the first await: it is not `Sync`.
        let (parts, _) = request.into_parts();
        let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
        if parts.method != Method::PATCH {
            counts.lock().others += 1;
        }
        {
            let mut counts = counts.lock();
            counts.under_way += 1;
            counts.most = counts.most.max(counts.under_way);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut counts = counts.lock();
        counts.under_way -= 1;
        *counts.notified.entry(name.clone()).or_default() += 1;
        let answer =
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name}});
        Response::new(Body::from(answer.to_string().into_bytes()))
    }

    fn scene() -> (Nudger, RunningPodsFeed, Arc<Mutex<Counts>>) {
        let counts: Arc<Mutex<Counts>> = Arc::default();
        let counted = Arc::clone(&counts);
        let service = tower::service_fn(move |request| {
            let counted = Arc::clone(&counted);
            async move { Ok::<_, Infallible>(answer(&counted, request).await) }
        });
        let (pods, feed) = running_pods();
        (Nudger::new(Client::new(service, "shop"), pods, Patches::default()), feed, counts)
    }

    fn list(feed: &mut RunningPodsFeed, pods: impl IntoIterator<Item = serde_json::Value>) {
        feed.apply_watcher_event(&Event::Init);
        for pod in pods {
            feed.apply_watcher_event(&Event::InitApply(serde_json::from_value(pod).unwrap()));
        }
        feed.apply_watcher_event(&Event::InitDone);
    }

    fn pod(name: &str, environment: &str) -> serde_json::Value {
        let annotations = json!({annotation::INJECT: environment});
        json!({"metadata": {"namespace": "shop", "name": name, "annotations": annotations}})
    }

    #[tokio::test(start_paused = true)]
    async fn pods_are_notified_once_each_within_a_minute_without_a_list_and_eight_at_a_time() {
        let (nudger, mut feed, counts) = scene();
        list(&mut feed, (0..PODS).map(|number| pod(&format!("web-{number}"), "shop")));
        let began = Instant::now();
        let nudged = nudger.nudge("shop", &"shop".parse().unwrap(), &Revision::new("0a1b"), None).await.unwrap();
        assert_eq!(nudged, Nudged { pods: PODS, notified: PODS, failed: 0, failure: None });
        let counts = counts.lock();
        assert_eq!((counts.most, counts.others), (CONCURRENT_PATCHES, 0), "patches at one time, other requests");
        assert_eq!(counts.notified.len(), PODS);
        assert!(counts.notified.values().all(|times| *times == 1), "a pod was notified twice");
        // The API server of this test takes 100 ms for each patch.
        assert!(began.elapsed() <= Duration::from_secs(64), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn pods_of_one_namespace_do_not_delay_the_notification_of_another() {
        let (nudger, mut feed, _) = scene();
        let other = (0..10).map(|number| {
            let mut pod = pod(&format!("other-{number}"), "shop");
            pod["metadata"]["namespace"] = json!("other");
            pod
        });
        // Each environment has at most eight patches in flight.
        let many = (0..5_000).map(|number| pod(&format!("web-{number}"), &format!("e{}", number % 50)));
        list(&mut feed, many.chain(other));
        let names: Vec<EnvironmentName> = (0..50).map(|number| format!("e{number}").parse().unwrap()).collect();
        let revision = Revision::new("0a1b");
        let all = futures::future::join_all(names.iter().map(|name| nudger.nudge("shop", name, &revision, None)));
        let other = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let began = Instant::now();
            nudger.nudge("other", &"shop".parse().unwrap(), &Revision::new("0a1b"), None).await.unwrap();
            began.elapsed()
        };
        let (_, other) = tokio::join!(all, other);
        assert!(other <= Duration::from_secs(1), "{other:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn patches_of_all_environments_have_one_pace() {
        let (nudger, mut feed, counts) = scene();
        list(&mut feed, (0..400).map(|number| pod(&format!("web-{number}"), &format!("e{}", number % 100))));
        let began = Instant::now();
        let names: Vec<EnvironmentName> = (0..100).map(|number| format!("e{number}").parse().unwrap()).collect();
        let revision = Revision::new("0a1b");
        let all = names.iter().map(|environment| nudger.nudge("shop", environment, &revision, None));
        let notified: usize = futures::future::join_all(all).await.into_iter().map(|done| done.unwrap().notified).sum();
        assert_eq!((notified, counts.lock().most), (400, PATCHES));
        assert!(began.elapsed() >= GAP * 399, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn only_pods_of_the_environment_with_another_revision_are_notified() {
        let (nudger, mut feed, counts) = scene();
        let mut told = pod("told", "shop");
        told["metadata"]["annotations"]["remora.dev/revision.shop"] = json!("0a1b 3");
        list(&mut feed, [told, pod("late", "other, shop"), pod("other", "shopping")]);
        let nudged = nudger.nudge("shop", &"shop".parse().unwrap(), &Revision::new("0a1b"), None).await.unwrap();
        assert_eq!(nudged, Nudged { pods: 2, notified: 1, failed: 0, failure: None });
        assert_eq!(counts.lock().notified.keys().collect::<Vec<_>>(), ["late"]);
    }

    #[test]
    fn late_patch_changes_neither_a_newer_notification_nor_another_pod() {
        let key = "remora.dev/revision.shop";
        let before = |annotation| Injected { annotation, ..Injected::named("web") };
        let pod = |uid: &str, notification: Option<&str>| {
            let mut pod = json!({"metadata": {"uid": uid, "annotations": {annotation::INJECT: "shop"}}});
            if let Some(text) = notification {
                pod["metadata"]["annotations"][key] = json!(text);
            }
            pod
        };
        let old = RevisionAnnotation::Text("old 2".to_owned());
        let cases = [
            (old.clone(), pod("web", Some("old 2")), true),
            (old.clone(), pod("web", Some("newer")), false),
            (old, pod("created again", Some("old 2")), false),
            (RevisionAnnotation::Absent, pod("web", Some("newer")), false),
            (RevisionAnnotation::TooLong, pod("web", Some(&"x".repeat(1_000))), true),
        ];
        for (annotation, mut pod, patches) in cases {
            let notification = notification(&before(annotation.clone()), key, "late");
            assert_eq!(json_patch::patch(&mut pod, &notification).is_ok(), patches, "{annotation:?} {pod}");
            assert_eq!(pod["metadata"]["annotations"][key] == "late", patches, "{pod}");
        }
    }

    #[test]
    fn any_time_of_publication_is_compared() {
        let pod = |created| Injected { created: Some(created), ..Injected::named("web") };
        for published_at in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            let is_unnotified = |created| is_unnotified(&pod(created), &Revision::new("r1"), Some(published_at));
            assert!(is_unnotified(published_at));
            assert_eq!(is_unnotified(Timestamp::MAX), published_at == Timestamp::MAX, "{published_at}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_started_with_the_revision_are_not_notified_after_restart() {
        let (nudger, mut feed, counts) = scene();
        let created = |name: &str, time: &str, notified: Option<&str>| {
            let mut pod = pod(name, "shop");
            pod["metadata"]["creationTimestamp"] = json!(time);
            if let Some(notified) = notified {
                pod["metadata"]["annotations"]["remora.dev/revision.shop"] = json!(notified);
            }
            pod
        };
        list(
            &mut feed,
            [
                created("before", "2026-11-20T11:59:00Z", None),
                created("at-once", "2026-11-20T12:02:00Z", None),
                created("later", "2026-11-20T12:02:01Z", None),
                created("other", "2026-11-20T12:02:01Z", Some("ffff")),
                pod("unknown", "shop"),
            ],
        );
        let published_at = "2026-11-20T12:00:00Z".parse().ok();
        let nudged =
            nudger.nudge("shop", &"shop".parse().unwrap(), &Revision::new("0a1b"), published_at).await.unwrap();
        assert_eq!(nudged, Nudged { pods: 5, notified: 4, failed: 0, failure: None });
        assert_eq!(counts.lock().notified.keys().collect::<Vec<_>>(), ["at-once", "before", "other", "unknown"]);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_are_not_listed_in_time_are_an_error() {
        let (nudger, _feed, _) = scene();
        let error = nudger.nudge("shop", &"shop".parse().unwrap(), &Revision::new("0a1b"), None).await.unwrap_err();
        assert_eq!(error.reason(), Reason::ListPodsTimeout);
    }
}
