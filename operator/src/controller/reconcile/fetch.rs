//! Fetch step: decides whether a fetch is due, and fetches the document. It publishes nothing.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{environment::Environment, schedule};
use crate::{
    controller::metrics::{Metrics, Outcome, Step},
    source::{
        fetch::{self, CachedVersion, EnvironmentKey, Error, FetchHints, FetchedDocument, Fetcher, Retry},
        trigger::Trigger,
    },
};

/// Least wait for room: other fetches use up a limit. A random part of up to the same time is added.
const ROOM_WAIT: Duration = Duration::from_secs(1);

/// Properties of the last document that a stream of changes needs: the key to subscribe with, and the time to compare
/// events with.
#[derive(Debug)]
pub(super) struct Provenance {
    pub(super) client_key: String,
    pub(super) updated_at: Option<Timestamp>,
}

/// State of the source between reconciliations.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Time of the next fetch. `None` means at once.
    next_fetch: Option<Instant>,
    /// Number of fetches and compilations that failed in a row.
    failures: u32,
    /// Version of the last document that was compiled.
    version: Option<CachedVersion>,
    provenance: Option<Provenance>,
    /// Size of the document in bytes, if known.
    expected_bytes: Option<usize>,
    /// Time of the last fetch that returned a whole document.
    last_whole: Option<Instant>,
    /// Key that the server refused, and the time of the refusal.
    refused: Option<(EnvironmentKey, Instant)>,
}

impl Source {
    pub(super) fn next_fetch(&self) -> Option<Instant> {
        self.next_fetch
    }

    pub(super) fn provenance(&self) -> Option<&Provenance> {
        self.provenance.as_ref()
    }

    /// Forgets what belongs to an earlier generation of the spec.
    pub(super) fn start_generation(&mut self) {
        let Self { expected_bytes, last_whole, .. } = std::mem::take(self);
        *self = Self { expected_bytes, last_whole, ..Self::default() };
    }

    /// Makes the next fetch unconditional.
    pub(super) fn needs_whole(&mut self) {
        self.last_whole = None;
    }

    /// Returns true if the source is to be fetched now. `is_lost` is true if no snapshot exists anywhere and none is
    /// expected, so waiting for the next poll has no purpose.
    pub(super) fn is_due(&self, trigger: Option<Trigger>, is_lost: bool, now: Instant) -> bool {
        let is_triggered = match trigger {
            Some(Trigger::ReferenceChanged) => true,
            // A stream event does not shorten the back-off of a failing source.
            Some(Trigger::Fetch | Trigger::FetchWhole) => self.failures == 0,
            Some(Trigger::Report) | None => false,
        };
        let is_lost = is_lost && self.failures == 0;
        is_triggered || is_lost || self.next_fetch.is_none_or(|next| now >= next)
    }

    /// Returns the hints for the next fetch. `has_snapshot` is true if the last document's snapshot is in memory.
    fn hints(&self, has_snapshot: bool, now: Instant) -> FetchHints {
        let whole_is_due = self.last_whole.is_none_or(|last| now.duration_since(last) >= schedule::UNCONDITIONAL);
        let version = self.version.clone().filter(|_| !whole_is_due && self.failures == 0 && has_snapshot);
        let refused = self.refused.as_ref().filter(|(_, since)| now.duration_since(*since) < schedule::REFUSED);
        FetchHints { cached: version, refused: refused.map(|(key, _)| key.clone()), expected: self.expected_bytes }
    }

    /// Delays the next fetch.
    pub(super) fn delay(&mut self, wait: Duration) {
        self.next_fetch = Some(Instant::now() + wait);
    }

    /// Records that the source was read, and schedules the next poll.
    fn was_read(&mut self, interval: Duration) {
        self.refused = None;
        self.delay(schedule::after_success(interval, fastrand::f64()));
    }

    /// Records the version and the provenance of a document that was compiled.
    pub(super) fn was_compiled(&mut self, version: CachedVersion, provenance: Provenance) {
        self.version = Some(version);
        self.provenance = Some(provenance);
        self.failures = 0;
    }

    /// Records a failed fetch or compilation, and schedules the next attempt.
    pub(super) fn failed(&mut self, retry: Retry, interval: Duration) {
        let wait = schedule::after_failure(retry, self.failures, interval, fastrand::f64());
        self.delay(wait);
        self.failures = self.failures.saturating_add(1);
    }

    fn waits_for_room(&mut self) {
        self.delay(ROOM_WAIT.mul_f64(1.0 + fastrand::f64()));
    }
}

/// Outcome of a fetch.
#[derive(Debug)]
pub(super) enum Fetched {
    /// No document was requested or read: a limit is reached, or the Secret still holds the refused key.
    Postponed,
    /// The source still has the version that was compiled last.
    Unchanged,
    /// A document. Its content is not checked yet.
    Document(FetchedDocument),
}

/// Fetches the document, and updates `source` with what the fetch showed. `has_snapshot` is true if the last document's
/// snapshot is in memory, so that the fetch may be conditional.
///
/// # Errors
/// If the source returns no document.
pub(super) async fn fetch(
    environment: &Environment<'_>,
    fetcher: &Fetcher,
    metrics: &Metrics,
    source: &mut Source,
    has_snapshot: bool,
) -> Result<Fetched, Error> {
    let interval = environment.spec.refresh.interval.get();
    let hints = source.hints(has_snapshot, Instant::now());
    let step = metrics.begin(Step::Fetch);
    match fetcher.fetch(&environment.namespace, environment.spec, &hints).await {
        Ok(fetch::Fetched::StillRefused) => {
            source.failed(Retry::Slow, interval);
            step.end(Outcome::StillRefused);
            Ok(Fetched::Postponed)
        }
        Ok(fetch::Fetched::Busy) => {
            source.waits_for_room();
            step.end(Outcome::Busy);
            Ok(Fetched::Postponed)
        }
        Ok(fetch::Fetched::OverBudget { expected }) => {
            source.expected_bytes = Some(expected);
            source.waits_for_room();
            step.end(Outcome::OverBudget);
            Ok(Fetched::Postponed)
        }
        Ok(fetch::Fetched::Unchanged) => {
            source.failures = 0;
            was_read(environment, metrics, source);
            step.end(Outcome::Unchanged);
            Ok(Fetched::Unchanged)
        }
        Ok(fetch::Fetched::Document(arrived)) => {
            let bytes = arrived.bytes();
            metrics.environments.document(&environment.namespace, &environment.name, bytes);
            source.expected_bytes = Some(bytes);
            source.last_whole = Some(Instant::now());
            step.end(Outcome::Done);
            Ok(Fetched::Document(arrived))
        }
        Err(error) => {
            step.end(error.reason());
            if let Error::AuthenticationFailed { key, .. } = &error {
                source.refused = Some((key.clone(), Instant::now()));
            }
            Err(error)
        }
    }
}

/// Records that the source was read: it returned a document, or confirmed the one that was compiled last.
pub(super) fn was_read(environment: &Environment<'_>, metrics: &Metrics, source: &mut Source) {
    source.was_read(environment.spec.refresh.interval.get());
    let now = Timestamp::now().as_duration().as_secs_f64();
    metrics.environments.fetched(&environment.namespace, &environment.name, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server may answer "not modified" for ever although its document has changed.
    #[test]
    fn conditional_fetches_are_followed_by_unconditional_one_after_ten_minutes() {
        let began = Instant::now();
        let version = CachedVersion::of_object("7");
        let mut source = Source { version: Some(version.clone()), last_whole: Some(began), ..Source::default() };
        let hint = |source: &Source, after: Duration| source.hints(true, began + after).cached;
        let just_before = schedule::UNCONDITIONAL - Duration::from_secs(1);
        assert_eq!(hint(&source, just_before), Some(version.clone()));
        assert_eq!(hint(&source, schedule::UNCONDITIONAL), None);
        assert_eq!(hint(&source, schedule::UNCONDITIONAL * 2), None, "until it was answered");
        source.last_whole = Some(began + schedule::UNCONDITIONAL);
        assert_eq!(hint(&source, schedule::UNCONDITIONAL * 2 - Duration::from_secs(1)), Some(version));
        assert_eq!(source.hints(false, began).cached, None, "without a snapshot in memory");
        source.failures = 1;
        assert_eq!(hint(&source, schedule::UNCONDITIONAL), None, "after a failure");
    }

    #[test]
    fn stream_event_does_not_shorten_back_off_of_failing_source() {
        let now = Instant::now();
        let mut source = Source::default();
        source.failed(Retry::Backoff, Duration::from_secs(30));
        for trigger in [None, Some(Trigger::Report), Some(Trigger::Fetch), Some(Trigger::FetchWhole)] {
            assert!(!source.is_due(trigger, true, now), "{trigger:?}");
        }
        assert!(source.is_due(Some(Trigger::ReferenceChanged), false, now));
        source.was_read(Duration::from_secs(30));
        source.failures = 0;
        assert!(!source.is_due(Some(Trigger::Report), false, now) && source.is_due(Some(Trigger::Fetch), false, now));
        assert!(source.is_due(None, true, now), "nothing is published");
        assert!(source.is_due(None, false, now + Duration::from_secs(34)));
    }
}
