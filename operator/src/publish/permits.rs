//! Permits for objects that are in memory as a whole while they are read or written.

use crate::fair_semaphore::{FairSemaphore, Permit};

/// Number of snapshots that are read from the cluster at a time. An object is in memory before its size is known and its
/// memory can be reserved.
const READS: usize = 1;
/// Number of objects that are written to the cluster at a time. An object of 1 MB takes three to four times as much memory
/// while it is written: its bytes, their text, and the buffer of the connection.
const WRITES: usize = 16;

/// Permits for reads and writes, which several publishers may share. Namespaces take turns with the reads, and a namespace
/// has at most half of the writes.
#[derive(Clone, Debug)]
pub struct Permits {
    reads: FairSemaphore,
    writes: FairSemaphore,
}

impl Default for Permits {
    fn default() -> Self {
        Self { reads: FairSemaphore::new(READS), writes: FairSemaphore::sparing(WRITES) }
    }
}

impl Permits {
    /// Waits until a snapshot of the namespace may be read.
    pub(super) async fn read(&self, namespace: &str) -> Permit {
        self.reads.acquire(namespace).await
    }

    /// Waits until an object of the namespace may be written.
    pub(super) async fn write(&self, namespace: &str) -> Permit {
        self.writes.acquire(namespace).await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn namespace_has_at_most_half_of_writes() {
        let permits = Permits::default();
        let held: Vec<Permit> = std::iter::from_fn(|| permits.write("many").now_or_never()).collect();
        assert_eq!(held.len(), WRITES / 2);
        assert!(permits.write("other").now_or_never().is_some());
    }
}
