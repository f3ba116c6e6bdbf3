//! Pace of requests: bounds how many run at a time, and how often one begins.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::fair_semaphore::{FairSemaphore, Permit};

/// Permits for requests of one kind, which namespaces share evenly.
#[derive(Debug)]
pub(super) struct Pace {
    permits: FairSemaphore,
    gap: Duration,
    /// Earliest beginning of the next request.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// Creates this many permits, of which one is given every `gap`.
    pub(super) fn new(permits: usize, gap: Duration) -> Self {
        Self { permits: FairSemaphore::new(permits), gap, next: Mutex::default() }
    }

    /// Waits until a request of the namespace may begin. The request holds the permit until it ends.
    pub(super) async fn acquire(&self, namespace: &str) -> Permit {
        let permit = self.permits.acquire(namespace).await;
        let begin = {
            let mut next = self.next.lock();
            let now = Instant::now();
            let begin = next.map_or(now, |next| next.max(now));
            *next = Some(begin + self.gap);
            begin
        };
        sleep_until(begin).await;
        permit
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_begin_with_gap_and_within_permits() {
        let (pace, running, most) = (Pace::new(3, Duration::from_millis(10)), AtomicUsize::new(0), AtomicUsize::new(0));
        let began = Instant::now();
        let request = async || {
            let _permit = pace.acquire("shop").await;
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            running.fetch_sub(1, Ordering::SeqCst);
        };
        join_all((0..9).map(|_| request())).await;
        assert_eq!(most.load(Ordering::SeqCst), 3);
        assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());

        let began = Instant::now();
        for _ in 0..10 {
            drop(pace.acquire("shop").await);
        }
        assert!(began.elapsed() >= Duration::from_millis(90), "{:?}", began.elapsed());
    }
}
