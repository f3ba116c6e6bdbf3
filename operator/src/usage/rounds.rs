//! Reads the counters of one environment's sidecars in rounds, and sends what is new to the source.

use std::{collections::HashSet, net::SocketAddr, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    BYTES_MAX, CollectionTarget, Deps, KnownKey, Unread, Used,
    ledger::Ledger,
    metrics::{Fate, Reading},
    pending::{Pending, sum},
    reads::Reads,
};
use crate::{
    api::NamespacedName,
    source::{
        back_off::{around, ceiling},
        fetch::{Error, Retry, Unsent},
        trigger::Trigger,
    },
};

/// State of a collection that works.
pub(super) const COLLECTING: &str = "collecting";
/// Time between two rounds. A pod that ends loses the uses since the last one.
const INTERVAL: Duration = Duration::from_secs(60);
/// Number of pods of one environment that are asked at a time.
const CONCURRENT_REQUESTS: usize = 8;
/// Pause before each request: at most 200 pods of an environment are asked in a second.
const PACE: Duration = Duration::from_millis(40);
/// Largest number of requests with uses in a round. Other uses wait for the next round.
const REQUESTS_MAX: usize = 16;
/// Number of used flags that are remembered for the next report of the environment.
const NAMES_MAX: usize = 16 << 10;
/// Longest wait before uses that were not sent are sent again.
const BACKOFF_MAX: Duration = Duration::from_secs(15 * 60);
/// Number of failures in a row after which status and log report them.
const REPORTED_AFTER_FAILURES: u32 = 3;

/// Requests to the source that failed in a row.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    /// Time before which nothing is sent.
    until: Option<Instant>,
    problem: Option<String>,
}

/// Collects the uses of `target`'s flags. The future never completes: dropping it ends the collection.
pub(super) async fn collect(
    target: CollectionTarget,
    deps: Arc<Deps>,
    key: KnownKey,
    state_text: Arc<Mutex<String>>,
    used: Arc<Mutex<Used>>,
    unread: Arc<Mutex<Option<Unread>>>,
) {
    let began = Instant::now();
    let (mut ledger, mut pending) = (Ledger::new(deps.memory.share(&target.namespace)), Pending::default());
    let (mut failures, mut reads) = (Failures::default(), Reads::default());
    // The first round is soon, because uses of running pods count from it on.
    let mut pause = INTERVAL.mul_f64(0.1 * fastrand::f64());
    loop {
        tokio::time::sleep(pause.mul_f64(deps.pause_factor)).await;
        pause = around(INTERVAL, fastrand::f64());
        let left_out = read(&target, &deps, began, &mut ledger, &mut pending, &used, &mut reads).await;
        let today = today();
        let silent = reads.unread(today);
        *unread.lock() = Some(Unread { day: today, pods: silent });
        send(&target, &deps, &key, &mut pending, &mut failures).await;
        let now = match (&failures.problem, left_out) {
            (Some(problem), _) => format!("not sent: {problem}"),
            (None, 0) if silent > 0 => format!(
                "collecting, without {silent} of the pods, which were not read since yesterday began: such days do not count as days without uses; see that the controller reaches the admin ports"
            ),
            (None, 0) => COLLECTING.to_owned(),
            (None, pods) => format!(
                "collecting, without {pods} of the pods: the {BYTES_MAX} bytes for counts of all environments have no room for more of this namespace"
            ),
        };
        let before = std::mem::replace(&mut *state_text.lock(), now.clone());
        if before != now {
            let (namespace, environment) = (&target.namespace, &target.environment);
            tracing::info!(namespace, %environment, state = now, "the state of the collection of flag uses changed");
            deps.triggers.send(&NamespacedName::new(namespace, environment.as_str()), Trigger::Report).await;
        }
    }
}

/// Reads the counters of all pods. Returns the number of pods whose counts have no room in memory.
async fn read(
    target: &CollectionTarget,
    deps: &Deps,
    began: Instant,
    ledger: &mut Ledger,
    pending: &mut Pending,
    used: &Mutex<Used>,
    reads: &mut Reads,
) -> usize {
    let environment = &target.environment;
    deps.pods.ready().await;
    let all = deps.pods.of(&NamespacedName::new(&target.namespace, environment.as_str()));
    let runs = all.iter().filter(|pod| pod.admin.is_some());
    reads.start(&runs.map(|pod| (pod.uid.as_str(), pod.created.map(day))).collect::<Vec<_>>(), today());
    let running: Vec<(String, SocketAddr)> = all.iter().filter_map(|pod| Some((pod.uid.clone(), pod.admin?))).collect();
    let mut answers = stream::iter(running)
        .map(async |(pod, admin)| {
            tokio::time::sleep(PACE.mul_f64(deps.pause_factor)).await;
            // A process that is younger than this began after the collection did.
            let age = began.elapsed();
            (pod, age, deps.sidecars.uses(admin, &target.namespace, environment).await)
        })
        .buffer_unordered(CONCURRENT_REQUESTS);
    let mut left_out = 0;
    while let Some((pod, age, answer)) = answers.next().await {
        let Some(answer) = answer else {
            deps.metrics.count_reading(Reading::Silent);
            continue;
        };
        let is_young = Duration::from_millis(answer.age_ms) < age;
        let mut dropped = 0_u64;
        let today = today();
        let add = |name: &Arc<str>, uses| {
            let mut used = used.lock();
            if used.len() < NAMES_MAX || used.contains_key(name) {
                used.insert(Arc::clone(name), today);
            }
            dropped = dropped.saturating_add(pending.add(name, uses));
        };
        let reading = match ledger.take(&pod, answer, is_young, add) {
            Ok(()) => {
                reads.read(&pod, today);
                Reading::Read
            }
            Err(_) => Reading::OutOfMemory,
        };
        deps.metrics.count_uses(Fate::Dropped, dropped);
        left_out += usize::from(reading == Reading::OutOfMemory);
        deps.metrics.count_reading(reading);
    }
    ledger.retain(&all.iter().map(|pod| pod.uid.as_str()).collect::<HashSet<_>>());
    left_out
}

/// Returns the current day in UTC.
pub(crate) fn today() -> Date {
    day(Timestamp::now())
}

fn day(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

/// Sends the uses that wait, at most [`REQUESTS_MAX`] requests of them, unless the source failed a short time ago. Uses
/// that may have arrived are not sent again.
async fn send(target: &CollectionTarget, deps: &Deps, key: &KnownKey, pending: &mut Pending, failures: &mut Failures) {
    let (namespace, environment) = (&target.namespace, &target.environment);
    if failures.until.is_some_and(|until| Instant::now() < until) {
        return;
    }
    for _ in 0..REQUESTS_MAX {
        let Some(batch) = pending.batch() else { return };
        let known = key.lock().clone();
        let mut sent = deps.fetcher.send_uses(namespace, &target.flagsmith, known.as_ref(), &batch).await;
        let is_refused = |failed: &Unsent| matches!(failed.error, Error::AuthenticationFailed { .. });
        if known.is_some() && sent.as_ref().is_err_and(is_refused) {
            // The Secret may hold another key by now.
            sent = deps.fetcher.send_uses(namespace, &target.flagsmith, None, &batch).await;
        }
        let Err(failed) = sent else {
            deps.metrics.count_uses(Fate::Sent, sum(&batch));
            pending.remove(&batch);
            *failures = Failures::default();
            continue;
        };
        deps.metrics.count_failure(failed.error.reason());
        if failed.may_have_arrived {
            deps.metrics.count_uses(Fate::Unconfirmed, sum(&batch));
            pending.remove(&batch);
        }
        failures.count = failures.count.saturating_add(1);
        let wait = wait(&failed.error, failures.count);
        failures.until = Some(Instant::now() + wait.mul_f64(deps.pause_factor));
        if failures.count >= REPORTED_AFTER_FAILURES {
            failures.problem = Some(failed.error.to_string());
        }
        tracing::debug!(namespace, %environment, error = %failed.error, "cannot send uses of flags");
        return;
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
