//! Follows one stream: opens it, reads it, and reopens it after a failure.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::Target;
use crate::source::{
    fetch::{Change, Error, Fetcher, Listening, Retry},
    realtime::metrics::RealtimeMetrics,
    trigger::{Trigger, TriggerSender},
};

/// Maximum of the first wait before a stream is reopened. Each further failure doubles it up to [`BACKOFF_MAX`].
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Maximum wait where the spec or the cluster is at fault, because such faults last longer than seconds.
const REFUSED: Duration = Duration::from_secs(300);
/// Duration of a connection that resets the count of failures.
const STEADY: Duration = Duration::from_secs(30);
/// Minimum time between two fetches that one stream triggers, however many events it sends.
const PACE: Duration = Duration::from_millis(500);
/// Number of failures in a row after which the status and the log report them.
const TOLD_AFTER: u32 = 3;

/// State shared between the stream and the reconciliation.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Time of the last change in the cached document.
    held: Option<Timestamp>,
    standing: Option<String>,
}

impl Shared {
    pub(super) fn holds(&self, held: Option<Timestamp>) {
        self.0.lock().held = held;
    }

    /// Returns the state of the stream as text for the status.
    pub(super) fn standing(&self) -> String {
        self.0.lock().standing.clone().unwrap_or_else(|| "connecting".to_owned())
    }

    pub(super) fn stands(&self, standing: String) {
        self.0.lock().standing = Some(standing);
    }

    fn held(&self) -> Option<Timestamp> {
        self.0.lock().held
    }
}

/// Follows the stream until the future is dropped.
pub(super) async fn follow(
    namespace: &str,
    name: &str,
    target: &Target,
    fetcher: &Fetcher,
    triggers: &TriggerSender,
    metrics: &RealtimeMetrics,
    shared: &Shared,
) {
    let mut newest = None;
    let mut failures = 0_u32;
    loop {
        let opened = fetcher.listen(namespace, &target.flagsmith, &target.realtime, &target.client_key).await;
        let error = match opened {
            Err(error) => error,
            Ok(mut stream) => {
                let _connected = metrics.connected();
                let since = Instant::now();
                tracing::debug!(namespace, environment = name, "follows the stream of changes");
                shared.stands("connected".to_owned());
                // The stream does not repeat events from before it opened, so only a fetch can find those changes.
                triggers.send(namespace, name, Trigger::Fetch).await;
                let error = loop {
                    if let Err(error) = next_news(&mut stream, &mut newest, shared).await {
                        break error;
                    }
                    metrics.change();
                    triggers.send(namespace, name, Trigger::FetchWhole).await;
                    tokio::time::sleep(PACE).await;
                };
                if since.elapsed() >= STEADY {
                    failures = 0;
                }
                error
            }
        };
        metrics.failure(error.reason());
        failures = failures.saturating_add(1);
        if failures == TOLD_AFTER {
            tracing::warn!(namespace, environment = name, reason = %error.reason(), %error, "polled only, for now");
            shared.stands(format!("polled only: {error}"));
            triggers.send(namespace, name, Trigger::Report).await;
        }
        tokio::time::sleep(wait(&error, failures, fastrand::f64())).await;
    }
}

/// Reads events until one reports a new change.
async fn next_news(stream: &mut Listening, newest: &mut Option<Timestamp>, shared: &Shared) -> Result<(), Error> {
    loop {
        let change = stream.next().await?;
        if is_news(change, shared.held(), *newest) {
            *newest = change.updated_at.max(*newest);
            return Ok(());
        }
    }
}

/// Returns true if a change is newer than the cached document and than the changes reported before. A change of unknown
/// time may be newer.
fn is_news(change: Change, held: Option<Timestamp>, newest: Option<Timestamp>) -> bool {
    change.updated_at.is_none_or(|at| Some(at) > held && Some(at) > newest)
}

/// Returns the wait before the stream is reopened. It grows with every failure in a row and has jitter, so that clients
/// of one server do not reconnect at the same time.
fn wait(error: &Error, failures: u32, chance: f64) -> Duration {
    let most = match error.retry() {
        Retry::Edited | Retry::Reference | Retry::Slow => REFUSED,
        Retry::Backoff | Retry::Costly | Retry::After(_) => BACKOFF_MAX,
    };
    let ceiling = BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most);
    ceiling.mul_f64(0.2 + 0.8 * chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    #[test]
    fn event_is_news_if_newer_than_document_and_last_event() {
        let news = |change, held, newest| is_news(Change { updated_at: change }, held, newest);
        assert!(news(at(5), at(4), None));
        assert!(news(at(5), None, None));
        assert!(!news(at(5), at(5), None));
        assert!(!news(at(5), at(6), None));
        assert!(!news(at(5), at(1), at(5)));
        assert!(news(None, at(4), at(5)));
    }

    #[test]
    fn reopening_pauses_grow_and_are_never_zero() {
        let broken = Error::InvalidSource("x");
        let origin = "https://flags.test".parse().unwrap();
        let gone = Error::EnvironmentNotFound(origin);
        assert_eq!(wait(&gone, 1, 1.0), BACKOFF);
        assert_eq!(wait(&gone, 1, 0.0), BACKOFF / 5);
        assert_eq!(wait(&gone, 4, 1.0), BACKOFF * 8);
        assert_eq!(wait(&gone, u32::MAX, 1.0), BACKOFF_MAX);
        assert_eq!(wait(&broken, u32::MAX, 1.0), REFUSED);
    }
}
