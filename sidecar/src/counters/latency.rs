//! Histogram of the time that answers take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of buckets with an upper bound: 1 µs, and each twice the one before, up to 1.05 s.
const BUCKETS: usize = 21;

/// Number of answers by the time that they took. Bucket `n` has those below 2ⁿ µs that no earlier bucket has; the last
/// one has all others.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    buckets: [AtomicU64; BUCKETS + 1],
    nanoseconds: AtomicU64,
}

/// The histogram at one moment, as Prometheus counts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cumulative {
    /// Upper bound of each bucket in seconds, and the number of answers below it.
    pub(crate) buckets: Vec<(f64, u64)>,
    /// Number of all answers.
    pub(crate) count: u64,
    /// Sum of all times in seconds.
    pub(crate) sum: f64,
}

impl Latency {
    /// Counts an answer. Only one thread answers, so no answer is lost.
    pub(crate) fn count(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get(bucket.min(BUCKETS)) {
            add(bucket, 1);
        }
        add(&self.nanoseconds, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Reads the histogram.
    pub(crate) fn cumulative(&self) -> Cumulative {
        let mut count = 0;
        let counts = self.buckets.iter().map(|bucket| {
            count += bucket.load(Ordering::Relaxed);
            count
        });
        let counts: Vec<u64> = counts.collect();
        let bounds = (0..BUCKETS).map(|bucket| (1_u64 << bucket) as f64 / 1e6);
        Cumulative {
            buckets: bounds.zip(counts).collect(),
            count,
            sum: self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9,
        }
    }
}

/// Adds to a counter without the price of an atomic addition.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_counted_in_bucket_of_its_time() {
        let latency = Latency::default();
        for micros in [0, 1, 2, 3, 1000, 1_048_575, 1_048_576, 10_000_000] {
            latency.count(Duration::from_micros(micros));
        }
        let Cumulative { buckets, count, sum } = latency.cumulative();
        let below = |seconds: f64| buckets.iter().find(|(bound, _)| *bound == seconds).unwrap().1;
        assert_eq!((below(0.000_001), below(0.000_002), below(0.000_004)), (1, 2, 4));
        assert_eq!((below(0.000_512), below(0.001_024), below(1.048_576)), (4, 5, 6));
        assert_eq!((buckets.len(), count), (BUCKETS, 8));
        assert!((sum - 12.098_157).abs() < 1e-9, "{sum}");
    }
}
