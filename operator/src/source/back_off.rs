//! Schedules after failures, and their back-off: a ceiling that doubles, and a jitter that keeps clients of one server
//! apart. Pure.

use std::time::Duration;

/// Schedule of the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Soon, then with exponential back-off.
    Backoff,
    /// After a longer first wait, then with exponential back-off, however short the refresh interval is: an attempt
    /// costs much.
    Costly,
    /// Soon: an attempt reads from the cluster's API server only, because an object is at fault, or the server rejected the
    /// key that an object has.
    Reference,
    /// No earlier than after this duration.
    After(Duration),
    /// After the object changes; in any case after about 300 s.
    AfterEdit,
}

/// Returns the ceiling of the wait after `failures` further failures in a row: `first`, doubled by each of them up to
/// `most`.
pub(crate) fn ceiling(first: Duration, most: Duration, failures: u32) -> Duration {
    first.saturating_mul(1_u32 << failures.min(16)).min(most)
}

/// Largest part by which a regular pause is shorter or longer than its mean.
pub(crate) const JITTER: f64 = 0.1;

/// Returns the duration with a jitter of at most [`JITTER`]. `chance` is a number from 0 to 1.
pub(crate) fn around(duration: Duration, chance: f64) -> Duration {
    duration.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance)
}

/// Returns 20 % to 100 % of the ceiling, so that a retry never follows at once. `chance` is a number from 0 to 1.
pub(crate) fn jittered(ceiling: Duration, chance: f64) -> Duration {
    ceiling.mul_f64(0.2 + 0.8 * chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceiling_doubles_up_to_its_bound() {
        let (first, most) = (Duration::from_secs(1), Duration::from_secs(60));
        let ceilings: Vec<u64> = (0..8).map(|failures| ceiling(first, most, failures).as_secs()).collect();
        assert_eq!(ceilings, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(ceiling(first, most, u32::MAX), most);
    }

    #[test]
    fn jittered_wait_is_never_zero_and_never_beyond_ceiling() {
        assert_eq!(jittered(Duration::from_secs(10), 0.0), Duration::from_secs(2));
        assert_eq!(jittered(Duration::from_secs(10), 1.0), Duration::from_secs(10));
    }
}
