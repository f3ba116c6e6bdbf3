//! Recover step: reads snapshots back from the cluster that this process does not have, because it was restarted.

use std::{sync::Arc, time::Duration};

use crate::{
    controller::reconcile::{
        candidate::Candidate,
        desired::{Desired, DesiredSnapshot, Recovery},
        environment::Environment,
        memory::reserve_read,
        observe::Observed,
    },
    memory::Memory,
    publish::{Destination, Error, Publisher},
};

/// Time after which a snapshot that had no room in memory is read again.
const MEMORY_PAUSE: Duration = Duration::from_secs(60);

/// Returns true if the published snapshot is needed and not in memory: it stays published while nothing newer may be
/// published, and it is archived before another one replaces it. `read_failed` is true if the last document could not be
/// fetched or compiled. Pure.
pub(crate) fn is_needed(
    pin: &str,
    candidate: &Candidate,
    desired: &Desired,
    observed: &Observed,
    read_failed: bool,
) -> bool {
    let is_replaced = || {
        let newest = candidate.newest().map(|newest| &newest.snapshot.revision);
        newest.is_some() && newest != observed.revision.as_ref()
    };
    desired.snapshot.is_none()
        && observed.revision.is_some()
        && (read_failed || !pin.is_empty() || candidate.pending_revision().is_some() || is_replaced())
}

/// Reads the published snapshot from the cluster.
pub(crate) async fn recover(
    environment: &Environment<'_>,
    publisher: &Publisher,
    memory: &Arc<Memory>,
    destination: &Destination,
) -> Recovery {
    match publisher.read_published(destination).await {
        Ok(None) => Recovery::NotFound,
        Ok(Some((snapshot, record))) => match reserve_read(environment, memory, snapshot, record.as_ref()) {
            Some(snapshot) => Recovery::Found(Box::new(DesiredSnapshot::published(Arc::new(snapshot), record))),
            None => Recovery::Postponed(MEMORY_PAUSE),
        },
        Err(error) => {
            let (namespace, environment) = (environment.namespace(), &environment.name.name);
            tracing::warn!(
                namespace,
                environment,
                %error,
                "cannot read the published snapshot: it stays as it is, and is not restored if somebody deletes it"
            );
            let is_full = matches!(error, Error::OutOfMemory { .. });
            Recovery::Postponed(if is_full { MEMORY_PAUSE } else { Duration::ZERO })
        }
    }
}
