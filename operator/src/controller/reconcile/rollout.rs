//! Rollout step: notifies the pods of a published revision, and observes which revision they serve.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use jiff::Timestamp;
use tokio_util::task::AbortOnDropHandle;

use super::{desired::Desired, environment::Environment};
use crate::{
    api::{Pods, Reason, names::EnvironmentName},
    controller::metrics::{Metrics, Outcome, Step},
    injection::Slots,
    publish::{Destination, Owner},
    rollout::{
        nudge::{Nudged, Nudger},
        observe::{ObservationTarget, Observer},
    },
};

/// State of the rollout between reconciliations.
#[derive(Debug, Default)]
pub(super) struct Rollout {
    notification: Option<Notification>,
}

/// Notification of the pods, which runs beside the reconciliations: many pods take their time. It ends when it is
/// dropped.
#[derive(Debug)]
struct Notification {
    revision: String,
    /// True once all pods are notified.
    is_done: Arc<AtomicBool>,
    task: AbortOnDropHandle<()>,
}

/// Notifies the pods of the published revision, unless that is under way or done. Kubelets deliver it in any case, so a
/// failure is only logged and counted, and a later reconciliation tries again.
pub(super) fn notify(
    environment: &Environment<'_>,
    nudger: &Nudger,
    metrics: &Metrics,
    owner: &Owner,
    revision: &str,
    published_at: Option<Timestamp>,
    rollout: &mut Rollout,
) {
    if !environment.spec.delivery.nudge {
        rollout.notification = None;
        return;
    }
    let is_current = |known: &Notification| {
        known.revision == revision && (known.is_done.load(Ordering::Relaxed) || !known.task.is_finished())
    };
    if rollout.notification.as_ref().is_some_and(is_current) {
        return;
    }
    let (nudger, metrics) = (nudger.clone(), metrics.clone());
    let (namespace, name, notified) = (environment.namespace.clone(), owner.environment.clone(), revision.to_owned());
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    let task = AbortOnDropHandle::new(tokio::spawn(async move {
        let is_complete = notify_all(&nudger, &metrics, &namespace, &name, &notified, published_at).await;
        done.store(is_complete, Ordering::Relaxed);
    }));
    rollout.notification = Some(Notification { revision: revision.to_owned(), is_done, task });
}

/// Notifies all pods of the revision. Returns true if none is left.
async fn notify_all(
    nudger: &Nudger,
    metrics: &Metrics,
    namespace: &str,
    environment: &EnvironmentName,
    revision: &str,
    published_at: Option<Timestamp>,
) -> bool {
    let step = metrics.begin(Step::Nudge);
    match nudger.nudge(namespace, environment, revision, published_at).await {
        Ok(Nudged { pods, notified, failed }) => {
            step.end(if failed > 0 { Outcome::Failed(Reason::PodsNotNotified) } else { Outcome::Done });
            if notified + failed > 0 {
                tracing::info!(
                    namespace,
                    %environment,
                    revision,
                    pods,
                    notified,
                    failed,
                    "notified pods of the revision"
                );
            }
            failed == 0
        }
        Err(error) => {
            step.end(error.reason());
            tracing::warn!(
                namespace,
                %environment,
                revision,
                %error,
                "cannot notify pods: they get the revision when their kubelets sync them"
            );
            false
        }
    }
}

/// Starts or updates the pod queries if the published revision is the desired one, and returns the latest counts.
pub(super) fn observe_pods(
    environment: &Environment<'_>,
    observer: &Observer,
    metrics: &Metrics,
    destination: &Destination,
    desired: &Desired,
    published: Option<&str>,
) -> Option<Pods> {
    if environment.spec.suspend {
        observer.stop(&environment.namespace, &environment.name);
        return None;
    }
    let snapshot = desired.snapshot.as_ref().map(|desired| &desired.snapshot);
    let snapshot = snapshot.filter(|snapshot| published == Some(snapshot.revision.as_str()))?;
    let pods = observer.observe(ObservationTarget {
        uid: environment.uid.clone(),
        namespace: environment.namespace.clone(),
        environment: destination.owner.environment.clone(),
        revision: snapshot.revision.clone(),
        bytes: snapshot.volume_bytes(),
        object_kind: destination.object_kind,
        has_other_kind: destination.may_have_other_kind,
        slots: Slots { overrides: snapshot.overrides_files(), core_parts: snapshot.core_parts() },
        nudge: environment.spec.delivery.nudge,
        published_at: desired.published_at(),
    })?;
    metrics.environments.pods(&environment.namespace, &environment.name, &pods);
    Some(pods)
}
