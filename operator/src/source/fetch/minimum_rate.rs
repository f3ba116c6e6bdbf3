//! Minimum rate at which a document arrives. Pure.
//!
//! A fetch occupies a place among all fetches and memory for its document, and its server decides how fast the document
//! arrives. Two rates bound this time. Both count decompressed bytes, so a server that compresses its answers may be on a
//! slower link.
//!
//! ```text
//! time  ──┬───────────────┬──────── grace ────────┐
//!         start           4 KiB arrive            deadline: moves by the time that 4 KiB take at the rate,
//!                                                 to at most one grace from now
//! ```
//!
//! So a document of S bytes arrives within grace + S / rate, and a server may pause for one grace.

use std::{fmt, time::Duration};

use tokio::time::Instant;

/// Longest silence of a server whose answer is expected, before its first byte and within it.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Rate of a page, from the end of its head. 64 kbit/s is less than any link has on which a cluster pulls its images.
/// Sixteen fetches at a time of compressed documents share 200 kbit/s.
const OF_PAGE: MinimumRate = MinimumRate { kib_per_second: 8, grace: SILENCE_MAX };

/// Rate of a whole document, from its first request. The grace is the default of `spec.refresh.timeout`, so the rate
/// concerns only environments with a longer timeout. They get 4 s more for each MiB: 316 s for 64 MiB.
const OF_DOCUMENT: MinimumRate = MinimumRate { kib_per_second: 256, grace: Duration::from_secs(60) };

/// Minimum rate, and the time for which a server may fall behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinimumRate {
    kib_per_second: u32,
    grace: Duration,
}

impl fmt::Display for MinimumRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kib_per_second, grace } = self;
        write!(f, "{kib_per_second} KiB a second for {} s", grace.as_secs())
    }
}

impl MinimumRate {
    /// Returns the time that these bytes take at the rate.
    fn time_for(self, bytes: usize) -> Duration {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let bytes_per_second = u64::from(self.kib_per_second) << 10;
        Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / bytes_per_second)
    }
}

/// Deadline that arriving bytes move.
#[derive(Clone, Copy, Debug)]
struct Meter {
    rate: MinimumRate,
    deadline: Instant,
}

impl Meter {
    fn start(rate: MinimumRate, now: Instant) -> Self {
        Self { rate, deadline: now + rate.grace }
    }

    fn arrived(&mut self, bytes: usize, now: Instant) {
        let earned = self.rate.time_for(bytes).min(self.rate.grace);
        self.deadline = (self.deadline + earned).min(now + self.rate.grace);
    }
}

/// Progress of a document that arrives page by page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    page: Meter,
    document: Meter,
}

impl Progress {
    /// Starts with the first request for the document.
    pub(super) fn start(now: Instant) -> Self {
        Self { page: Meter::start(OF_PAGE, now), document: Meter::start(OF_DOCUMENT, now) }
    }

    /// Starts the body of a page. The client bounds the wait for its head by [`SILENCE_MAX`].
    pub(super) fn start_page(&mut self, now: Instant) {
        self.page = Meter::start(OF_PAGE, now);
    }

    /// Counts bytes of the document.
    pub(super) fn arrived(&mut self, bytes: usize, now: Instant) {
        self.page.arrived(bytes, now);
        self.document.arrived(bytes, now);
    }

    /// Returns the deadline of the next head, and the rate that the server misses then.
    pub(super) fn head_deadline(&self) -> (Instant, MinimumRate) {
        (self.document.deadline, OF_DOCUMENT)
    }

    /// Returns the deadline of the next bytes of a page, and the rate that the server misses then.
    pub(super) fn deadline(&self) -> (Instant, MinimumRate) {
        let first = if self.page.deadline <= self.document.deadline { self.page } else { self.document };
        (first.deadline, first.rate)
    }

    /// Returns the rate that a server misses which sends nothing for [`SILENCE_MAX`].
    pub(super) fn of_silence() -> MinimumRate {
        OF_PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Returns the time at which a document of so many bytes is refused whose server sends at this rate, in pieces of a
    /// second. `None` if it arrives.
    fn refused_after(bytes: usize, bytes_per_second: usize) -> Option<Duration> {
        let began = Instant::now();
        let (mut progress, mut now, mut left) = (Progress::start(began), began, bytes);
        while left > 0 {
            now += Duration::from_secs(1);
            if now > progress.deadline().0 {
                return Some(progress.deadline().0 - began);
            }
            progress.arrived(left.min(bytes_per_second), now);
            left = left.saturating_sub(bytes_per_second);
        }
        None
    }

    #[test]
    fn drip_is_refused_after_grace_whatever_the_size() {
        for bytes in [100, 300 << 10, 64 * MIB] {
            let after = refused_after(bytes, 1).unwrap();
            assert!(after < SILENCE_MAX + Duration::from_secs(1), "{bytes} bytes after {after:?}");
        }
    }

    #[test]
    fn document_at_rate_below_minimum_is_refused_within_bound_of_its_size() {
        for (bytes, rate, bound) in [(600 << 10, 6 << 10, 90), (16 * MIB, 100 << 10, 124), (64 * MIB, 200 << 10, 316)] {
            let after = refused_after(bytes, rate).expect("it is below the rate");
            assert!(after <= Duration::from_secs(bound), "{bytes} bytes after {after:?}");
        }
        // A server that sends as little as it may: first most of the document, then the minimum.
        let now = Instant::now();
        let mut progress = Progress::start(now);
        progress.arrived(63 * MIB, now);
        assert_eq!(progress.deadline(), (now + SILENCE_MAX, OF_PAGE));
        assert_eq!(progress.head_deadline(), (now + OF_DOCUMENT.grace, OF_DOCUMENT), "a fast part is no credit");
    }

    #[test]
    fn honest_slow_links_are_not_refused() {
        // Small documents on a slow link, and large ones that fit the default timeout at a steady rate.
        for (bytes, rate) in [(30 << 10, 2 << 10), (300 << 10, 6 << 10), (MIB, 18 << 10), (64 * MIB, 64 * MIB / 59)] {
            assert_eq!(refused_after(bytes, rate), None, "{bytes} bytes at {rate} a second");
        }
        assert_eq!(refused_after(16 * MIB, 140 << 10), None, "with a longer timeout");
        assert_eq!(refused_after(64 * MIB, 256 << 10), None, "with a longer timeout");
    }

    #[test]
    fn pages_share_rate_of_document_and_have_own_rate_each() {
        let began = Instant::now();
        let mut progress = Progress::start(began);
        // Small pages whose heads take ten seconds each.
        for number in 1..=5 {
            let now = began + Duration::from_secs(10) * number;
            assert!(now < progress.head_deadline().0);
            progress.start_page(now);
            let (deadline, rate) = progress.deadline();
            assert_eq!(rate, if number < 5 { OF_PAGE } else { OF_DOCUMENT });
            assert!(deadline <= now + SILENCE_MAX);
            progress.arrived(10, now);
        }
        assert!(progress.head_deadline().0 < began + OF_DOCUMENT.grace + Duration::from_secs(1));
    }
}
