//! Times of the next fetch or retry. Pure: randomness is passed in as `chance`, a number from 0 to 1.
//!
//! Times of the controller that depend on each other:
//!
//! | shorter | longer | why |
//! |---|---|---|
//! | `leader::RENEW_DEADLINE` (20 s) | `leader::LEASE_DURATION` (30 s) | a holder writes nothing more before another replica may take over |
//! | `fetch::limiter::PERMIT_TIMEOUT` (2 s), `ROOM_WAIT` (1 to 2 s) | `fetch::memory_queue::PLACE_RETAINED` (10 s) | a fetch that gave up is repeated before its namespace loses its place |
//! | `turns::BEGIN` (10 s) | [`UPKEEP`] (60 s) | an environment that missed its turn asks again |
//! | `restore::PERIOD` (500 ms) | the time of a fetch, up to minutes | published objects do not wait for a slow source |
//! | a kubelet's delivery of a volume (60 to 90 s) | `publish::SURPLUS_GRACE` (600 s) | no object is deleted while a pod may still mount it |
//! | a request in the API server (60 s) | `publish::secret_cache::LATE` (600 s) | a Secret that a late write creates is found |
//! | `publish::secret_cache::REFRESH_INTERVAL` (60 s) | [`UPKEEP`] (60 s, and up to a tenth more) | each look at published objects polls the Secrets |
//! | the admission of a pod by the webhook (10 s) | `fit::room::ADMISSION` (15 s) | a core that is withheld waits for pods that are being admitted |

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use crate::{
    api::Uid,
    source::{
        back_off::{Retry, around, ceiling, jittered},
        fetch::REST_MAX,
    },
};

/// Longest wait after the first failure. It doubles with every further failure.
const BACKOFF: Duration = Duration::from_secs(1);
/// Upper bound of the wait for a failing source: its interval, but at least `BACKOFF_MIN_MAX` and at most
/// `BACKOFF_MAX`. With an interval of up to 300 s, a failing source is not asked more often than one that works.
const BACKOFF_MAX: Duration = Duration::from_secs(300);
const BACKOFF_MIN_MAX: Duration = Duration::from_secs(10);
/// Longest wait after the first document that exceeded the compiler's bounds. It doubles up to `BACKOFF_MAX`, whatever
/// the interval is.
const COSTLY: Duration = Duration::from_secs(10);
/// Longest wait before the next look for a missing object or another key. Such a look asks only the cluster's API
/// server.
const REFERENCE_MAX: Duration = Duration::from_secs(15);
/// Time for which a server that rejected a key is not asked again with the same key.
pub(super) const REJECTED_KEY_PAUSE: Duration = Duration::from_secs(300);
/// Longest time over which fetches are spread after a restart. A shorter interval takes its place.
const SPREAD_MAX: Duration = Duration::from_secs(60);
/// Shortest time between two looks at published objects if no fetch is due: the time after which the Secrets among them
/// may be read again.
pub(super) const UPKEEP: Duration = Duration::from_secs(60);
/// Longest time between two fetches without a condition: a server may answer a conditional request wrongly for ever.
pub(super) const UNCONDITIONAL: Duration = REST_MAX;

/// Returns the wait until the next fetch: the interval with a jitter of ±10 %.
pub(super) fn after_success(interval: Duration, chance: f64) -> Duration {
    around(interval, chance)
}

/// Returns the wait until the next look at published objects, with a jitter that keeps environments apart.
pub(super) fn upkeep(chance: f64) -> Duration {
    UPKEEP.mul_f64(1.0 + 0.1 * chance)
}

/// Returns the wait after `failures` failures in a row. A ceiling doubles up to its upper bound, and the wait is 20 % to
/// 100 % of it, so that a retry never follows at once. At the upper bound, the wait is the bound ±10 %.
pub(super) fn after_failure(retry: Retry, failures: u32, interval: Duration, chance: f64) -> Duration {
    let (first, most) = match retry {
        Retry::Backoff => (BACKOFF, interval.clamp(BACKOFF_MIN_MAX, BACKOFF_MAX)),
        Retry::Costly => (COSTLY, BACKOFF_MAX),
        Retry::Reference => (BACKOFF, REFERENCE_MAX),
        Retry::After(wait) => return wait.max(BACKOFF) + BACKOFF.mul_f64(chance),
        Retry::AfterEdit => return around(BACKOFF_MAX, chance),
    };
    let ceiling = ceiling(first, most, failures);
    if ceiling < most { jittered(ceiling, chance) } else { after_success(most, chance) }
}

/// Returns the time between a restart and the environment's first fetch. It depends on the UID only, so it is the same
/// after every restart.
pub(super) fn first_fetch_delay(uid: &Uid, interval: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let share = (hasher.finish() >> 32) as u32;
    interval.min(SPREAD_MAX).mul_f64(f64::from(share) / f64::from(u32::MAX))
}

/// Returns the time that a source may fail before the published snapshot counts as stale.
pub(super) fn stale_after(interval: Duration) -> Duration {
    interval.saturating_mul(10).max(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    #[test]
    fn poll_interval_is_jittered_by_tenth() {
        assert_eq!(after_success(INTERVAL, 0.0), Duration::from_secs(27));
        assert_eq!(after_success(INTERVAL, 1.0), Duration::from_secs(33));
    }

    #[test]
    fn wait_after_failures_grows_to_upper_bound() {
        let wait = |failures| after_failure(Retry::Backoff, failures, INTERVAL, 1.0);
        assert_eq!(wait(0), Duration::from_secs(1));
        assert_eq!(wait(3), Duration::from_secs(8));
        assert_eq!(wait(10), after_success(INTERVAL, 1.0));
        assert_eq!(wait(u32::MAX), after_success(INTERVAL, 1.0));
        let often = after_failure(Retry::Backoff, 20, Duration::from_secs(1), 0.5);
        assert_eq!(often, BACKOFF_MIN_MAX);
        let rare = after_failure(Retry::Backoff, 20, Duration::from_secs(86_400), 0.5);
        assert_eq!(rare, BACKOFF_MAX);
        assert!(after_failure(Retry::Backoff, 0, INTERVAL, 0.0) >= Duration::from_millis(200));
    }

    #[test]
    fn costly_failure_waits_longer_than_another_whatever_the_interval_is() {
        let wait = |failures| after_failure(Retry::Costly, failures, Duration::from_secs(1), 1.0);
        assert_eq!((wait(0), wait(3)), (COSTLY, COSTLY * 8));
        assert!(wait(20) >= BACKOFF_MAX && wait(u32::MAX) >= BACKOFF_MAX);
    }

    #[test]
    fn retry_after_of_server_is_respected() {
        let wait = after_failure(Retry::After(Duration::from_secs(77)), 0, INTERVAL, 0.5);
        assert!(wait >= Duration::from_secs(77) && wait < Duration::from_secs(79));
        assert!(after_failure(Retry::After(Duration::ZERO), 0, INTERVAL, 0.0) >= BACKOFF);
    }

    #[test]
    fn first_fetches_after_restart_are_spread() {
        let phases: Vec<Duration> =
            (0..1000).map(|n| first_fetch_delay(&Uid::from(&*format!("uid-{n}")), INTERVAL)).collect();
        assert!(phases.iter().all(|phase| *phase <= INTERVAL));
        for tenth in 0..10 {
            let (low, high) = (INTERVAL * tenth / 10, INTERVAL * (tenth + 1) / 10);
            let count = phases.iter().filter(|phase| **phase >= low && **phase < high).count();
            assert!((50..200).contains(&count), "{count} of 1000 in tenth {tenth}");
        }
    }
}
