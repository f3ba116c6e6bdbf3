//! Withdraw step: deletes obsolete objects, those of the other kind or format, once no pod mounts them.

use tokio::time::Instant;

use crate::{
    api::ObjectKind,
    controller::{
        reconcile::{desired::Desired, environment::Environment, observe::Observed, report::Reported},
        status::Publication,
    },
    publish::{Deletion, Destination, Publisher},
    rollout::{MountingObsolete, PodLister},
};

/// Deletes the obsolete objects if no pod mounts them. Returns the other kind while its objects stay and are kept up to
/// date. A failure is only logged: a later reconciliation tries again.
pub(crate) async fn withdraw(
    environment: &Environment<'_>,
    publisher: &Publisher,
    lister: &PodLister,
    destination: &Destination,
    desired: &mut Desired,
) -> Option<ObjectKind> {
    let Destination { owner, object_kind, may_have_other_kind, .. } = destination;
    let other_kind = may_have_other_kind.then(|| object_kind.other());
    if !publisher.has_obsolete(destination) {
        desired.obsolete_since = None;
        return None;
    }
    // Pods that were admitted a moment ago may not be listed yet.
    let since = *desired.obsolete_since.get_or_insert_with(Instant::now);
    if since.elapsed() < publisher.grace() {
        return other_kind;
    }
    desired.obsolete_since = Some(Instant::now());
    let (namespace, environment) = (environment.namespace(), &owner.environment);
    match lister.mounting_obsolete(namespace, environment, *object_kind).await {
        Ok(MountingObsolete { all: 0, .. }) => {}
        Ok(MountingObsolete { all: pods, other_kind: mounting }) => {
            tracing::info!(
                namespace,
                %environment,
                pods,
                "pods still mount objects of the other kind or format: keeping these objects"
            );
            // Pods may mount objects of a first publication that was cut off. The status does not name their kind yet.
            let is_mounted = mounting > 0 && publisher.is_other_kind_cached(destination);
            return other_kind.or(is_mounted.then(|| object_kind.other()));
        }
        Err(error) => {
            tracing::warn!(
                namespace,
                %environment,
                %error,
                "cannot list the pods that mount objects of the other kind or format: keeping these objects"
            );
            return other_kind;
        }
    }
    match publisher.delete_obsolete(destination, &mut desired.cache).await {
        Ok(Deletion::Complete) => None,
        Ok(Deletion::Partial) => {
            // The next reconciliation goes on, and does not wait for the grace period again.
            desired.obsolete_since = Some(since);
            other_kind
        }
        Err(error) => {
            tracing::warn!(
                namespace,
                %environment,
                %error,
                "cannot delete the objects of the other kind or format: they are deleted later"
            );
            other_kind
        }
    }
}

/// Returns the kind of objects whose publication is not complete, and whose objects are not deleted.
pub(crate) fn unfinished(
    environment: &Environment<'_>,
    publisher: &Publisher,
    reported: &Reported,
    observed: Option<&Observed>,
    publication: &Publication,
) -> Option<ObjectKind> {
    let begun = reported.status(environment)?.unfinished?;
    let ended = observed.filter(|_| matches!(publication, Publication::Done { .. })).is_some_and(|observed| {
        begun == observed.destination.object_kind || !publisher.has_obsolete(&observed.destination)
    });
    (!ended).then_some(begun)
}
