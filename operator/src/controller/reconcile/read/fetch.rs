//! Fetch step: decides whether a fetch is due, and fetches the document. It publishes nothing.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    controller::{
        metrics::{Metrics, Outcome, Step},
        reconcile::{environment::Environment, schedule},
    },
    source::{
        fetch::{
            self, CachedVersion, Comparison, ContentDigest, EnvironmentKey, Error, FetchHints, FetchedDocument,
            Fetcher, FullRead, Retry, read_within,
        },
        trigger::Trigger,
    },
};

/// Least wait for room: other fetches use up a limit. A random part of up to the same time is added.
const ROOM_WAIT: Duration = Duration::from_secs(1);

/// Least time between two fetches because of edits, of the spec or of an object that the source names, after the first
/// [`EDITS_AT_ONCE`].
const EDIT_PACE: Duration = Duration::from_secs(5);
/// Number of fetches because of edits that follow each other at once. Each comes back after an [`EDIT_PACE`].
const EDITS_AT_ONCE: u32 = 32;

/// Longest time for which a key is used without another look at its Secret. It is a multiple of the default interval,
/// so that most polls send no request to the cluster's API server.
const KEY_REREAD: Duration = Duration::from_secs(300);

/// Properties of the last document that a stream of changes needs: the key to subscribe with, and the time to compare
/// events with.
#[derive(Debug)]
pub(crate) struct Provenance {
    pub(crate) client_key: String,
    pub(crate) updated_at: Option<Timestamp>,
}

/// State of the source between reconciliations.
#[derive(Debug, Default)]
pub(crate) struct SourceState {
    /// Time of the next fetch. `None` means at once.
    next_fetch: Option<Instant>,
    /// Planned time of the last fetch because of an edit. An earlier fetch may have served the edit.
    edit_fetch: Option<Instant>,
    /// Time at which [`EDITS_AT_ONCE`] fetches are allowed again.
    edits_free: Option<Instant>,
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
    pub(crate) fn start_generation(&mut self) {
        let Self { expected_bytes, last_document, last_content, edit_fetch, edits_free, .. } = std::mem::take(self);
        *self = Self { expected_bytes, last_document, last_content, edit_fetch, edits_free, ..Self::default() };
        let now = Instant::now();
        self.next_fetch = Some(self.next_edit_fetch(now)).filter(|next| *next > now);
    }

    /// Returns the time of the fetch because of an edit, and records it. Without a pace, the server would get a request for
    /// each edit, whatever it answered to the last one.
    fn next_edit_fetch(&mut self, now: Instant) -> Instant {
        if let Some(planned) = self.edit_fetch.filter(|planned| *planned > now) {
            return planned;
        }
        let free = self.edits_free.map_or(now, |free| free.max(now));
        let at = free.checked_sub(EDIT_PACE * (EDITS_AT_ONCE - 1)).map_or(now, |at| at.max(now));
        self.edits_free = Some(free + EDIT_PACE);
        self.edit_fetch = Some(at);
        at
    }

    /// Makes the next fetch earlier if an object was edited. Every trigger from [`Trigger::FetchWhole`] on makes it
    /// unconditional, because only the strongest trigger is kept.
    pub(crate) fn apply_trigger(&mut self, trigger: Option<Trigger>, now: Instant) {
        if trigger == Some(Trigger::ReferenceChanged) {
            let edit = self.next_edit_fetch(now);
            self.next_fetch = self.next_fetch.map(|next| next.min(edit));
        }
        if trigger >= Some(Trigger::FetchWhole) {
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
    pub(crate) fn is_due(&self, trigger: Option<Trigger>, is_lost: bool, now: Instant) -> bool {
        let by_trigger = match trigger {
            Some(Trigger::Requested) => true,
            // A stream event does not shorten the back-off of a failing source.
            Some(Trigger::Fetch | Trigger::FetchWhole) => self.failures == 0,
            // An edit has set the time of the next fetch.
            Some(Trigger::ReferenceChanged | Trigger::Report) | None => false,
        };
        let is_edit_planned = self.edit_fetch.is_some_and(|planned| planned > now);
        let is_lost = is_lost && self.failures == 0 && !is_edit_planned;
        by_trigger || is_lost || self.next_fetch.is_none_or(|next| now >= next)
    }

    /// Returns the hints for the next fetch. `has_snapshot` is true if the last document's snapshot is in memory or not
    /// needed; `rest` is the shortest time between two full reads.
    fn hints(&self, has_snapshot: bool, rest: Duration, now: Instant) -> FetchHints {
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

    /// Records the arrival of a document. Returns its new version if it is the document that was compiled
    /// last, for the same key.
    fn arrived(&mut self, document: &FetchedDocument, now: Instant) -> Option<CachedVersion> {
        self.expected_bytes = Some(document.bytes());
        self.last_document = Some(now);
        self.last_content = Some(now);
        self.arrived = Some(document.digest());
        let version = self.version.as_ref().filter(|_| self.compiled == self.arrived)?;
        document.arrival.clone().confirmed_version(version)
    }

    /// Delays the next fetch.
    pub(crate) fn delay(&mut self, wait: Duration) {
        self.next_fetch = Some(Instant::now() + wait);
    }

    /// Records that the source was read, and schedules the next poll.
    fn schedule_next_poll(&mut self, interval: Duration) {
        self.rejected_key = None;
        self.delay(schedule::after_success(interval, fastrand::f64()));
    }

    /// Records the version and the provenance of a document that was compiled.
    pub(crate) fn record_compiled(&mut self, version: CachedVersion, provenance: Provenance) {
        self.version = Some(version);
        self.provenance = Some(provenance);
        self.compiled = self.arrived.take();
        self.failures = 0;
    }

    /// Records a failed fetch or compilation, and schedules the next attempt.
    pub(crate) fn failed(&mut self, retry: Retry, interval: Duration) {
        let wait = schedule::after_failure(retry, self.failures, interval, fastrand::f64());
        self.delay(wait);
        self.failures = self.failures.saturating_add(1);
        self.compiled = None;
    }

    /// Forgets the key if the error shows that its owner may no longer give it.
    fn forget_withdrawn_key(&mut self, error: &Error) {
        if error.is_fault_of_spec() || matches!(error, Error::ReadFailed { .. } | Error::AuthenticationFailed { .. }) {
            self.version = None;
            self.key_read = None;
        }
    }

    pub(crate) fn waits_for_room(&mut self) {
        self.delay(ROOM_WAIT.mul_f64(1.0 + fastrand::f64()));
    }
}

/// Outcome of a fetch.
#[derive(Debug)]
pub(crate) enum FetchStep {
    /// No document was requested or read: a limit is reached, or the Secret still holds the refused key.
    Postponed,
    /// The source still has the version that was compiled last.
    Unchanged,
    /// A document. Its content is not checked yet.
    Document(Box<FetchedDocument>),
}

/// Fetches the document, and updates `source` with what the fetch showed. `has_snapshot` is true if the last document's
/// snapshot is in memory or not needed, so that the fetch may be conditional.
///
/// # Errors
/// If the source returns no document.
pub(crate) async fn fetch(
    environment: &Environment<'_>,
    fetcher: &Fetcher,
    metrics: &Metrics,
    source: &mut SourceState,
    has_snapshot: bool,
) -> Result<FetchStep, Error> {
    let interval = environment.spec.refresh.interval.get();
    let rest = fetcher.read_budget().rest(&environment.uid, interval);
    let began = Instant::now();
    let mut hints = source.hints(has_snapshot, rest, began);
    let step = metrics.begin(Step::Fetch);
    let mut fetched = fetcher.fetch(environment.namespace(), environment.spec, &hints).await;
    if hints.key.is_some() && matches!(fetched, Err(Error::AuthenticationFailed { .. })) {
        // The Secret may hold another key by now.
        hints.key = None;
        fetched = fetcher.fetch(environment.namespace(), environment.spec, &hints).await;
    }
    if hints.key.is_none() && matches!(fetched, Ok(fetch::Fetched::Unchanged { .. } | fetch::Fetched::Document(_))) {
        source.key_read = Some(began);
    }
    match fetched {
        Ok(fetch::Fetched::StillRefused) => {
            source.failed(Retry::Reference, interval);
            step.end(Outcome::StillRefused);
            Ok(FetchStep::Postponed)
        }
        Ok(fetch::Fetched::Busy) => {
            source.waits_for_room();
            step.end(Outcome::Busy);
            Ok(FetchStep::Postponed)
        }
        Ok(fetch::Fetched::OverBudget { expected }) => {
            source.expected_bytes = Some(expected);
            source.waits_for_room();
            step.end(Outcome::OverBudget);
            Ok(FetchStep::Postponed)
        }
        Ok(fetch::Fetched::Unchanged { read }) => {
            source.failures = 0;
            if let Some(read) = read {
                source.last_content = Some(Instant::now());
                record_full_read(environment, fetcher, metrics, &read);
            }
            record_read(environment, metrics, source);
            step.end(Outcome::Unchanged);
            Ok(FetchStep::Unchanged)
        }
        Ok(fetch::Fetched::Document(arrived)) => {
            metrics.environments.set_document_bytes(&environment.name, arrived.bytes());
            if let Some(read) = &arrived.read {
                record_full_read(environment, fetcher, metrics, read);
            }
            match source.arrived(&arrived, Instant::now()).filter(|_| has_snapshot) {
                Some(confirmed) => {
                    source.version = Some(confirmed);
                    source.failures = 0;
                    record_read(environment, metrics, source);
                    step.end(Outcome::Unchanged);
                    Ok(FetchStep::Unchanged)
                }
                None => {
                    step.end(Outcome::Done);
                    Ok(FetchStep::Document(arrived))
                }
            }
        }
        Err(error) => {
            step.end(error.reason());
            source.forget_withdrawn_key(&error);
            if let Error::AuthenticationFailed { key, .. } = &error {
                source.rejected_key = Some((key.clone(), Instant::now()));
            }
            Err(error)
        }
    }
}

/// Records that the source was read: it returned a document, or confirmed the one that was compiled last.
pub(crate) fn record_read(environment: &Environment<'_>, metrics: &Metrics, source: &mut SourceState) {
    source.schedule_next_poll(environment.spec.refresh.interval.get());
    let now = Timestamp::now().as_duration().as_secs_f64();
    metrics.environments.set_fetched(&environment.name, now);
}

/// Records that the server returned a document or compared its content: counts it in the budget of full reads.
fn record_full_read(environment: &Environment<'_>, fetcher: &Fetcher, metrics: &Metrics, read: &FullRead) {
    let interval = environment.spec.refresh.interval.get();
    let budget = fetcher.read_budget();
    budget.record(environment.namespace(), &environment.uid, read, interval, Instant::now());
    let within = read_within(budget.rest(&environment.uid, interval), interval);
    metrics.environments.set_read_within(&environment.name, within);
}

#[cfg(test)]
mod tests;
