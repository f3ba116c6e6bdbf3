//! Decides whether pods have room for a core. Pure.

use std::time::Duration;

use remora_compile::is_nearly_full;
use remora_snapshot::files;
use tokio::time::Instant;

use crate::{
    api::{Finding, Reason, Revision},
    controller::status::Failure,
    publish::Snapshot,
    rollout::Volumes,
};

/// Time between two looks at the pods while a core is withheld. Such a look asks only the cluster's API server.
const LOOK: Duration = Duration::from_secs(15);
/// Time between two looks at the pods of an environment with a large core.
const LOOK_WHEN_PUBLISHED: Duration = Duration::from_secs(300);
/// Time from the status that reports a larger core until the pods that were being admitted before it are among the
/// running ones. The API server waits 10 s for a webhook.
const ADMISSION: Duration = Duration::from_secs(15);

/// Chosen snapshot, beside what pods have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit<'a> {
    pub(crate) chosen: &'a Snapshot,
    /// Revision that is published.
    pub(crate) published: Option<&'a Revision>,
    /// Number of parts that the volume of a pod names if the webhook injects it now.
    pub(crate) parts_of_new_pods: usize,
}

impl Fit<'_> {
    /// True if each volume has room for the core, now and soon.
    pub(super) fn is_small(&self) -> bool {
        !is_nearly_full(self.chosen.core_bytes(), files::MAX_FILE_BYTES)
    }

    /// True if pods lose their flags if they have no room. With nothing published, no pod loses anything, so the first
    /// core is published in any case.
    fn must_fit(&self) -> bool {
        let is_new = self.published.is_some_and(|published| *published != self.chosen.revision);
        is_new && self.chosen.core_parts() > 0
    }
}

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
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) volumes: Volumes,
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

    /// Returns true if the pods are to be listed before the decision about the chosen core.
    pub(super) fn needs_look(&self, fit: &Fit<'_>, now: Instant) -> bool {
        let interval = match (fit.must_fit(), &self.withheld) {
            (true, None) => Duration::ZERO, // a pod may have been admitted since the last look
            (true, Some(_)) => LOOK,
            (false, _) => LOOK_WHEN_PUBLISHED,
        };
        self.seen.as_ref().is_none_or(|seen| now.duration_since(seen.at) >= interval)
    }

    /// Decides whether the chosen core is withheld. `looked` is the outcome of the look at the pods: `None` if they were
    /// listed a moment ago.
    pub(super) fn decide(self, fit: &Fit<'_>, looked: Option<Result<Seen, Failure>>, now: Instant) -> Self {
        let (seen, not_listed) = match looked {
            None => (self.seen, None),
            Some(Ok(seen)) => (Some(seen), None),
            Some(Err(failure)) => (None, Some(failure)),
        };
        if !fit.must_fit() {
            return Self { seen, ..Self::default() };
        }
        let is_larger_than_reported = fit.parts_of_new_pods < fit.chosen.core_parts();
        let admission_ends = if is_larger_than_reported { Some(now + ADMISSION) } else { self.admission_ends };
        let failure = not_listed
            .or_else(|| without_room(fit.chosen, &seen.as_ref()?.volumes))
            .or_else(|| admission_ends.filter(|ends| now < *ends).map(|_| in_admission(fit.chosen)));
        let Some(failure) = failure else { return Self { seen, ..Self::default() } };
        let until = seen.as_ref().map_or(now, |seen| seen.at) + LOOK;
        let until = admission_ends.map_or(until, |ends| until.max(ends));
        Self { seen, withheld: Some(Withheld { bytes: fit.chosen.core_bytes(), failure, until }), admission_ends }
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

fn without_room(chosen: &Snapshot, volumes: &Volumes) -> Option<Failure> {
    let parts = chosen.core_parts();
    let pods = volumes.without_room_for(parts)?;
    let message = format!(
        "the core of revision {} needs {parts} objects, and the volumes of {pods} name fewer: restart these pods (kubectl rollout restart). The webhook gives new pods enough room, an admission policy does not (the chart's injection.by). The published revision stays until all pods have room",
        chosen.revision
    );
    Some(Failure { reason: Reason::PodsWithoutRoom, message })
}

/// Returns the failure while pods without room for the core may be in admission, where no list shows them.
fn in_admission(chosen: &Snapshot) -> Failure {
    let message = format!(
        "the core of revision {} needs {} objects, and the volumes of pods that are being admitted name fewer: it is published in {} s, with more room in new pods, unless such a pod runs by then",
        chosen.revision,
        chosen.core_parts(),
        ADMISSION.as_secs()
    );
    Failure { reason: Reason::PodsWithoutRoom, message }
}

#[cfg(test)]
mod tests;
