//! Fit step: withholds a core that needs more objects than the volumes of running pods name.
//!
//! A pod that cannot read a new core keeps the one that it has, but after a restart of its sidecar it would have none.
//! So the published revision stays until the pods without room are replaced. Pods that the webhook injects get room for
//! the largest core that the status reports, published or not. So a core that needs more room than that is reported
//! first, and published when no pod with the previous room is being admitted any more.

mod room;

use tokio::time::Instant;

use self::room::Seen;
pub(crate) use self::room::{Fit, Room};
use crate::{
    api::{Delivery, FeatureEnvironmentStatus, Reason},
    controller::status::Failure,
    injection::{Layout, Size, Slots},
    publish::Owner,
    rollout::PodLister,
};

/// Looks at the pods if the decision about the chosen core needs it. Returns the new state, which has a failure if the
/// core is withheld.
pub(crate) async fn fit(lister: &PodLister, owner: &Owner, fit: &Fit<'_>, room: Room) -> Room {
    if fit.is_small() {
        return Room::default();
    }
    let began = Instant::now();
    let looked = if room.needs_look(fit, began) { Some(look(lister, owner, began).await) } else { None };
    let known = room.failure().map(|failure| failure.reason);
    let room = room.decide(fit, looked, Instant::now());
    if let Some(Failure { reason, message }) = room.failure().filter(|failure| known != Some(failure.reason)) {
        let (namespace, environment) = (&owner.namespace, &owner.environment);
        tracing::warn!(namespace, %environment, %reason, message, "the revision is withheld: the published one stays");
    }
    room
}

/// Lists the volumes of the running pods.
async fn look(lister: &PodLister, owner: &Owner, began: Instant) -> Result<Seen, Failure> {
    let (namespace, environment) = (&owner.namespace, &owner.environment);
    match lister.volumes(namespace, environment).await {
        Ok(volumes) => Ok(Seen { at: began, volumes }),
        Err(error) => {
            tracing::warn!(namespace, %environment, %error, "cannot list the pods whose volumes need room for the core");
            let message = format!("cannot list the pods whose volumes need room for the new core: {error}");
            Err(Failure { reason: Reason::ListPods, message })
        }
    }
}

/// Returns the number of parts that the volume of a pod names if the webhook injects it now. The webhook reads the
/// status that was `written` last.
pub(crate) fn parts_of_new_pods(delivery: &Delivery, written: Option<&FeatureEnvironmentStatus>) -> usize {
    let least = Slots { core_parts: usize::try_from(delivery.core_parts).unwrap_or_default(), ..Slots::default() };
    let core = written.and_then(|status| usize::try_from(status.core_bytes?).ok());
    let size = Size { core: core.unwrap_or_default(), ..Size::default() };
    Layout::new(delivery.object_kind, least, size).slots.core_parts
}
