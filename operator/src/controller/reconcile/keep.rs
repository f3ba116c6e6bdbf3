//! Keeps the published objects in place while a source or a compilation is slow.

use std::{pin::pin, time::Duration};

use super::desired::Desired;
use crate::publish::{Owner, Publisher};

/// Time between two restorations of the published objects.
const PERIOD: Duration = Duration::from_millis(500);

/// Runs `work`, and restores the desired snapshot's objects at intervals meanwhile. A failed restoration ends the
/// restorations: it repeats after the work, and is reported then.
pub(super) async fn published_during<T>(
    work: impl Future<Output = T>,
    publisher: &Publisher,
    owner: &Owner,
    desired: &mut Desired,
) -> T {
    let mut work = pin!(work);
    loop {
        match tokio::time::timeout(PERIOD, &mut work).await {
            Ok(done) => return done,
            Err(_) => {
                if let Some(current) = &desired.snapshot {
                    // A failure here repeats after the work and is reported then.
                    let (snapshot, record) = (&current.snapshot, current.record.as_ref());
                    let _ = publisher.publish(owner, snapshot, record, &mut desired.cache).await;
                }
            }
        }
    }
}
