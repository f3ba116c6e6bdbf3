//! Keeps the published objects in place while a source or a compilation is slow.

use std::{pin::pin, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{
    desired::{Desired, DesiredSnapshot},
    environment::Environment,
    schedule,
};
use crate::{
    publish::{Destination, Publisher},
    source::fetch::Retry,
};

/// Time between two restorations of the published objects.
const PERIOD: Duration = Duration::from_millis(500);

/// Runs `work`, and restores the desired snapshot's objects at intervals meanwhile. Failed restorations are repeated
/// with a growing back-off, and the first one waits for the end of a publication's back-off. They are not reported: the
/// reconciliation publishes after the work, and reports a failure.
pub(super) async fn published_during<T>(
    work: impl Future<Output = T>,
    environment: &Environment<'_>,
    publisher: &Publisher,
    destination: &Destination,
    desired: &mut Desired,
) -> T {
    let mut work = pin!(work);
    // A core in parts that is not published yet waits for the room step: pods may have been admitted without room.
    let may_be_written = |current: &&DesiredSnapshot| current.is_published || current.snapshot.core_parts() == 0;
    let Some(current) = desired.snapshot.as_ref().filter(may_be_written) else { return work.await };
    let now = Instant::now();
    let mut next = now + PERIOD;
    if let Some(back_off) = desired.backs_off(now) {
        next = next.max(back_off.until);
    }
    let mut failures = desired.failures;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep_until(next) => {}
        }
        let restored =
            publisher.publish(destination, &current.snapshot, current.record.as_ref(), &mut desired.cache).await;
        let wait = if restored.is_ok() {
            failures = 0;
            PERIOD
        } else {
            let interval = environment.spec.refresh.interval.get();
            let wait = schedule::after_failure(Retry::Backoff, failures, interval, fastrand::f64());
            failures = failures.saturating_add(1);
            wait
        };
        next = Instant::now() + wait;
    }
}
