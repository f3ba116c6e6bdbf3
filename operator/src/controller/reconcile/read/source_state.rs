//! State of the source between reconciliations, and when it is fetched next. Pure.

mod change;

use std::time::Duration;

use tokio::time::Instant;

pub(crate) use self::change::{Provenance, SourceChange, Timing};
use super::edit_pace::EditPace;
use crate::{
    controller::reconcile::{error::Error, schedule},
    source::{
        back_off::Retry,
        fetch::{self, Arrival, CachedVersion, Comparison, ContentDigest, EnvironmentKey, FetchHints},
        trigger::{Trigger, Triggers},
    },
};

/// Least wait for room: other fetches use up a limit. A random part of up to the same time is added.
const ROOM_WAIT: Duration = Duration::from_secs(1);

/// Longest time for which a key is used without another look at its Secret. It is a multiple of the default interval,
/// so that most polls send no request to the cluster's API server.
const KEY_REREAD: Duration = Duration::from_secs(300);

/// State of the source between reconciliations.
#[derive(Debug, Default)]
pub(crate) struct SourceState {
    /// Time of the next fetch. `None` means at once.
    next_fetch: Option<Instant>,
    edits: EditPace,
    /// Number of fetches and compilations that failed in a row.
    failures: u32,
    /// Version of the last document that was compiled.
    version: Option<CachedVersion>,
    /// Digest of the last document that was compiled. `None` if a later fetch or compilation failed.
    compiled: Option<ContentDigest>,
    /// Digest of the document that is being compiled.
    arrived: Option<ContentDigest>,
    provenance: Option<Provenance>,
    /// Size of the document in bytes, if known.
    expected_bytes: Option<usize>,
    /// Time of the last fetch that returned a document.
    last_document: Option<Instant>,
    /// Time of the last fetch that returned a document, or whose server compared the content.
    last_content: Option<Instant>,
    /// Time at which the Secret with the key was read last. `None` makes the next fetch read it.
    key_read: Option<Instant>,
    /// Key that the server rejected, and the time of that.
    rejected_key: Option<(EnvironmentKey, Instant)>,
}

impl SourceState {
    pub(crate) fn next_fetch(&self) -> Option<Instant> {
        self.next_fetch
    }

    /// Returns the key that the server accepted with the last compiled document. `None` once the spec or the Secret no
    /// longer gives it: the caller then has to read the Secret.
    pub(crate) fn key(&self) -> Option<&EnvironmentKey> {
        self.version.as_ref().and_then(CachedVersion::key)
    }

    pub(crate) fn provenance(&self) -> Option<&Provenance> {
        self.provenance.as_ref()
    }

    /// Forgets what belongs to an earlier generation of the spec.
    pub(crate) fn start_generation(&mut self, now: Instant) {
        let Self { expected_bytes, last_document, last_content, mut edits, .. } = std::mem::take(self);
        let next_fetch = Some(edits.plan(now)).filter(|next| *next > now);
        *self = Self { next_fetch, edits, expected_bytes, last_document, last_content, ..Self::default() };
    }

    /// Sets the time of the next fetch.
    pub(crate) fn fetch_at(&mut self, at: Instant) {
        self.next_fetch = Some(at);
    }

    /// Makes the next fetch earlier if an object was edited, and unconditional if a condition may hide a change.
    pub(crate) fn apply_triggers(&mut self, triggers: &Triggers, now: Instant) {
        if triggers.has(&[Trigger::ReferenceChanged]) {
            let edit = self.edits.plan(now);
            self.next_fetch = self.next_fetch.map(|next| next.min(edit));
        }
        if triggers.has(&[Trigger::FetchWhole, Trigger::ReferenceChanged, Trigger::Requested]) {
            self.require_whole_fetch();
        }
    }

    /// Makes the next fetch unconditional.
    fn require_whole_fetch(&mut self) {
        self.last_document = None;
    }

    /// Prepares for a fetch that a person requests: it is unconditional, reads the Secret with the key, and asks a server
    /// that refused the key again.
    pub(crate) fn forget_for_request(&mut self) {
        self.require_whole_fetch();
        self.key_read = None;
        self.rejected_key = None;
    }

    /// Returns true if the source is to be fetched now. `is_lost` is true if no snapshot exists anywhere and none is
    /// expected, so waiting for the next poll has no purpose.
    pub(crate) fn is_due(&self, triggers: &Triggers, is_lost: bool, now: Instant) -> bool {
        // A stream event does not shorten the back-off of a failing source. An edit has set the time of the next fetch.
        let is_new = triggers.has(&[Trigger::Fetch, Trigger::FetchWhole]) && self.failures == 0;
        let by_trigger = triggers.has(&[Trigger::Requested]) || is_new;
        let is_lost = is_lost && self.failures == 0 && !self.edits.is_waiting(now);
        by_trigger || is_lost || self.next_fetch.is_none_or(|next| now >= next)
    }

    /// Returns the hints for the next fetch. `has_snapshot` is true if the last document's snapshot is in memory or not
    /// needed; `rest` is the shortest time between two full reads.
    pub(crate) fn hints(&self, has_snapshot: bool, rest: Duration, now: Instant) -> FetchHints {
        let is_due = |last: Option<Instant>, rest| last.is_none_or(|last| now.duration_since(last) >= rest);
        let is_unconditional =
            is_due(self.last_document, schedule::UNCONDITIONAL) || self.failures > 0 || !has_snapshot;
        let rejected =
            self.rejected_key.as_ref().filter(|(_, since)| now.duration_since(*since) < schedule::REJECTED_KEY_PAUSE);
        // After a failure, the Secret may hold another key.
        let reads_key = is_due(self.key_read, KEY_REREAD) || self.failures > 0 || !has_snapshot;
        FetchHints {
            key: self.key().filter(|_| !reads_key).cloned(),
            cached: self.version.clone().filter(|_| !is_unconditional),
            comparison: if is_due(self.last_content, rest) { Comparison::Content } else { Comparison::Time },
            rejected_key: rejected.map(|(key, _)| key.clone()),
            expected: self.expected_bytes,
        }
    }

    /// Returns the newer version if the document that arrived is the one that was compiled last, for the same key.
    pub(crate) fn confirmed_version(&self, arrival: &Arrival) -> Option<CachedVersion> {
        let version = self.version.as_ref().filter(|_| self.compiled == self.arrived)?;
        arrival.clone().confirmed_version(version)
    }

    /// Records a fact about the source, and schedules the next fetch.
    pub(crate) fn apply(&mut self, change: SourceChange<'_>, timing: Timing) {
        let now = timing.now;
        match change {
            SourceChange::KeyRead(at) => self.key_read = Some(at),
            SourceChange::StillRefused => self.failed(Retry::Reference, timing),
            SourceChange::NoRoom { expected } => {
                self.expected_bytes = expected.or(self.expected_bytes);
                self.next_fetch = Some(now + ROOM_WAIT.mul_f64(1.0 + timing.chance));
            }
            SourceChange::Arrived { bytes, digest } => {
                self.expected_bytes = Some(bytes);
                (self.last_document, self.last_content) = (Some(now), Some(now));
                self.arrived = Some(digest);
            }
            SourceChange::Unchanged { version, is_content_compared } => {
                self.version = version.or(self.version.take());
                self.last_content = if is_content_compared { Some(now) } else { self.last_content };
                self.succeeded(timing);
            }
            SourceChange::Compiled { version, provenance } => {
                (self.version, self.provenance) = (Some(version), Some(provenance));
                self.compiled = self.arrived.take();
                self.succeeded(timing);
            }
            SourceChange::Failed(error) => {
                self.check_key(error, now);
                self.failed(error.retry(), timing);
            }
        }
    }

    fn succeeded(&mut self, timing: Timing) {
        self.failures = 0;
        self.rejected_key = None;
        self.next_fetch = Some(timing.now + schedule::after_success(timing.interval, timing.chance));
    }

    fn failed(&mut self, retry: Retry, timing: Timing) {
        let Timing { now, interval, chance } = timing;
        self.next_fetch = Some(now + schedule::after_failure(retry, self.failures, interval, chance));
        self.failures = self.failures.saturating_add(1);
        self.compiled = None;
    }

    /// Records what a failure shows about the key. Forgets the key if its owner may no longer give it.
    fn check_key(&mut self, error: &Error, now: Instant) {
        let Error::Fetch(error) = error else {
            // With a document, the server accepted the key.
            if error.is_of_document() {
                self.rejected_key = None;
            }
            return;
        };
        let is_withdrawn =
            matches!(**error, fetch::Error::ReadFailed { .. } | fetch::Error::AuthenticationFailed { .. });
        if is_withdrawn || error.is_fault_of_spec() {
            self.version = None;
            self.key_read = None;
        }
        if let fetch::Error::AuthenticationFailed { key, .. } = &**error {
            self.rejected_key = Some((key.clone(), now));
        }
    }
}

#[cfg(test)]
mod tests;
