//! Rollout step: notifies the pods of a published revision, and observes which revision they serve.

use std::sync::Arc;

use super::environment::Environment;
use crate::{
    api::{Pods, Reason},
    controller::metrics::{Metrics, Outcome, Step},
    injection::Slots,
    publish::{Destination, Owner, Snapshot},
    rollout::{
        nudge::{Nudged, Nudger},
        observe::{Observer, Target},
    },
};

/// State of the rollout between reconciliations.
#[derive(Debug, Default)]
pub(super) struct Rollout {
    /// Revision that all pods were notified of.
    notified: Option<String>,
}

/// Notifies the pods of the published revision, if they were not notified yet. Kubelets deliver it in any case, so a
/// failure is only logged and counted, and the next reconciliation tries again.
pub(super) async fn notify(
    environment: &Environment<'_>,
    nudger: &Nudger,
    metrics: &Metrics,
    owner: &Owner,
    revision: &str,
    rollout: &mut Rollout,
) {
    if !environment.spec.delivery.nudge || rollout.notified.as_deref() == Some(revision) {
        return;
    }
    let (namespace, environment) = (&environment.namespace, &environment.name);
    let step = metrics.begin(Step::Nudge);
    match nudger.nudge(namespace, &owner.environment, revision).await {
        Ok(Nudged { pods, notified, failed }) => {
            step.end(if failed > 0 { Outcome::Failed(Reason::PodsNotNotified) } else { Outcome::Done });
            if notified + failed > 0 {
                tracing::info!(
                    namespace,
                    environment,
                    revision,
                    pods,
                    notified,
                    failed,
                    "notified pods of the revision"
                );
            }
            rollout.notified = (failed == 0).then(|| revision.to_owned());
        }
        Err(error) => {
            step.end(error.reason());
            tracing::warn!(
                namespace,
                environment,
                revision,
                %error,
                "cannot notify pods: they get the revision when their kubelets sync them"
            );
        }
    }
}

/// Starts or updates the pod queries for the published snapshot, and returns the latest counts.
pub(super) fn observe_pods(
    environment: &Environment<'_>,
    observer: &Observer,
    metrics: &Metrics,
    destination: &Destination,
    snapshot: &Arc<Snapshot>,
) -> Option<Pods> {
    let pods = observer.observe(Target {
        uid: environment.uid.clone(),
        namespace: environment.namespace.clone(),
        environment: destination.owner.environment.clone(),
        revision: snapshot.revision.clone(),
        bytes: snapshot.volume_bytes(),
        object_kind: destination.object_kind,
        slots: Slots { overrides: snapshot.overrides_files(), core_parts: snapshot.core_parts() },
        nudge: environment.spec.delivery.nudge,
    })?;
    metrics.environments.pods(&environment.namespace, &environment.name, &pods);
    Some(pods)
}
