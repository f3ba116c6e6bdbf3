//! Fit step: withholds a core that needs more objects than the volumes of running pods name.
//!
//! A pod that cannot read a new core keeps the one that it has, but after a restart of its sidecar it would have none.
//! So the published revision stays until the pods without room are replaced. Pods that the webhook injects get room for
//! the largest core that the status reports, published or not. So a core that needs more room than that is reported
//! first, and published when no pod with the previous room is being admitted any more.

use std::{sync::Arc, time::Duration};

use remora_compile::is_nearly_full;
use remora_snapshot::files;
use tokio::time::Instant;

use crate::{
    api::{Finding, Reason},
    controller::{
        reconcile::{desired::Desired, environment::Environment, observe::Observed, report::Reported},
        report::Failure,
    },
    injection::{Layout, Size, Slots},
    publish::Snapshot,
    rollout::{PodLister, Volumes},
};

/// Time between two looks at the pods while a core is withheld. Such a look asks only the cluster's API server.
const LOOK: Duration = Duration::from_secs(15);
/// Time between two looks at the pods of an environment with a large core.
const LOOK_WHEN_PUBLISHED: Duration = Duration::from_secs(300);
/// Time from the status that reports a larger core until the pods that were being admitted before it are among the
/// running ones. The API server waits 10 s for a webhook.
const ADMISSION: Duration = Duration::from_secs(15);

/// State of the room for the core between reconciliations.
#[derive(Debug, Default)]
pub(crate) struct Room {
    seen: Option<Seen>,
    withheld: Option<Withheld>,
    /// End of the admission of pods without room for the chosen core.
    admission_ends: Option<Instant>,
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
    pub(crate) fn start_generation(&mut self) {
        *self = Self { admission_ends: self.admission_ends, ..Self::default() };
    }

    /// Returns the failure that keeps the chosen snapshot from being published.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.withheld.as_ref().map(|withheld| &withheld.failure)
    }

    /// Returns the size of the withheld core in bytes.
    pub(crate) fn withheld_bytes(&self) -> Option<usize> {
        self.withheld.as_ref().map(|withheld| withheld.bytes)
    }

    /// Returns the time of the next look at the pods while a core is withheld.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.withheld.as_ref().map(|withheld| withheld.until)
    }

    /// Returns the finding for a core that the volumes of running pods soon have no room for.
    pub(crate) fn finding(&self, snapshot: &Snapshot) -> Option<Finding> {
        let (capacity, pods) = self.seen.as_ref()?.volumes.capacity()?;
        let bytes = snapshot.core_bytes();
        // Volumes with all parts cannot grow: the compiler reports that the core is nearly as large as any.
        if capacity >= files::MAX_CORE_BYTES || !is_nearly_full(bytes, capacity) {
            return None;
        }
        let message = format!(
            "the core has {bytes} bytes, and the volumes of {pods} have room for {capacity}: restart the pods before it grows further; the webhook gives new pods more room (an admission policy gives none for a core beyond {})",
            files::MAX_FILE_BYTES
        );
        Some(Finding { subject: "volumes of running pods".to_owned(), message })
    }
}

/// Returns the chosen snapshot if running and new pods have room for it or serve it already, else the last good one.
/// With nothing published, no pod loses anything, so the first core is published in any case.
pub(crate) async fn fit(
    environment: &Environment<'_>,
    lister: &PodLister,
    observed: &Observed,
    chosen: Arc<Snapshot>,
    desired: &Desired,
    reported: &Reported,
    room: &mut Room,
) -> Option<Arc<Snapshot>> {
    if !is_nearly_full(chosen.core_bytes(), files::MAX_FILE_BYTES) {
        *room = Room::default();
        return Some(chosen);
    }
    let last_good = desired.snapshot.as_ref().filter(|desired| desired.is_published()).map(|desired| &desired.snapshot);
    let published = last_good.map(|last_good| &last_good.revision).or(observed.revision.as_ref());
    let is_new = published.is_some_and(|published| *published != chosen.revision);
    let must_fit = is_new && chosen.core_parts() > 0;
    let interval = match (must_fit, &room.withheld) {
        (true, None) => Duration::ZERO, // a pod may have been admitted since the last look
        (true, Some(_)) => LOOK,
        (false, _) => LOOK_WHEN_PUBLISHED,
    };
    let looked = look(environment, lister, observed, interval, room).await;
    if must_fit && parts_of_new_pods(environment, reported) < chosen.core_parts() {
        room.admission_ends = Some(Instant::now() + ADMISSION);
    }
    let failure = match looked {
        _ if !must_fit => None,
        Ok(()) => without_room(&chosen, room.seen.as_ref()).or_else(|| in_admission(&chosen, room.admission_ends)),
        Err(failure) => Some(failure),
    };
    let Some(failure) = failure else {
        (room.withheld, room.admission_ends) = (None, None);
        return Some(chosen);
    };
    if room.failure().map(|known| known.reason) != Some(failure.reason) {
        let (namespace, environment, reason) = (environment.namespace(), &environment.name.name, failure.reason);
        tracing::warn!(namespace, environment, %reason, message = failure.message, "the revision is withheld: the published one stays");
    }
    let until = room.seen.as_ref().map_or_else(Instant::now, |seen| seen.at) + LOOK;
    let until = room.admission_ends.map_or(until, |end| until.max(end));
    room.withheld = Some(Withheld { bytes: chosen.core_bytes(), failure, until });
    last_good.cloned()
}

/// Returns the number of parts that the volume of a pod names if the webhook injects it now. The webhook reads the
/// status that was written last.
fn parts_of_new_pods(environment: &Environment<'_>, reported: &Reported) -> usize {
    let delivery = &environment.spec.delivery;
    let least = Slots { core_parts: usize::try_from(delivery.core_parts).unwrap_or_default(), ..Slots::default() };
    let core = reported.written(environment).and_then(|status| usize::try_from(status.core_bytes?).ok());
    let size = Size { core: core.unwrap_or_default(), ..Size::default() };
    Layout::new(delivery.object_kind, least, size).slots.core_parts
}

/// Lists the pods, unless they were listed a moment ago.
async fn look(
    environment: &Environment<'_>,
    lister: &PodLister,
    observed: &Observed,
    interval: Duration,
    room: &mut Room,
) -> Result<(), Failure> {
    let now = Instant::now();
    if room.seen.as_ref().is_some_and(|seen| now.duration_since(seen.at) < interval) {
        return Ok(());
    }
    match lister.volumes(environment.namespace(), &observed.destination.owner.environment).await {
        Ok(volumes) => {
            room.seen = Some(Seen { at: now, volumes });
            Ok(())
        }
        Err(error) => {
            let (namespace, environment) = (environment.namespace(), &environment.name.name);
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
        "the core of revision {} needs {parts} objects, and the volumes of {pods} name fewer: restart these pods (kubectl rollout restart). The webhook gives new pods enough room, an admission policy does not (the chart's injection.by). The published revision stays until all pods have room",
        chosen.revision
    );
    Some(Failure { reason: Reason::PodsWithoutRoom, message })
}

/// Returns a failure while pods without room for the core may be in admission, where no list shows them.
fn in_admission(chosen: &Snapshot, ends: Option<Instant>) -> Option<Failure> {
    ends.filter(|end| Instant::now() < *end)?;
    let message = format!(
        "the core of revision {} needs {} objects, and the volumes of pods that are being admitted name fewer: it is published in {} s, with more room in new pods, unless such a pod runs by then",
        chosen.revision,
        chosen.core_parts(),
        ADMISSION.as_secs()
    );
    Some(Failure { reason: Reason::PodsWithoutRoom, message })
}
