//! Observe pods step: asks the pods which revision they serve.

use crate::{
    api::{Pods, Revision},
    controller::{
        metrics::Metrics,
        reconcile::{desired::Desired, environment::Environment},
    },
    injection::Slots,
    publish::Destination,
    rollout::observe::{ObservationTarget, Observer},
};

/// Starts or updates the pod queries if the published revision is the desired one, and returns the latest counts.
pub(crate) fn observe_pods(
    environment: &Environment<'_>,
    observer: &Observer,
    metrics: &Metrics,
    destination: &Destination,
    desired: &Desired,
    published: Option<&Revision>,
) -> Option<Pods> {
    if environment.spec.suspend {
        observer.stop(&environment.name);
        return None;
    }
    let snapshot = desired.snapshot.as_ref().map(|desired| &desired.snapshot);
    let snapshot = snapshot.filter(|snapshot| published == Some(&snapshot.revision))?;
    let pods = observer.observe(ObservationTarget {
        uid: environment.uid.clone(),
        namespace: environment.name.namespace.clone(),
        environment: destination.owner.environment.clone(),
        revision: snapshot.revision.clone(),
        bytes: snapshot.volume_bytes(),
        object_kind: destination.object_kind,
        has_other_kind: destination.may_have_other_kind,
        slots: Slots { overrides: snapshot.overrides_files(), core_parts: snapshot.core_parts() },
        nudge: environment.spec.delivery.nudge,
        published_at: desired.published_at(),
    })?;
    metrics.environments.set_pods(&environment.name, &pods);
    Some(pods)
}
