//! State of each environment between two reconciliations. It is lost with the process, which is harmless: the cluster
//! has the published snapshot, and the source has the document.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::{
    api::{FeatureEnvironmentStatus, ObjectKind},
    compile::guard::Outline,
    controller::report::{Contents, Failure},
    publish::{Ledger, Snapshot},
    source::{
        fetch::{EnvironmentKey, Held, Lessons},
        wake::Haste,
    },
};

use super::schedule;
use crate::publish::Record;

/// UID of a FeatureEnvironment. Unlike a name, it is never used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Uid(pub(super) String);

/// Properties of the last document that a stream of changes needs: the key to subscribe with, and the time to compare
/// events with.
#[derive(Debug)]
pub(super) struct Provenance {
    pub(super) client_key: String,
    pub(super) updated_at: Option<Timestamp>,
}

/// State of one environment.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Generation of the spec that the other fields belong to.
    pub(super) generation: Option<i64>,
    /// Time of the next fetch. `None` means at once.
    pub(super) next_fetch: Option<Instant>,
    /// Time of the next attempt after a failed publication.
    pub(super) retry_publish: Option<Instant>,
    /// Number of publications that failed in a row.
    pub(super) publish_failures: u32,
    /// Number of fetches that failed in a row.
    pub(super) failures: u32,
    pub(super) held: Option<Held>,
    /// Size of the document in bytes, if known.
    pub(super) expected: Option<usize>,
    /// Properties of the last document for the stream of changes.
    pub(super) origin: Option<Provenance>,
    /// Time of the last fetch that returned a whole document.
    pub(super) whole: Option<Instant>,
    /// Key that the server refused, and the time of the refusal.
    pub(super) refused: Option<(EnvironmentKey, Instant)>,
    /// Last snapshot that was accepted.
    pub(super) newest: Option<Arc<Snapshot>>,
    /// Contents of `newest`.
    pub(super) contents: Option<Contents>,
    /// Revision whose contents are in the status.
    pub(super) reported: Option<String>,
    /// Snapshot that should be published: the newest, the pinned, or the last good one.
    pub(super) carried: Option<Carried>,
    /// Failure that keeps the last document from being compiled.
    pub(super) uncompiled: Option<Failure>,
    /// Last snapshot, if it is held back and waits for approval.
    pub(super) withheld: Option<Withheld>,
    /// Summary of the document that was accepted last.
    pub(super) outline: Option<Outline>,
    pub(super) ledger: Ledger,
    /// Kind of the published objects.
    pub(super) object_kind: Option<ObjectKind>,
    /// Time at which objects of a previous kind or format were first seen, or at which their pods were last counted.
    pub(super) former_since: Option<Instant>,
    /// Revision that all pods were notified of.
    pub(super) told: Option<String>,
    /// Latest status, written or not. The next status follows from it.
    pub(super) status: Option<FeatureEnvironmentStatus>,
    /// Last status that was written. The watch may lag behind the operator's own writes.
    pub(super) written: Option<FeatureEnvironmentStatus>,
    /// Time of the next attempt after a failed status write.
    pub(super) retry_report: Option<Instant>,
    /// Number of status writes that failed in a row.
    pub(super) report_failures: u32,
}

impl Memory {
    /// Returns the hints for the next fetch.
    pub(super) fn lessons(&self, now: Instant) -> Lessons {
        let whole_is_due = self.whole.is_none_or(|whole| now.duration_since(whole) >= schedule::UNCONDITIONAL);
        let held = self.held.clone().filter(|_| !whole_is_due && self.failures == 0 && self.newest.is_some());
        let refused = self.refused.as_ref().filter(|(_, since)| now.duration_since(*since) < schedule::REFUSED);
        Lessons { held, refused: refused.map(|(key, _)| key.clone()), expected: self.expected }
    }

    /// Forgets what belongs to an earlier generation of the spec. The published snapshot stays until a newer one
    /// exists.
    pub(super) fn begin(&mut self, generation: Option<i64>) {
        if self.generation != generation {
            self.generation = generation;
            self.next_fetch = None;
            self.failures = 0;
            self.held = None;
            self.origin = None;
            self.refused = None;
            self.uncompiled = None;
            self.withheld = None;
        }
    }

    /// Sets the kind of the published objects. A change clears the history, because copies of earlier revisions exist
    /// in one kind only.
    pub(super) fn carry_as(&mut self, object_kind: ObjectKind) {
        if self.object_kind.replace(object_kind).is_some_and(|before| before != object_kind)
            && let Some(record) = self.carried.as_mut().and_then(|carried| carried.record.as_mut())
        {
            record.history.clear();
        }
    }

    pub(super) fn carried_snapshot(&self) -> Option<Arc<Snapshot>> {
        self.carried.as_ref().map(|carried| Arc::clone(&carried.snapshot))
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next_fetch.is_none_or(|next| now >= next)
    }
}

/// State of all environments.
#[derive(Debug, Default)]
pub(super) struct Memories {
    known: Mutex<HashMap<Uid, Memory>>,
    /// Triggers since the last reconciliation of each environment, by namespace and name.
    urgent: Mutex<HashMap<(String, String), Haste>>,
}

impl Memories {
    /// Takes out the state of an environment. Two reconciliations of one object never run at the same time.
    pub(super) fn take(&self, uid: &Uid) -> Option<Memory> {
        self.known.lock().remove(uid)
    }

    pub(super) fn put(&self, uid: Uid, memory: Memory) {
        self.known.lock().insert(uid, memory);
    }

    /// Stores a trigger for the next reconciliation of this environment. The stronger of two triggers is kept.
    pub(super) fn hurry(&self, namespace: &str, name: &str, haste: Haste) {
        let mut urgent = self.urgent.lock();
        let known = urgent.entry((namespace.to_owned(), name.to_owned())).or_insert(haste);
        *known = haste.max(*known);
    }

    /// Takes the trigger since the last reconciliation, if there is one.
    pub(super) fn take_urgency(&self, namespace: &str, name: &str) -> Option<Haste> {
        self.urgent.lock().remove(&(namespace.to_owned(), name.to_owned()))
    }

    /// Drops the state of all environments that are not in `alive`.
    pub(super) fn retain(&self, alive: &HashSet<Uid>) {
        self.known.lock().retain(|uid, _| alive.contains(uid));
    }
}

/// Compiled document before the guard check.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) snapshot: Snapshot,
    pub(super) contents: Contents,
    pub(super) outline: Outline,
}

/// Snapshot that is held back until a person approves it.
#[derive(Debug)]
pub(super) struct Withheld {
    pub(super) candidate: Candidate,
    pub(super) failure: Failure,
}

impl Withheld {
    pub(super) fn revision(&self) -> &str {
        &self.candidate.snapshot.revision
    }
}

/// Snapshot that should be published.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) record: Option<Record>,
    /// True if it was ever published.
    pub(super) published: bool,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::publish::Snapshot;

    /// A server may answer "not modified" for ever although its document has changed.
    #[test]
    fn a_source_is_asked_without_a_condition_now_and_then() {
        let began = Instant::now();
        let held: Held = Held::of_object("7");
        let newest = Some(Arc::new(Snapshot::new("1".to_owned(), Vec::new())));
        let mut memory = Memory { held: Some(held.clone()), newest, whole: Some(began), ..Memory::default() };
        let asks = |memory: &Memory, after: Duration| memory.lessons(began + after).held;
        let just_before = schedule::UNCONDITIONAL - Duration::from_secs(1);
        assert_eq!(asks(&memory, just_before), Some(held.clone()));
        assert_eq!(asks(&memory, schedule::UNCONDITIONAL), None);
        assert_eq!(asks(&memory, schedule::UNCONDITIONAL * 2), None, "until it was answered");
        memory.whole = Some(began + schedule::UNCONDITIONAL);
        assert_eq!(asks(&memory, schedule::UNCONDITIONAL * 2 - Duration::from_secs(1)), Some(held));
        memory.failures = 1;
        assert_eq!(asks(&memory, schedule::UNCONDITIONAL), None, "nor after a failure");
    }
}
