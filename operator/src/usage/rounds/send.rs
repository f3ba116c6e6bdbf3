//! Sends the uses that wait to the source, and waits after failures.

use std::time::Duration;

use tokio::time::Instant;

use super::{Collecting, INTERVAL};
use crate::{
    source::{
        back_off::{Retry, ceiling},
        fetch::{Error, Unsent},
    },
    usage::{metrics::Fate, pending::sum},
};

/// Largest number of requests with uses in a round. Other uses wait for the next round.
const REQUESTS_MAX: usize = 16;
/// Longest wait before uses that were not sent are sent again.
const BACKOFF_MAX: Duration = Duration::from_secs(15 * 60);
/// Number of failures in a row after which status and log report them.
const REPORTED_AFTER_FAILURES: u32 = 3;

/// Requests to the source that failed in a row.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: u32,
    /// Time before which nothing is sent.
    until: Option<Instant>,
    problem: Option<String>,
}

impl Failures {
    /// Returns the last problem, if it is to be reported.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Collecting {
    /// Sends the uses that wait, at most [`REQUESTS_MAX`] requests of them, unless the source failed a short time ago. Uses
    /// that may have arrived are not sent again.
    pub(super) async fn send(&mut self) {
        let Self { target, context, collection, pending, failures, .. } = self;
        let (namespace, environment) = (&target.namespace, &target.environment);
        if failures.until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        for _ in 0..REQUESTS_MAX {
            let Some(batch) = pending.batch() else { return };
            let known = collection.0.lock().key.clone();
            let mut sent = context.fetcher.send_uses(namespace, &target.flagsmith, known.as_ref(), &batch).await;
            let is_refused = |failed: &Unsent| matches!(failed.error, Error::AuthenticationFailed { .. });
            if known.is_some() && sent.as_ref().is_err_and(is_refused) {
                // The Secret may hold another key by now.
                sent = context.fetcher.send_uses(namespace, &target.flagsmith, None, &batch).await;
            }
            let Err(failed) = sent else {
                context.metrics.count_uses(Fate::Sent, sum(&batch));
                pending.remove(&batch);
                *failures = Failures::default();
                continue;
            };
            context.metrics.count_failure(failed.error.reason());
            if failed.may_have_arrived {
                context.metrics.count_uses(Fate::Unconfirmed, sum(&batch));
                pending.remove(&batch);
            }
            failures.count = failures.count.saturating_add(1);
            let wait = wait(&failed.error, failures.count);
            failures.until = Some(Instant::now() + wait.mul_f64(context.pause_factor));
            if failures.count >= REPORTED_AFTER_FAILURES {
                failures.problem = Some(failed.error.to_string());
            }
            tracing::debug!(namespace, %environment, error = %failed.error, "cannot send uses of flags");
            return;
        }
    }
}

/// Returns the wait before uses are sent again.
fn wait(error: &Error, failures: u32) -> Duration {
    let doubled = ceiling(INTERVAL, BACKOFF_MAX, failures.saturating_sub(1));
    match error.retry() {
        Retry::After(wait) => wait.max(doubled),
        _ => doubled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_grows_with_failures_to_a_limit() {
        let error = Error::InvalidSource("x".to_owned());
        let waits: Vec<u64> = (1..=7).map(|failures| wait(&error, failures).as_secs()).collect();
        assert_eq!(waits, [60, 120, 240, 480, 900, 900, 900]);
        assert_eq!(wait(&error, u32::MAX), BACKOFF_MAX);
        let origin = "https://flags.test".parse().unwrap();
        let limited = Error::RateLimited { origin, retry_after: Some(Duration::from_secs(600)) };
        assert_eq!(wait(&limited, 1), Duration::from_secs(600));
    }
}
