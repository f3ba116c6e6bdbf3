//! When a source is asked again. Pure: chance comes in as a number from 0 to 1.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use crate::source::fetch::Retry;

/// The first wait after a failure, at most; it doubles.
const BACKOFF: Duration = Duration::from_secs(1);
/// What a failing source waits at most: its interval within these bounds, so that it is not asked more often than a good one.
const BACKOFF_MAX: Duration = Duration::from_secs(300);
const BACKOFF_MIN_MAX: Duration = Duration::from_secs(10);
/// The first wait after a document was too much for the compiler, at most; it doubles up to the same bound for all intervals.
const COSTLY: Duration = Duration::from_secs(10);
/// How often an object that is missing, or a key that was refused, is looked for: our own API server is asked, nobody else.
const REFERENCE_MAX: Duration = Duration::from_secs(15);
/// How long a server that refused a key is left alone, while the key is the same.
pub(super) const REFUSED: Duration = Duration::from_secs(300);
/// After a restart, fetches are spread over this time, or over their interval if it is shorter.
const SPREAD_MAX: Duration = Duration::from_secs(60);
/// A source is fetched whole this often, as a condition may hide a change for ever.
pub(super) const UNCONDITIONAL: Duration = Duration::from_secs(600);

/// The interval, a tenth more or less.
pub(super) fn after_success(interval: Duration, chance: f64) -> Duration {
    interval.mul_f64(0.9 + 0.2 * chance)
}

/// Longer with every failure in a row, with full jitter above a floor that keeps anything from spinning.
pub(super) fn after_failure(retry: Retry, failures: u32, interval: Duration, chance: f64) -> Duration {
    let (first, most) = match retry {
        Retry::Backoff => (BACKOFF, interval.clamp(BACKOFF_MIN_MAX, BACKOFF_MAX)),
        Retry::Costly => (COSTLY, BACKOFF_MAX),
        Retry::Reference | Retry::Slow => (BACKOFF, REFERENCE_MAX),
        Retry::After(wait) => return wait.max(BACKOFF) + BACKOFF.mul_f64(chance),
        Retry::Edited => return BACKOFF_MAX.mul_f64(0.9 + 0.2 * chance),
    };
    let ceiling = first.saturating_mul(1_u32 << failures.min(16));
    if ceiling < most { ceiling.mul_f64(0.2 + 0.8 * chance) } else { after_success(most, chance) }
}

/// Where in its interval an environment has its turn after a restart: always the same for the same environment.
pub(super) fn phase(uid: &str, interval: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let share = (hasher.finish() >> 32) as u32;
    interval.min(SPREAD_MAX).mul_f64(f64::from(share) / f64::from(u32::MAX))
}

/// How long a source may fail before what is published is called stale.
pub(super) fn stale_after(interval: Duration) -> Duration {
    interval.saturating_mul(10).max(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    #[test]
    fn polls_are_jittered_by_a_tenth() {
        assert_eq!(after_success(INTERVAL, 0.0), Duration::from_secs(27));
        assert_eq!(after_success(INTERVAL, 1.0), Duration::from_secs(33));
    }

    #[test]
    fn failures_wait_ever_longer_but_not_for_ever() {
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
    fn what_a_server_asks_for_is_honoured() {
        let wait = after_failure(Retry::After(Duration::from_secs(77)), 0, INTERVAL, 0.5);
        assert!(wait >= Duration::from_secs(77) && wait < Duration::from_secs(79));
        assert!(after_failure(Retry::After(Duration::ZERO), 0, INTERVAL, 0.0) >= BACKOFF);
    }

    #[test]
    fn environments_are_spread_after_a_restart() {
        let phases: Vec<Duration> = (0..1000).map(|n| phase(&format!("uid-{n}"), INTERVAL)).collect();
        assert!(phases.iter().all(|phase| *phase <= INTERVAL));
        for tenth in 0..10 {
            let (low, high) = (INTERVAL * tenth / 10, INTERVAL * (tenth + 1) / 10);
            let count = phases.iter().filter(|phase| **phase >= low && **phase < high).count();
            assert!((50..200).contains(&count), "{count} of 1000 in tenth {tenth}");
        }
    }
}
