//! Recover step: reads snapshots back from the cluster that this process does not have, because it was restarted.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    controller::reconcile::{
        candidate::Candidate,
        desired::{Desired, DesiredSnapshot},
        environment::Environment,
        memory::reserve_read,
        observe::Observed,
    },
    memory::Memory,
    publish::{Error, Publisher},
};

/// Time after which a snapshot that had no room in memory is read again.
const MEMORY_PAUSE: Duration = Duration::from_secs(60);

/// Returns true if the published snapshot is needed and not in memory: it stays published while nothing newer may be
/// published, and it is archived before another one replaces it.
fn is_needed(pin: &str, candidate: &Candidate, desired: &Desired, observed: &Observed, read_failed: bool) -> bool {
    let is_replaced = || {
        let newest = candidate.newest().map(|newest| &newest.snapshot.revision);
        newest.is_some() && newest != observed.revision.as_ref()
    };
    desired.snapshot.is_none()
        && observed.revision.is_some()
        && (read_failed || !pin.is_empty() || candidate.pending_revision().is_some() || is_replaced())
}

/// Reads the published snapshot from the cluster into `desired` if it is needed. `read_failed` is true if the last
/// document could not be fetched or compiled.
pub(crate) async fn recover(
    environment: &Environment<'_>,
    publisher: &Publisher,
    memory: &Arc<Memory>,
    candidate: &Candidate,
    observed: &Observed,
    desired: &mut Desired,
    read_failed: bool,
) {
    if !is_needed(&environment.spec.pin, candidate, desired, observed, read_failed) {
        desired.next_recovery = None;
        return;
    }
    if desired.next_recovery.is_some_and(|next| Instant::now() < next) {
        return;
    }
    match publisher.read_published(&observed.destination).await {
        Ok(found) => {
            let is_found = found.is_some();
            let kept = found.and_then(|(snapshot, record)| {
                Some((reserve_read(environment, memory, snapshot, record.as_ref())?, record))
            });
            desired.snapshot = kept.map(|(snapshot, record)| DesiredSnapshot::published(Arc::new(snapshot), record));
            let is_refused = is_found && desired.snapshot.is_none();
            desired.next_recovery = is_refused.then(|| Instant::now() + MEMORY_PAUSE);
        }
        Err(error) => {
            let pause = if matches!(error, Error::OutOfMemory { .. }) { MEMORY_PAUSE } else { Duration::ZERO };
            desired.next_recovery = Some(Instant::now() + pause);
            let (namespace, environment) = (environment.namespace(), &environment.name.name);
            tracing::warn!(
                namespace,
                environment,
                %error,
                "cannot read the published snapshot: it stays as it is, and is not restored if somebody deletes it"
            );
        }
    }
}
