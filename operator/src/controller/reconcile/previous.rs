//! Withdraw step: deletes the published objects of the previous kind or format once no pod mounts them.

use tokio::time::Instant;

use super::{desired::Desired, environment::Environment};
use crate::{
    api::ObjectKind,
    publish::{Owner, Publisher},
    rollout::observe::Observer,
};

/// Deletes the objects of the previous kind or format if no pod mounts them. Returns the previous kind while its
/// objects stay. A failure is only logged: a later reconciliation tries again.
pub(super) async fn withdraw(
    environment: &Environment<'_>,
    publisher: &Publisher,
    observer: &Observer,
    owner: &Owner,
    desired: &mut Desired,
) -> Option<ObjectKind> {
    let previous = owner.was_other.then(|| owner.object_kind.other());
    if !publisher.has_previous(owner) {
        desired.previous_since = None;
        return None;
    }
    // Pods that were admitted a moment ago may not be listed yet.
    let since = *desired.previous_since.get_or_insert_with(Instant::now);
    if since.elapsed() < publisher.grace() {
        return previous;
    }
    desired.previous_since = Some(Instant::now());
    let (namespace, environment) = (&environment.namespace, &owner.environment);
    match observer.mounting_previous(namespace, environment, owner.object_kind).await {
        Ok(0) => {}
        Ok(pods) => {
            tracing::info!(
                namespace,
                %environment,
                pods,
                "pods still mount objects of the previous kind or format: keeping these objects"
            );
            return previous;
        }
        Err(error) => {
            tracing::warn!(
                namespace,
                %environment,
                %error,
                "cannot list the pods that mount objects of the previous kind or format: keeping these objects"
            );
            return previous;
        }
    }
    match publisher.delete_previous(owner).await {
        Ok(()) => None,
        Err(error) => {
            tracing::warn!(
                namespace,
                %environment,
                %error,
                "cannot delete the objects of the previous kind or format: they are deleted later"
            );
            previous
        }
    }
}
