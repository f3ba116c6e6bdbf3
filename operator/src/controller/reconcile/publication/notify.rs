//! Notify step: notifies the pods of a published revision.

use std::time::Duration;

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
    source::back_off::{ceiling, jittered},
};

/// First wait before pods that could not be notified are notified again, and the longest one. Some pods can never be
/// patched, such as those whose annotations are full.
const BACKOFF: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// State of the notifications between reconciliations.
#[derive(Debug, Default)]
pub(crate) struct Rollout {
    notification: Option<Notification>,
}

/// Notification of the pods, which runs beside the reconciliations until all pods are notified: many pods take their
/// time. It ends when it is dropped.
#[derive(Debug)]
struct Notification {
    revision: Revision,
    _task: AbortOnDropHandle<()>,
}

/// Notifies the pods of the published revision, unless that is under way or done. Kubelets deliver it in any case, so a
/// failure is only logged and counted, and tried again with a growing back-off.
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
    if rollout.notification.as_ref().is_some_and(|known| known.revision == *revision) {
        return;
    }
    let (nudger, metrics) = (nudger.clone(), metrics.clone());
    let (namespace, name, notified) =
        (environment.name.namespace.clone(), owner.environment.clone(), revision.to_owned());
    let task = AbortOnDropHandle::new(tokio::spawn(async move {
        let mut failures = 0;
        while !notify_all(&nudger, &metrics, &namespace, &name, &notified, published_at).await {
            tokio::time::sleep(jittered(ceiling(BACKOFF, BACKOFF_MAX, failures), fastrand::f64())).await;
            failures = failures.saturating_add(1);
        }
    }));
    rollout.notification = Some(Notification { revision: revision.to_owned(), _task: task });
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
        Ok(Nudged { pods, notified, failed, failure }) => {
            step.end(if failed > 0 { Outcome::Failed(Reason::PodsNotNotified) } else { Outcome::Done });
            if let Some(failure) = failure {
                tracing::warn!(
                    namespace,
                    %environment,
                    %revision,
                    failed,
                    failure,
                    "cannot notify some pods: they get the revision when their kubelets sync them"
                );
            }
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
