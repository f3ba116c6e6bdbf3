//! Room step: withholds a core that needs more objects than the volumes of running pods name.
//!
//! A pod that cannot read a new core keeps the one that it has, but after a restart of its sidecar it would have none.
//! So the published revision stays until the pods without room are replaced. New pods get room for the withheld core.

use std::{sync::Arc, time::Duration};

use remora_snapshot::files;
use tokio::time::Instant;

use super::{desired::Desired, environment::Environment, observe::Observed};
use crate::{
    api::{Finding, Reason},
    controller::report::Failure,
    publish::Snapshot,
    rollout::observe::{Observer, Volumes},
};

/// Time between two looks at the pods while a core is withheld. Such a look asks only the cluster's API server.
const LOOK: Duration = Duration::from_secs(15);
/// Time between two looks at the pods of an environment with a large core.
const LOOK_WHEN_PUBLISHED: Duration = Duration::from_secs(300);
/// Share of the room, in percent, from which on a core is reported before it is too late.
const NEARLY_FULL: usize = 70;

/// State of the room for the core between reconciliations.
#[derive(Debug, Default)]
pub(super) struct Room {
    seen: Option<Seen>,
    withheld: Option<Withheld>,
}

/// Volumes of the pods when they were listed last.
#[derive(Debug)]
struct Seen {
    at: Instant,
    volumes: Volumes,
}

/// Core that is not published.
#[derive(Debug)]
struct Withheld {
    bytes: usize,
    failure: Failure,
    until: Instant,
}

impl Room {
    /// Forgets what belongs to an earlier generation of the spec.
    pub(super) fn start_generation(&mut self) {
        *self = Self::default();
    }

    /// Returns the failure that keeps the chosen snapshot from being published.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.withheld.as_ref().map(|withheld| &withheld.failure)
    }

    /// Returns the size of the withheld core in bytes.
    pub(super) fn withheld_bytes(&self) -> Option<usize> {
        self.withheld.as_ref().map(|withheld| withheld.bytes)
    }

    /// Returns the time of the next look at the pods while a core is withheld.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.withheld.as_ref().map(|withheld| withheld.until)
    }

    /// Returns the finding for a core that the volumes of running pods soon have no room for.
    pub(super) fn finding(&self, snapshot: &Snapshot) -> Option<Finding> {
        let (capacity, pods) = self.seen.as_ref()?.volumes.capacity()?;
        let bytes = snapshot.core_bytes();
        // Volumes with all parts cannot grow: the compiler reports that the core is nearly as large as any.
        if capacity >= files::MAX_CORE_BYTES || !is_nearly_full(bytes, capacity) {
            return None;
        }
        let message = format!(
            "the core has {bytes} bytes, and the volumes of {pods} have room for {capacity}: restart the pods before it grows further; new pods get more room"
        );
        Some(Finding { subject: "volumes of running pods".to_owned(), message })
    }
}

/// True if a core of this size has a reserve of less than 30 %.
fn is_nearly_full(bytes: usize, capacity: usize) -> bool {
    bytes.saturating_mul(100) >= capacity.saturating_mul(NEARLY_FULL)
}

/// Returns the chosen snapshot if pods have room for it or serve it already, else the last good one. With nothing
/// published, no pod loses anything, so the first core is published in any case.
pub(super) async fn fitting(
    environment: &Environment<'_>,
    observer: &Observer,
    observed: &Observed,
    chosen: Arc<Snapshot>,
    desired: &Desired,
    room: &mut Room,
) -> Option<Arc<Snapshot>> {
    if !is_nearly_full(chosen.core_bytes(), files::MAX_FILE_BYTES) {
        *room = Room::default();
        return Some(chosen);
    }
    let last_good = desired.snapshot.as_ref().filter(|desired| desired.is_published).map(|desired| &desired.snapshot);
    let published = last_good.map(|last_good| &last_good.revision).or(observed.revision.as_ref());
    let is_new = published.is_some_and(|published| *published != chosen.revision);
    let must_fit = is_new && chosen.core_parts() > 0;
    let interval = match (must_fit, &room.withheld) {
        (true, None) => Duration::ZERO, // a pod may have been admitted since the last look
        (true, Some(_)) => LOOK,
        (false, _) => LOOK_WHEN_PUBLISHED,
    };
    let looked = look(environment, observer, observed, interval, room).await;
    let failure = match looked {
        _ if !must_fit => None,
        Ok(()) => without_room(&chosen, room.seen.as_ref()),
        Err(failure) => Some(failure),
    };
    let Some(failure) = failure else {
        room.withheld = None;
        return Some(chosen);
    };
    if room.failure().map(|known| known.reason) != Some(failure.reason) {
        let (namespace, environment, reason) = (&environment.namespace, &environment.name, failure.reason);
        tracing::warn!(namespace, environment, %reason, message = failure.message, "the revision is not published");
    }
    let until = room.seen.as_ref().map_or_else(Instant::now, |seen| seen.at) + LOOK;
    room.withheld = Some(Withheld { bytes: chosen.core_bytes(), failure, until: until.max(Instant::now()) });
    last_good.cloned()
}

/// Lists the pods, unless they were listed a moment ago.
async fn look(
    environment: &Environment<'_>,
    observer: &Observer,
    observed: &Observed,
    interval: Duration,
    room: &mut Room,
) -> Result<(), Failure> {
    let now = Instant::now();
    if room.seen.as_ref().is_some_and(|seen| now.duration_since(seen.at) < interval) {
        return Ok(());
    }
    match observer.volumes(&environment.namespace, &observed.destination.owner.environment).await {
        Ok(volumes) => {
            room.seen = Some(Seen { at: now, volumes });
            Ok(())
        }
        Err(error) => {
            let (namespace, environment) = (&environment.namespace, &environment.name);
            tracing::warn!(namespace, environment, %error, "cannot list the pods whose volumes need room for the core");
            room.seen = None;
            let message = format!("cannot list the pods whose volumes need room for the new core: {error}");
            Err(Failure { reason: Reason::ListPods, message })
        }
    }
}

fn without_room(chosen: &Snapshot, seen: Option<&Seen>) -> Option<Failure> {
    let parts = chosen.core_parts();
    let pods = seen?.volumes.without_room_for(parts)?;
    let message = format!(
        "the core of revision {} needs {parts} objects, and the volumes of {pods} name fewer: restart these pods (kubectl rollout restart); new pods have enough room, and the published revision stays until no other pod runs",
        chosen.revision
    );
    Some(Failure { reason: Reason::PodsWithoutRoom, message })
}
