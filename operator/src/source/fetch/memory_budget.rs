//! Memory budget for documents: bounds the bytes held at one time, from their arrival until they are compiled. A
//! thousand environments that change together take turns, and the process stays within its memory.
//!
//! A reservation precedes the request, for the size that the document had the last time. If the document turns out
//! larger, the reservation grows only by bytes that are free at that moment: a fetch never waits while it holds a
//! reservation. A document that does not fit is dropped, and fetched again with its size known.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Reservation in bytes for a document of unknown size.
const UNKNOWN_SIZE: usize = 256 << 10;
/// Maximum number of reservations of one namespace at one time, from before the request until the document is compiled.
/// The controller runs more reconciliations than this, so one namespace cannot delay the others.
const DOCUMENTS_PER_NAMESPACE: usize = 32;
/// Unit of the budget in bytes.
const UNIT: usize = 1 << 10;
/// Maximum wait for the budget before the reconciliation gives up its place. Reservations made earlier fetch and
/// compile meanwhile.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Memory budget for the documents of all environments.
pub(super) struct MemoryBudget {
    free: Arc<Semaphore>,
    limit: usize,
    namespaces: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A reservation in the budget. Dropping it releases its bytes.
#[derive(Debug)]
pub struct Reservation {
    free: Arc<Semaphore>,
    limit: usize,
    held: Mutex<OwnedSemaphorePermit>,
    _permit: OwnedSemaphorePermit,
}

impl MemoryBudget {
    /// Creates a budget of `limit` bytes: the maximum size of one document, so that every document fits.
    pub(super) fn new(limit: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(units(limit))), limit, namespaces: Mutex::default() }
    }

    /// Reserves the `expected` bytes and waits up to [`RESERVE_TIMEOUT`] for them. Returns `None` after that time, or at once
    /// if the namespace already has [`DOCUMENTS_PER_NAMESPACE`] reservations.
    pub(super) async fn reserve(&self, namespace: &str, expected: Option<usize>) -> Option<Reservation> {
        let permit = self.permits(namespace).try_acquire_owned().ok()?;
        let wanted = units(expected.unwrap_or(UNKNOWN_SIZE).min(self.limit)).max(1);
        // The semaphore serves the oldest request first, so a large one does not starve.
        let taken = Arc::clone(&self.free).acquire_many_owned(u32::try_from(wanted).unwrap_or(u32::MAX));
        let held = tokio::time::timeout(RESERVE_TIMEOUT, taken).await.ok()?.ok()?;
        Some(Reservation { free: Arc::clone(&self.free), limit: self.limit, held: Mutex::new(held), _permit: permit })
    }

    fn permits(&self, namespace: &str) -> Arc<Semaphore> {
        let mut namespaces = self.namespaces.lock();
        // A semaphore that only the map refers to has no permits in use.
        namespaces.retain(|_, permits| Arc::strong_count(permits) > 1);
        let permits = || Arc::new(Semaphore::new(DOCUMENTS_PER_NAMESPACE));
        Arc::clone(namespaces.entry(namespace.to_owned()).or_insert_with(permits))
    }
}

impl Reservation {
    /// Grows the reservation to `bytes` in all, if necessary.
    ///
    /// # Errors
    /// The budget has too few free bytes. The error holds the number to reserve in the next attempt.
    pub(super) fn grow_to(&self, bytes: usize) -> Result<(), OverBudget> {
        let mut held = self.held.lock();
        let missing = units(bytes.min(self.limit)).saturating_sub(held.num_permits());
        if missing == 0 {
            return Ok(());
        }
        let more = Arc::clone(&self.free).try_acquire_many_owned(u32::try_from(missing).unwrap_or(u32::MAX));
        match more {
            Ok(more) => held.merge(more),
            Err(_) => return Err(OverBudget { needed: bytes.saturating_mul(2).min(self.limit) }),
        }
        Ok(())
    }
}

impl Reservation {
    /// Releases what is reserved beyond `bytes`.
    pub(super) fn shrink(&self, bytes: usize) {
        let mut held = self.held.lock();
        let surplus = held.num_permits().saturating_sub(units(bytes).max(1));
        drop(held.split(surplus));
    }
}

/// Error: the budget has too few free bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverBudget {
    /// Number of bytes to reserve in the next attempt.
    pub(super) needed: usize,
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 8 << 20;

    #[tokio::test(start_paused = true)]
    async fn largest_document_takes_whole_budget() {
        let budget = MemoryBudget::new(LIMIT);
        let largest = budget.reserve("shop", Some(usize::MAX)).await.unwrap();
        assert_eq!(largest.grow_to(LIMIT), Ok(()));
        assert!(budget.reserve("shop", Some(1)).await.is_none(), "it waits, and then gives up");
        drop(largest);
        assert!(budget.reserve("shop", Some(LIMIT)).await.is_some());
    }

    #[tokio::test]
    async fn growing_reservation_takes_free_memory_without_waiting() {
        let budget = MemoryBudget::new(LIMIT);
        let one = budget.reserve("shop", None).await.unwrap();
        let other = budget.reserve("shop", None).await.unwrap();
        assert_eq!(one.grow_to(LIMIT / 2), Ok(()));
        assert_eq!(one.grow_to(1), Ok(()), "it is not asked for twice");
        assert_eq!(other.grow_to(LIMIT / 4), Ok(()));
        assert_eq!(other.grow_to(LIMIT / 4 * 3), Err(OverBudget { needed: LIMIT }));
        assert_eq!(other.grow_to(LIMIT / 2), Ok(()), "what it has it keeps");
        drop(one);
        assert_eq!(other.grow_to(LIMIT / 4 * 3), Ok(()));
        drop(other);
        assert_eq!(budget.free.available_permits(), units(LIMIT));
    }

    #[tokio::test]
    async fn reservation_of_smaller_document_returns_the_rest() {
        let budget = MemoryBudget::new(LIMIT);
        let reservation = budget.reserve("shop", Some(LIMIT)).await.unwrap();
        reservation.shrink(LIMIT / 4);
        assert_eq!(budget.free.available_permits(), units(LIMIT / 4 * 3));
        reservation.shrink(LIMIT);
        assert_eq!(budget.free.available_permits(), units(LIMIT / 4 * 3), "it never takes more");
    }

    #[tokio::test]
    async fn namespace_with_many_documents_leaves_places_to_others() {
        let budget = MemoryBudget::new(LIMIT);
        let mut held = Vec::new();
        for _ in 0..DOCUMENTS_PER_NAMESPACE {
            held.push(budget.reserve("many", Some(1)).await.unwrap());
        }
        assert!(budget.reserve("many", Some(1)).await.is_none());
        assert!(budget.reserve("one", Some(1)).await.is_some());
        held.pop();
        assert!(budget.reserve("many", Some(1)).await.is_some());
        drop(held);
        drop(budget.reserve("one", Some(1)).await);
        assert!(budget.namespaces.lock().len() <= 2, "namespaces are not forgotten");
    }
}
