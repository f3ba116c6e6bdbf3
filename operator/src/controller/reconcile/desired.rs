//! State of the publication: the snapshot to publish, and the back-off after failures.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{error::Error, observe::Observed, schedule};
use crate::{
    api::{ObjectKind, PastRevision, Revision},
    controller::status::{Failure, FetchOutcome, Pin, Publication, WorkOutcome},
    publish::{ArchivedRevision, Record, Snapshot, WriteCache},
};

/// State of the publication between reconciliations.
#[derive(Debug, Default)]
pub(super) struct Desired {
    pub(super) snapshot: Option<DesiredSnapshot>,
    /// Time of the next attempt to read the published snapshot back. `Some` while it could not be read, or
    /// has no room in memory.
    pub(super) next_recovery: Option<Instant>,
    pub(super) cache: WriteCache,
    /// Kind of the published objects.
    kind: Option<ObjectKind>,
    /// Time at which obsolete objects were first seen, or at which their pods were last counted.
    pub(super) obsolete_since: Option<Instant>,
    pub(super) back_off: Option<BackOff>,
    /// Number of publications that failed in a row.
    pub(super) failures: u32,
}

/// Snapshot that should be published: the newest, the pinned, or the last good one.
#[derive(Debug)]
pub(super) struct DesiredSnapshot {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) record: Option<Record>,
    pub(super) state: PublishState,
    /// Deletions of the copies of revisions that the record lists as dropped.
    pub(super) deletions: Deletions,
}

/// Whether the desired snapshot is published.
#[derive(Debug)]
pub(super) enum PublishState {
    /// The snapshot was published.
    Published,
    /// The snapshot was not published so far.
    Unpublished {
        /// Published snapshot that it replaces.
        replaces: Option<Arc<Snapshot>>,
        /// True if the spec has changed since the snapshot was chosen, and may exclude it.
        is_outdated: bool,
    },
}

impl PublishState {
    /// Returns the state of the chosen snapshot. If it is not published yet, it replaces the snapshot `in_pods`.
    pub(super) fn of(is_published: bool, in_pods: Option<&Arc<Snapshot>>) -> Self {
        if is_published {
            Self::Published
        } else {
            Self::Unpublished { replaces: in_pods.cloned(), is_outdated: false }
        }
    }
}

/// State of deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deletions {
    Pending,
    Done,
}

impl DesiredSnapshot {
    /// Creates the desired snapshot from one that the cluster has.
    pub(super) fn published(snapshot: Arc<Snapshot>, record: Option<Record>) -> Self {
        Self { snapshot, record, state: PublishState::Published, deletions: Deletions::Pending }
    }

    pub(super) fn is_published(&self) -> bool {
        matches!(self.state, PublishState::Published)
    }

    /// Returns the snapshot that pods have: this one, or the one that it replaces.
    pub(super) fn in_pods(&self) -> Option<&Arc<Snapshot>> {
        match &self.state {
            PublishState::Published => Some(&self.snapshot),
            PublishState::Unpublished { replaces, .. } => replaces.as_ref(),
        }
    }
}

/// Outcome of an attempt to read the published snapshot back.
#[derive(Debug)]
pub(super) enum Recovery {
    /// The snapshot was read.
    Found(Box<DesiredSnapshot>),
    /// No snapshot is published.
    NotFound,
    /// The snapshot could not be read, or has no room in memory. It is read again after this time.
    Postponed(Duration),
}

/// Pause after a failed publication, with the outcome that is reported until it ends.
#[derive(Clone, Debug)]
pub(super) struct BackOff {
    pub(super) until: Instant,
    pub(super) scope: BackOffScope,
    failure: Failure,
    pin: Pin,
}

/// Steps that wait for the end of a back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackOffScope {
    /// Only the publication.
    Publication,
    /// The read of the source, too: the published objects could not be read, or the status not be written that has to be
    /// written before them.
    ReadAndPublication,
}

impl BackOff {
    /// Returns the outcome of a reconciliation in which nothing is published, because of the failure.
    pub(super) fn outcome(&self, fetch: FetchOutcome, observed: &Observed) -> WorkOutcome {
        WorkOutcome {
            fetch,
            pin: self.pin.clone(),
            publication: Publication::Failed(self.failure.clone()),
            revision: observed.revision.clone(),
        }
    }
}

impl Desired {
    /// Forgets what belongs to an earlier generation of the spec: the edit may have removed the cause of the failure.
    pub(super) fn start_generation(&mut self) {
        self.back_off = None;
        if let Some(DesiredSnapshot { state: PublishState::Unpublished { is_outdated, .. }, .. }) = &mut self.snapshot {
            *is_outdated = true;
        }
    }

    /// Returns true if the published snapshot is to be read back now. `is_needed` is true if it has to be read at all.
    pub(super) fn starts_recovery(&mut self, is_needed: bool, now: Instant) -> bool {
        if !is_needed {
            self.next_recovery = None;
        }
        is_needed && self.next_recovery.is_none_or(|next| now >= next)
    }

    /// Takes the snapshot that was read back.
    pub(super) fn recovered(&mut self, recovery: Recovery, now: Instant) {
        (self.snapshot, self.next_recovery) = match recovery {
            Recovery::Found(snapshot) => (Some(*snapshot), None),
            Recovery::NotFound => (None, None),
            Recovery::Postponed(pause) => (None, Some(now + pause)),
        };
    }

    /// Drops the snapshot if it is published, for lack of memory.
    pub(super) fn release(&mut self) {
        self.snapshot.take_if(|desired| desired.is_published());
    }

    /// Sets the kind of the published objects. A change drops the history, because copies of earlier revisions exist
    /// in one kind only. It also restarts the grace of obsolete objects: those of the other kind were the current ones
    /// until now, so pods that mount them may have been admitted a moment ago.
    pub(super) fn set_kind(&mut self, kind: ObjectKind) {
        if self.kind.replace(kind).is_none_or(|before| before == kind) {
            return;
        }
        self.obsolete_since = None;
        let Some(DesiredSnapshot { record: Some(record), deletions, .. }) = &mut self.snapshot else {
            return;
        };
        let (past, dropped) = (std::mem::take(&mut record.history), std::mem::take(&mut record.dropped));
        let dropped = dropped.into_iter().filter(|_| *deletions == Deletions::Pending);
        record.archived_in_other_kind.extend(past.into_iter().chain(dropped));
    }

    /// Returns the snapshot that pods have, if it is in memory.
    pub(super) fn published_snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.as_ref()?.in_pods().cloned()
    }

    pub(super) fn revision(&self) -> Option<&Revision> {
        self.snapshot.as_ref().map(|desired| &desired.snapshot.revision)
    }

    /// Returns the time at which the desired revision was published first, if it is known.
    pub(super) fn published_at(&self) -> Option<Timestamp> {
        let record = self.snapshot.as_ref().and_then(|desired| desired.record.as_ref());
        record.map(|record| record.published_at.0)
    }

    /// Returns the failure of the last publication while its back-off lasts.
    pub(super) fn backs_off(&self, now: Instant) -> Option<&BackOff> {
        self.back_off.as_ref().filter(|back_off| now < back_off.until)
    }

    /// Begins the back-off after a failure, and returns it. `interval` is the one between two fetches.
    pub(super) fn back_off(&mut self, error: &Error, pin: Pin, scope: BackOffScope, interval: Duration) -> &BackOff {
        let wait = schedule::after_failure(error.retry(), self.failures, interval, fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        self.back_off.insert(BackOff { until: Instant::now() + wait, scope, failure: error.to_failure(), pin })
    }

    pub(super) fn succeeded(&mut self) {
        self.back_off = None;
        self.failures = 0;
    }

    /// Returns the record of the desired snapshot, or of the published one.
    pub(super) fn record<'a>(&'a self, observed: &'a Observed) -> Option<&'a Record> {
        self.snapshot.as_ref().and_then(|desired| desired.record.as_ref()).or(observed.record.as_ref())
    }

    /// Returns the memory in bytes of that record.
    pub(super) fn record_bytes(&self, observed: &Observed) -> usize {
        self.record(observed).map_or(0, Record::memory_bytes)
    }

    /// Returns the archived revisions, latest first.
    pub(super) fn past<'a>(&'a self, observed: &'a Observed) -> &'a [ArchivedRevision] {
        self.record(observed).map(|record| record.history.as_slice()).unwrap_or_default()
    }

    /// Returns the record of the `published` revision, if it is known.
    pub(super) fn published<'a>(&'a self, observed: &'a Observed, published: Option<&Revision>) -> Option<&'a Record> {
        let published = published?;
        if self.revision() == Some(published) {
            return self.snapshot.as_ref().and_then(|desired| desired.record.as_ref());
        }
        observed.record.as_ref().filter(|_| observed.revision.as_ref() == Some(published))
    }

    /// Lists the archived revisions for the status, without the `published` one.
    pub(super) fn history(&self, observed: &Observed, published: Option<&Revision>) -> Vec<PastRevision> {
        let past = self.past(observed).iter().filter(|past| Some(&past.revision) != published);
        past.map(|past| PastRevision {
            revision: past.revision.clone(),
            published_at: past.published_at.clone(),
            changes: past.changes.clone(),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_waits_for_pause_unless_it_was_not_needed_meanwhile() {
        let (mut desired, now, pause) = (Desired::default(), Instant::now(), Duration::from_secs(60));
        assert!(!desired.starts_recovery(false, now) && desired.starts_recovery(true, now));
        desired.recovered(Recovery::Postponed(pause), now);
        assert!(!desired.starts_recovery(true, now + pause / 2) && desired.starts_recovery(true, now + pause));
        assert!(!desired.starts_recovery(false, now) && desired.starts_recovery(true, now));
    }

    #[test]
    fn change_of_kind_restarts_grace_of_obsolete_objects() {
        let mut desired = Desired::default();
        desired.set_kind(ObjectKind::ConfigMap);
        desired.set_kind(ObjectKind::Secret);
        desired.obsolete_since = Some(Instant::now());
        desired.set_kind(ObjectKind::Secret);
        assert!(desired.obsolete_since.is_some(), "the kind is the same");
        desired.set_kind(ObjectKind::ConfigMap);
        assert_eq!(desired.obsolete_since, None);
    }
}
