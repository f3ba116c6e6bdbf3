//! Follows one stream: opens it, reads it, and reopens it after a failure.

use std::{fmt, pin::pin, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::StreamTarget;
use crate::{
    api::NamespacedName,
    source::{
        back_off::{Retry, ceiling, jittered},
        fetch::{Change, Error, Fetcher, Listening},
        realtime::metrics::RealtimeMetrics,
        trigger::{Trigger, TriggerSender},
    },
};

/// Maximum of the first wait before a stream is reopened. Each further failure doubles it up to [`BACKOFF_MAX`].
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Maximum wait where the spec or the cluster is at fault, because such faults last longer than seconds.
const SPEC_FAULT_BACKOFF_MAX: Duration = Duration::from_secs(300);
/// Duration of a connection that resets the count of failures.
const STEADY: Duration = Duration::from_secs(30);
/// Minimum time between two fetches that one stream triggers, however many events it sends. Fetches of large documents have
/// the rest that the budget for webhooks gives them.
const PACE: Duration = Duration::from_millis(500);
/// Number of failures in a row after which the status and the log report them.
const REPORTED_AFTER_FAILURES: u32 = 3;

/// State of a stream. Its text is part of the status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum StreamState {
    /// The stream did not open yet.
    #[default]
    Connecting,
    /// The stream is open, or was until a short time ago.
    Connected,
    /// The operator only polls, for this reason.
    PolledOnly(String),
}

impl fmt::Display for StreamState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => f.write_str("connecting"),
            Self::Connected => f.write_str("connected"),
            Self::PolledOnly(reason) => write!(f, "polled only: {reason}"),
        }
    }
}

/// A stream, shared between its task and the reconciliation.
#[derive(Debug, Default)]
pub(super) struct Stream(Mutex<StreamFields>);

#[derive(Debug, Default)]
struct StreamFields {
    /// Time of the last change in the cached document.
    document_time: Option<Timestamp>,
    state: StreamState,
}

impl Stream {
    pub(super) fn set_document_time(&self, document_time: Option<Timestamp>) {
        self.0.lock().document_time = document_time;
    }

    /// Returns the state of the stream.
    pub(super) fn state(&self) -> StreamState {
        self.0.lock().state.clone()
    }

    /// Sets the state. Returns true if it was another one.
    pub(super) fn set_state(&self, state: StreamState) -> bool {
        let current = &mut self.0.lock().state;
        let is_other = *current != state;
        *current = state;
        is_other
    }

    fn document_time(&self) -> Option<Timestamp> {
        self.0.lock().document_time
    }
}

/// Follows the stream until the future is dropped.
pub(super) async fn follow(
    environment: &NamespacedName,
    target: &StreamTarget,
    fetcher: &Fetcher,
    triggers: &TriggerSender,
    metrics: &RealtimeMetrics,
    shared: &Stream,
) {
    let NamespacedName { namespace, name } = environment;
    let mut newest = None;
    let mut failures = 0_u32;
    loop {
        let opened = fetcher.listen(namespace, &target.flagsmith, &target.realtime, &target.client_key).await;
        let error = match opened {
            Err(error) => error,
            Ok(mut stream) => {
                let _connected = metrics.begin_connection();
                tracing::debug!(namespace, environment = name, "follows the stream of changes");
                // After failures that were reported, a stream that opens may break off again.
                if failures < REPORTED_AFTER_FAILURES {
                    shared.set_state(StreamState::Connected);
                }
                // The stream does not repeat events from before it opened, so only a fetch can find those changes.
                triggers.send(environment, Trigger::Fetch).await;
                let mut steady = pin!(tokio::time::sleep(STEADY));
                let mut is_steady = false;
                loop {
                    tokio::select! {
                        biased;
                        () = &mut steady, if !is_steady => {
                            (is_steady, failures) = (true, 0);
                            if shared.set_state(StreamState::Connected) {
                                triggers.send(environment, Trigger::Report).await;
                            }
                        }
                        news = next_news(&mut stream, &mut newest, shared) => {
                            if let Err(error) = news {
                                break error;
                            }
                            metrics.count_change();
                            triggers.send(environment, Trigger::FetchWhole).await;
                            // A server may send events as fast as the stream allows, and each costs it a whole document.
                            let rest = fetcher.read_budget().webhook_rest(&target.uid);
                            tokio::time::sleep(rest.max(PACE)).await;
                        }
                    }
                }
            }
        };
        metrics.count_failure(error.reason());
        failures = failures.saturating_add(1);
        if failures == REPORTED_AFTER_FAILURES {
            tracing::warn!(namespace, environment = name, reason = %error.reason(), %error, "the stream of changes failed several times in a row: the source is only polled until the stream opens again");
            shared.set_state(StreamState::PolledOnly(error.to_string()));
            triggers.send(environment, Trigger::Report).await;
        }
        tokio::time::sleep(wait(&error, failures, fastrand::f64())).await;
    }
}

/// Reads events until one reports a new change.
async fn next_news(stream: &mut Listening, newest: &mut Option<Timestamp>, shared: &Stream) -> Result<(), Error> {
    loop {
        let change = stream.next().await?;
        if is_news(change, shared.document_time(), *newest) {
            *newest = change.updated_at.max(*newest);
            return Ok(());
        }
    }
}

/// Returns true if a change is newer than the cached document and than the changes reported before. A change of unknown
/// time may be newer.
fn is_news(change: Change, document_time: Option<Timestamp>, newest: Option<Timestamp>) -> bool {
    change.updated_at.is_none_or(|at| Some(at) > document_time && Some(at) > newest)
}

/// Returns the wait before the stream is reopened. It grows with every failure in a row and has jitter, so that clients
/// of one server do not reconnect at the same time.
fn wait(error: &Error, failures: u32, chance: f64) -> Duration {
    let most = match error.retry() {
        Retry::AfterEdit | Retry::Reference => SPEC_FAULT_BACKOFF_MAX,
        Retry::Backoff | Retry::Costly | Retry::After(_) => BACKOFF_MAX,
    };
    jittered(ceiling(BACKOFF, most, failures.saturating_sub(1)), chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    #[test]
    fn event_is_news_if_newer_than_document_and_last_event() {
        let news = |change, document_time, newest| is_news(Change { updated_at: change }, document_time, newest);
        assert!(news(at(5), at(4), None));
        assert!(news(at(5), None, None));
        assert!(!news(at(5), at(5), None));
        assert!(!news(at(5), at(6), None));
        assert!(!news(at(5), at(1), at(5)));
        assert!(news(None, at(4), at(5)));
    }

    #[test]
    fn reopening_pauses_grow_and_are_never_zero() {
        let broken = Error::InvalidSource("x".to_owned());
        let origin = "https://flags.test".parse().unwrap();
        let gone = Error::EnvironmentNotFound(origin);
        assert_eq!(wait(&gone, 1, 1.0), BACKOFF);
        assert_eq!(wait(&gone, 1, 0.0), BACKOFF / 5);
        assert_eq!(wait(&gone, 4, 1.0), BACKOFF * 8);
        assert_eq!(wait(&gone, u32::MAX, 1.0), BACKOFF_MAX);
        assert_eq!(wait(&broken, u32::MAX, 1.0), SPEC_FAULT_BACKOFF_MAX);
    }
}
