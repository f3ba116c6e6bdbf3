//! Memory budget for documents: bounds the bytes held at one time, from their arrival until they are compiled. A
//! thousand environments that change together take turns, and the process stays within its memory.
//!
//! A reservation precedes the request, for the size that the document had the last time. If the document turns out
//! larger, the reservation grows only by bytes that are free at that moment: a fetch never waits while it holds a
//! reservation. A document that does not fit is dropped, and fetched again with its size known.
//!
//! Small documents have memory of their own while larger ones take the whole budget: whoever sends a document decides how
//! long that takes.
//!
//! Namespaces take turns: each has one request in the common queue, and none while it holds a large reservation. A request
//! that is not large needs no turn while memory is free. So a request waits for the reservations that exist when its
//! namespace joins the queue, and for one of each namespace before it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::{
    memory_queue::{MemoryPermit, MemoryQueue},
    small_document_memory::{SmallDocumentMemory, SmallDocumentPermit},
};

/// Reservation in bytes for a document of unknown size.
const UNKNOWN_SIZE: usize = 256 << 10;
/// Part of the budget from which a reservation is large: a quarter.
const LARGE: usize = 4;
/// Memory for small documents beside the budget, as a part of it: a quarter.
const SMALL_SHARE: usize = 4;
/// Unit of the budget in bytes.
const UNIT: usize = 1 << 10;
/// Maximum wait for the budget before the reconciliation gives up its place among all reconciliations. Reservations made
/// earlier fetch and compile meanwhile. The namespace keeps its place in the queue for memory.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Memory budget for the documents of all environments.
pub(super) struct MemoryBudget {
    queue: MemoryQueue,
    kept: SmallDocumentMemory,
    limit: usize,
    /// Turns of the namespaces that wait, or that hold a large reservation.
    turns: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A reservation in the budget. Dropping it releases its bytes.
#[derive(Debug)]
pub struct Reservation {
    limit: usize,
    held: Mutex<Held>,
    /// Turn of the namespace, if the reservation is large.
    turn: Mutex<Option<OwnedSemaphorePermit>>,
}

/// Memory that a reservation holds.
#[derive(Debug)]
enum Held {
    Budget(MemoryPermit),
    Small(SmallDocumentPermit),
}

impl MemoryBudget {
    /// Creates a budget of `limit` bytes: the maximum size of one document, so that every document fits. Small documents have
    /// a quarter of it in addition.
    pub(super) fn new(limit: usize) -> Self {
        let (queue, kept) = (MemoryQueue::new(units(limit)), SmallDocumentMemory::new(units(limit) / SMALL_SHARE));
        Self { queue, kept, limit, turns: Mutex::default() }
    }

    /// Reserves the `expected` bytes and waits up to [`RESERVE_TIMEOUT`] for them. Returns `None` after that time.
    pub(super) async fn reserve(&self, namespace: &str, expected: Option<usize>) -> Option<Reservation> {
        let wanted = units(expected.unwrap_or(UNKNOWN_SIZE).min(self.limit)).max(1);
        let is_large = wanted >= units(self.limit) / LARGE;
        if !is_large && let Some(held) = self.queue.take(wanted) {
            return Some(self.reservation(Held::Budget(held), None));
        }
        if !is_large && let Some(held) = self.kept.reserve(namespace, wanted) {
            return Some(self.reservation(Held::Small(held), None));
        }
        let deadline = Instant::now() + RESERVE_TIMEOUT;
        let turn = timeout_at(deadline, self.turn(namespace).acquire_owned()).await.ok()?.ok()?;
        let held = self.queue.wait(namespace, wanted, deadline).await?;
        // Otherwise the next large document of the namespace would join the queue while this one holds its memory.
        Some(self.reservation(Held::Budget(held), is_large.then_some(turn)))
    }

    /// True if a part of the budget is free.
    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        self.queue.free() > 0
    }

    fn reservation(&self, held: Held, turn: Option<OwnedSemaphorePermit>) -> Reservation {
        Reservation { limit: self.limit, held: Mutex::new(held), turn: Mutex::new(turn) }
    }

    fn turn(&self, namespace: &str) -> Arc<Semaphore> {
        let mut turns = self.turns.lock();
        // A semaphore that only the map refers to is not in use.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(namespace.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

impl Reservation {
    /// Grows the reservation to `bytes` in all, if necessary.
    ///
    /// # Errors
    /// The budget has too few free bytes. The error holds the number to reserve in the next attempt.
    pub(super) fn grow_to(&self, bytes: usize) -> Result<(), OverBudget> {
        let mut held = self.held.lock();
        let missing = units(bytes.min(self.limit)).saturating_sub(held.units());
        if missing == 0 {
            return Ok(());
        }
        let has_grown = match &mut *held {
            Held::Budget(held) => held.grow(missing),
            Held::Small(held) => held.grow(missing),
        };
        if has_grown { Ok(()) } else { Err(OverBudget { needed: bytes.saturating_mul(2).min(self.limit) }) }
    }
}

impl Reservation {
    /// Releases what is reserved beyond `bytes`.
    pub(super) fn shrink(&self, bytes: usize) {
        let mut held = self.held.lock();
        let surplus = held.units().saturating_sub(units(bytes).max(1));
        match &mut *held {
            Held::Budget(held) => held.shrink(surplus),
            Held::Small(held) => held.shrink(surplus),
        }
        if held.units() < units(self.limit) / LARGE {
            *self.turn.lock() = None;
        }
    }
}

impl Held {
    fn units(&self) -> usize {
        match self {
            Self::Budget(held) => held.units(),
            Self::Small(held) => held.units(),
        }
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
    use futures::FutureExt;

    use super::*;

    const LIMIT: usize = 8 << 20;

    #[tokio::test(start_paused = true)]
    async fn largest_document_takes_whole_budget() {
        let budget = MemoryBudget::new(LIMIT);
        let largest = budget.reserve("shop", Some(usize::MAX)).await.unwrap();
        assert_eq!(largest.grow_to(LIMIT), Ok(()));
        assert!(budget.reserve("shop", Some(LIMIT / 4)).await.is_none(), "it waits, and then gives up");
        drop(largest);
        assert!(budget.reserve("shop", Some(LIMIT)).await.is_some());
    }

    /// Its server declares the largest document, and sends it byte by byte.
    #[tokio::test(start_paused = true)]
    async fn document_that_takes_whole_budget_delays_no_small_document() {
        let budget = MemoryBudget::new(LIMIT);
        let slow = budget.reserve("slow", None).await.unwrap();
        assert_eq!(slow.grow_to(LIMIT), Ok(()));
        let began = tokio::time::Instant::now();
        let small = budget.reserve("shop", None).await.unwrap();
        assert_eq!(small.grow_to(LIMIT / 16), Ok(()));
        small.shrink(LIMIT / 32);
        assert_eq!(small.grow_to(LIMIT / 4), Err(OverBudget { needed: LIMIT / 2 }));
        // A second namespace whose documents are slow takes no more than half.
        let noisy = || budget.reserve("noisy", Some(LIMIT / 64)).now_or_never().flatten();
        let noisy: Vec<Reservation> = std::iter::from_fn(noisy).collect();
        assert!(noisy.len() > 1);
        assert!(budget.reserve("bank", Some(LIMIT / 64)).await.is_some());
        assert_eq!(began.elapsed(), Duration::ZERO, "they do not wait");
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
        assert_eq!(budget.queue.free(), units(LIMIT));
    }

    #[tokio::test]
    async fn reservation_of_smaller_document_returns_the_rest() {
        let budget = MemoryBudget::new(LIMIT);
        let reservation = budget.reserve("shop", Some(LIMIT)).await.unwrap();
        reservation.shrink(LIMIT / 4);
        assert_eq!(budget.queue.free(), units(LIMIT / 4 * 3));
        reservation.shrink(LIMIT);
        assert_eq!(budget.queue.free(), units(LIMIT / 4 * 3), "it never takes more");
    }

    #[tokio::test(start_paused = true)]
    async fn namespace_with_many_large_documents_delays_others_by_one_of_them() {
        const HOLD: Duration = Duration::from_secs(20);
        let budget = Arc::new(MemoryBudget::new(LIMIT));
        let many = (0..32).map(|_| {
            let budget = Arc::clone(&budget);
            tokio::spawn(async move {
                while let Some(_held) = budget.reserve("many", Some(LIMIT)).await {
                    tokio::time::sleep(HOLD).await;
                }
            })
        });
        let many: Vec<_> = many.collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (number, bytes) in [1, LIMIT / 8, LIMIT].into_iter().enumerate() {
            let began = tokio::time::Instant::now();
            assert!(budget.reserve(&format!("one-{number}"), Some(bytes)).await.is_some());
            assert!(began.elapsed() <= HOLD, "{bytes} bytes after {:?}", began.elapsed());
        }
        many.iter().for_each(tokio::task::JoinHandle::abort);
    }

    /// Namespaces have very many large documents, which hold their memory for longer than a request waits, or so that it
    /// becomes free just while the request of another namespace is not in the queue.
    #[tokio::test(start_paused = true)]
    async fn large_document_waits_for_one_of_each_namespace_however_long_they_take() {
        const PAUSE: Duration = Duration::from_millis(1_500);
        for noisy in [1, 2, 4] {
            for hold in [20_000, 61_500, 90_000, 123_000, 316_000].map(Duration::from_millis) {
                let (budget, served) = (Arc::new(MemoryBudget::new(LIMIT)), Arc::new(Mutex::new(0)));
                let many = (0..noisy * 32).map(|number| {
                    let (budget, served) = (Arc::clone(&budget), Arc::clone(&served));
                    tokio::spawn(async move {
                        let namespace = format!("noisy-{}", number % noisy);
                        loop {
                            if let Some(_held) = budget.reserve(&namespace, Some(LIMIT)).await {
                                *served.lock() += 1;
                                tokio::time::sleep(hold).await;
                            } else {
                                tokio::time::sleep(PAUSE).await;
                            }
                        }
                    })
                });
                let many: Vec<_> = many.collect();
                tokio::time::sleep(Duration::from_secs(1)).await;
                let (before, began) = (*served.lock(), Instant::now());
                while budget.reserve("ours", Some(LIMIT)).await.is_none() {
                    assert!(*served.lock() - before <= noisy, "{noisy} namespaces, {hold:?}: {:?}", began.elapsed());
                    tokio::time::sleep(PAUSE).await;
                }
                // One holds its memory at the beginning, and each of the others has one turn.
                assert!(*served.lock() - before < noisy, "{noisy} namespaces, {hold:?}: {}", *served.lock() - before);
                let bound = hold * noisy + PAUSE;
                assert!(began.elapsed() <= bound, "{noisy} namespaces, {hold:?}: {:?}", began.elapsed());
                many.iter().for_each(tokio::task::JoinHandle::abort);
            }
        }
    }

    #[tokio::test]
    async fn small_document_does_not_wait_for_a_large_one_of_its_namespace_while_memory_is_free() {
        let budget = MemoryBudget::new(LIMIT);
        let large = budget.reserve("shop", Some(LIMIT / 2)).await.unwrap();
        let small = budget.reserve("shop", Some(1)).now_or_never();
        assert!(small.flatten().is_some());
        assert!(budget.reserve("shop", Some(LIMIT / 4)).now_or_never().is_none(), "a second large one waits");
        large.shrink(LIMIT / 8);
        assert!(budget.reserve("shop", Some(LIMIT / 4)).now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn small_documents_of_a_namespace_are_held_at_one_time_and_forgotten() {
        let budget = MemoryBudget::new(LIMIT);
        let mut held = Vec::new();
        for number in 0..100 {
            held.push(budget.reserve("many", Some(1)).await.unwrap());
            held.push(budget.reserve(&format!("n{number}"), Some(1)).await.unwrap());
        }
        drop(held);
        drop(budget.reserve("one", Some(1)).await);
        assert!(budget.turns.lock().len() <= 2, "namespaces are not forgotten");
    }
}
