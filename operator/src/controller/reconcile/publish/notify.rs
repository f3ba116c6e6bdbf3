//! Notify step: notifies the pods of a published revision.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use jiff::Timestamp;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    api::{Reason, Revision, names::EnvironmentName},
    controller::{
        metrics::{Metrics, Outcome, Step},
        reconcile::environment::Environment,
    },
    publish::Owner,
    rollout::nudge::{Nudged, Nudger},
};

/// State of the notifications between reconciliations.
#[derive(Debug, Default)]
pub(crate) struct Rollout {
    notification: Option<Notification>,
}

/// Notification of the pods, which runs beside the reconciliations: many pods take their time. It ends when it is
/// dropped.
#[derive(Debug)]
struct Notification {
    revision: Revision,
    /// True once all pods are notified.
    is_done: Arc<AtomicBool>,
    task: AbortOnDropHandle<()>,
}

/// Notifies the pods of the published revision, unless that is under way or done. Kubelets deliver it in any case, so a
/// failure is only logged and counted, and a later reconciliation tries again.
pub(crate) fn notify(
    environment: &Environment<'_>,
    nudger: &Nudger,
    metrics: &Metrics,
    owner: &Owner,
    revision: &Revision,
    published_at: Option<Timestamp>,
    rollout: &mut Rollout,
) {
    if !environment.spec.delivery.nudge {
        rollout.notification = None;
        return;
    }
    let is_current = |known: &Notification| {
        known.revision == *revision && (known.is_done.load(Ordering::Relaxed) || !known.task.is_finished())
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
    revision: &Revision,
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
                    %revision,
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
                %revision,
                %error,
                "cannot notify pods: they get the revision when their kubelets sync them"
            );
            false
        }
    }
}
