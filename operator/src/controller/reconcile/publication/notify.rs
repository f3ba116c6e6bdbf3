//! Notify step: notifies the pods of a published revision.

use std::time::Duration;

use jiff::Timestamp;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    api::{Reason, Revision, names::EnvironmentName},
    controller::metrics::{Metrics, Outcome, Step},
    rollout::nudge::{Nudged, Nudger},
    source::back_off::{ceiling, jittered},
};

/// First wait before pods that could not be notified are notified again, and the longest one. Some pods can never be
/// patched, such as those whose annotations are full.
const BACKOFF: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// Published revision of which the pods are notified.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) namespace: String,
    pub(crate) environment: EnvironmentName,
    pub(crate) revision: Revision,
    pub(crate) published_at: Option<Timestamp>,
}

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

impl Rollout {
    /// Notifies the pods, unless that is under way or done. Kubelets deliver the revision in any case, so a failure is only
    /// logged and counted, and tried again with a growing back-off.
    pub(crate) fn notify(&mut self, nudger: &Nudger, metrics: &Metrics, notice: Notice) {
        if self.notification.as_ref().is_some_and(|known| known.revision == notice.revision) {
            return;
        }
        let (nudger, metrics, revision) = (nudger.clone(), metrics.clone(), notice.revision.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            let mut failures = 0;
            while !notify_all(&nudger, &metrics, &notice).await {
                tokio::time::sleep(jittered(ceiling(BACKOFF, BACKOFF_MAX, failures), fastrand::f64())).await;
                failures = failures.saturating_add(1);
            }
        }));
        self.notification = Some(Notification { revision, _task: task });
    }

    /// Ends the notification.
    pub(crate) fn stop(&mut self) {
        self.notification = None;
    }
}

/// Notifies all pods of the revision. Returns true if none is left.
async fn notify_all(nudger: &Nudger, metrics: &Metrics, notice: &Notice) -> bool {
    let Notice { namespace, environment, revision, published_at } = notice;
    let step = metrics.begin(Step::Nudge);
    match nudger.nudge(namespace, environment, revision, *published_at).await {
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
