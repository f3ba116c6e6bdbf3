//! What is remembered of each environment between two reconciliations. Lost with the process, and not missed: the cluster
//! has what was published, and the source has the rest.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use jiff::Timestamp;

use crate::{
    api::{Carrier, FeatureEnvironmentStatus},
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

/// Which object: its name may come again, this does not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Uid(pub(super) String);

/// What a stream of changes is found by, and compared with.
#[derive(Debug)]
pub(super) struct Provenance {
    pub(super) client_key: String,
    pub(super) updated_at: Option<Timestamp>,
}

/// One environment.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The generation of the spec that the rest is about.
    pub(super) generation: Option<i64>,
    /// When the source is asked next; never before is at once.
    pub(super) next_fetch: Option<Instant>,
    /// When a publication that failed is tried again.
    pub(super) retry_publish: Option<Instant>,
    /// Publications that failed in a row.
    pub(super) publish_failures: u32,
    /// Fetches that failed in a row.
    pub(super) failures: u32,
    pub(super) held: Option<Held>,
    /// The bytes of the document, as far as that is known.
    pub(super) expected: Option<usize>,
    /// Of the document that came last.
    pub(super) origin: Option<Provenance>,
    /// When the source was last asked without a condition.
    pub(super) whole: Option<Instant>,
    /// The key that was refused, and when.
    pub(super) refused: Option<(EnvironmentKey, Instant)>,
    /// The snapshot that was accepted last.
    pub(super) newest: Option<Arc<Snapshot>>,
    /// What is in it.
    pub(super) contents: Option<Contents>,
    /// The revision whose contents were reported.
    pub(super) reported: Option<String>,
    /// What the cluster should carry: the newest, or what is pinned, or the last good one.
    pub(super) carried: Option<Carried>,
    /// Why the document that came last is not the one that is published.
    pub(super) uncompiled: Option<Failure>,
    /// What came last and has to be confirmed.
    pub(super) withheld: Option<Withheld>,
    /// Of the document that was accepted last.
    pub(super) outline: Option<Outline>,
    pub(super) ledger: Ledger,
    /// The kind of the objects that carry what is carried.
    pub(super) carrier: Option<Carrier>,
    /// Since when it is known, or was last looked, that there are objects of another kind from before.
    pub(super) former_since: Option<Instant>,
    /// The revision that all pods were told.
    pub(super) told: Option<String>,
    /// The latest status, written or not: the next one follows from it.
    pub(super) status: Option<FeatureEnvironmentStatus>,
    /// The status that was written last. The watch may lag behind the operator's own writes.
    pub(super) written: Option<FeatureEnvironmentStatus>,
    /// When a status that could not be written is tried again.
    pub(super) retry_report: Option<Instant>,
    /// Status writes that failed in a row.
    pub(super) report_failures: u32,
}

impl Memory {
    /// What the next fetch should know.
    pub(super) fn lessons(&self, now: Instant) -> Lessons {
        let whole_is_due = self.whole.is_none_or(|whole| now.duration_since(whole) >= schedule::UNCONDITIONAL);
        let held = self.held.clone().filter(|_| !whole_is_due && self.failures == 0 && self.newest.is_some());
        let refused = self.refused.as_ref().filter(|(_, since)| now.duration_since(*since) < schedule::REFUSED);
        Lessons { held, refused: refused.map(|(key, _)| key.clone()), expected: self.expected }
    }

    /// Forgets what belongs to an earlier spec; what is published under it stays until there is something newer.
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

    /// Earlier revisions are in objects of one kind: with another begins another history.
    pub(super) fn carry_as(&mut self, carrier: Carrier) {
        if self.carrier.replace(carrier).is_some_and(|before| before != carrier)
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

/// All environments.
#[derive(Debug, Default)]
pub(super) struct Memories {
    known: Mutex<HashMap<Uid, Memory>>,
    /// Environments whose objects changed while nobody looked, by namespace and name.
    urgent: Mutex<HashMap<(String, String), Haste>>,
}

impl Memories {
    /// Takes out what is known of the object; no two reconciliations of one object run at a time.
    pub(super) fn take(&self, uid: &Uid) -> Option<Memory> {
        lock(&self.known).remove(uid)
    }

    pub(super) fn put(&self, uid: Uid, memory: Memory) {
        lock(&self.known).insert(uid, memory);
    }

    /// Somebody wants the next reconciliation of this environment to do something before its time.
    pub(super) fn hurry(&self, namespace: &str, name: &str, haste: Haste) {
        let mut urgent = lock(&self.urgent);
        let known = urgent.entry((namespace.to_owned(), name.to_owned())).or_insert(haste);
        *known = haste.max(*known);
    }

    /// What somebody asked for since the last time.
    pub(super) fn take_urgency(&self, namespace: &str, name: &str) -> Option<Haste> {
        lock(&self.urgent).remove(&(namespace.to_owned(), name.to_owned()))
    }

    /// Forgets all that are not among these.
    pub(super) fn retain(&self, alive: &HashSet<Uid>) {
        lock(&self.known).retain(|uid, _| alive.contains(uid));
    }
}

/// A thread that panicked left nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A document that was compiled.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) snapshot: Snapshot,
    pub(super) contents: Contents,
    pub(super) outline: Outline,
}

/// One that waits to be confirmed.
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

/// What the cluster should carry.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) record: Option<Record>,
    /// Whether it ever did.
    pub(super) published: bool,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::publish::Snapshot;

    /// A server may answer "not modified" for ever, though there is something newer.
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
