//! An inflated copy of a document, outside of private memory, for clients that do not accept gzip.
//!
//! Inflating a document for each request costs a hundred times more than sending it. The first request of such a client
//! therefore inflates the document once into sealed memory, and all requests send it from there. The copy is given up
//! when nobody has asked for it for a while, and with its document. It is made only if it fits below the memory limit
//! of the container; without it, each answer is inflated while it is sent.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Document;
use super::inflate::Inflater;
use crate::cgroup::free_memory;
use crate::lock::Lock;
use crate::log;
use crate::volume::{Region, Unsealed};

/// Number of copies at a time, over all environments. A copy lasts until the slowest client has received it.
const MAX_COPIES: usize = 2;
/// Time for which an unused copy is kept.
const KEPT: Duration = Duration::from_secs(10);
/// Longest time between two checks of a copy's use and of the free memory.
const CHECK: Duration = Duration::from_secs(1);
/// Memory that stays free below the limit: what connections, bodies and answers take at their bounds. The test
/// `memory` measures 17.4 MiB.
pub(super) const HEADROOM: u64 = 20 << 20;

/// Bounds of all copies.
#[derive(Clone, Debug)]
pub(super) struct CopyLimits {
    places: Arc<Semaphore>,
    /// One permit: the memory in use does not count what a copy in the making has yet to write.
    making: Arc<Semaphore>,
    kept: Duration,
    /// Returns the memory in bytes that is free below the limit, if the limit is known.
    free: fn() -> Option<u64>,
}

impl Default for CopyLimits {
    fn default() -> CopyLimits {
        CopyLimits {
            places: Arc::new(Semaphore::new(MAX_COPIES)),
            making: Arc::new(Semaphore::new(1)),
            kept: KEPT,
            free: free_memory,
        }
    }
}

impl CopyLimits {
    /// Creates bounds for a test.
    #[cfg(test)]
    pub(super) fn with(kept: Duration, free: fn() -> Option<u64>) -> CopyLimits {
        CopyLimits { kept, free, ..CopyLimits::default() }
    }

    /// Number of further copies.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.places.available_permits()
    }

    /// True if `bytes` fit below the limit beside the headroom.
    fn have_room(&self, bytes: u64) -> bool {
        (self.free)().is_some_and(|free| free >= bytes.saturating_add(HEADROOM))
    }
}

/// An inflated document in sealed memory.
#[derive(Debug)]
pub(super) struct InflatedCopy {
    pub(super) bytes: Region,
    #[expect(dead_code, reason = "it is held for as long as the copy exists")]
    place: OwnedSemaphorePermit,
}

/// The copy of a document, if there is one.
#[derive(Debug, Default)]
pub(super) struct CopySlot(Lock<Phase>);

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Absent,
    /// The copy is being made. Holds the tasks that wait for it.
    Making(Vec<Waker>),
    Made {
        copy: Arc<InflatedCopy>,
        used: Instant,
    },
}

impl CopySlot {
    /// Returns the copy, if it is made.
    pub(super) fn made(&self) -> Option<Arc<InflatedCopy>> {
        match &mut *self.0.lock() {
            Phase::Made { copy, used } => {
                *used = Instant::now();
                Some(Arc::clone(copy))
            }
            Phase::Absent | Phase::Making(_) => None,
        }
    }

    /// Waits for the copy. `None` if there is none and none is being made.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Arc<InflatedCopy>>> {
        if let Phase::Making(waiting) = &mut *self.0.lock() {
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            return Poll::Pending;
        }
        Poll::Ready(self.made())
    }

    /// True if there is no copy and none is being made.
    #[cfg(test)]
    pub(super) fn is_absent(&self) -> bool {
        matches!(&*self.0.lock(), Phase::Absent)
    }

    fn set(&self, phase: Phase) {
        let before = std::mem::replace(&mut *self.0.lock(), phase);
        if let Phase::Making(waiting) = before {
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// True if nobody has asked for the copy for this time.
    fn is_unused_for(&self, time: Duration) -> bool {
        match &*self.0.lock() {
            Phase::Made { used, .. } => used.elapsed() >= time,
            Phase::Absent | Phase::Making(_) => true,
        }
    }
}

/// Starts to make a copy of the document, unless there is one, one is being made, or there is no room for one.
pub(super) fn make(document: &Arc<Document>, limits: &CopyLimits) {
    if !matches!(&*document.copy.0.lock(), Phase::Absent) {
        return;
    }
    let Ok(place) = Arc::clone(&limits.places).try_acquire_owned() else { return };
    let Ok(making) = Arc::clone(&limits.making).try_acquire_owned() else { return };
    if !limits.have_room(document.content.length()) {
        return;
    }
    document.copy.set(Phase::Making(Vec::new()));
    tokio::spawn(keep(Arc::clone(document), place, making, limits.clone()));
}

/// Makes the copy, and gives it up when nobody uses it, when memory is short, or when the document is gone.
async fn keep(document: Arc<Document>, place: OwnedSemaphorePermit, making: OwnedSemaphorePermit, limits: CopyLimits) {
    let inflated = inflate(&document).await;
    drop(making);
    match inflated {
        Ok(bytes) => {
            let copy = Arc::new(InflatedCopy { bytes, place });
            document.copy.set(Phase::Made { copy, used: Instant::now() });
        }
        Err(error) => {
            log::debug!("cannot keep an inflated document: {error}; inflating it for each client");
            return document.copy.set(Phase::Absent);
        }
    }
    let weak = Arc::downgrade(&document.copy);
    drop(document);
    loop {
        tokio::time::sleep(limits.kept.min(CHECK)).await;
        let Some(slot) = weak.upgrade() else { return };
        if slot.is_unused_for(limits.kept) || !limits.have_room(0) {
            return slot.set(Phase::Absent);
        }
    }
}

/// Inflates the document into sealed memory. Other tasks run between two portions.
async fn inflate(document: &Document) -> io::Result<Region> {
    let mut memory = Unsealed::new("remora-document")?;
    let (mut inflater, mut length) = (Inflater::default(), 0);
    loop {
        let portion = inflater.next(&document.content).ok_or(io::ErrorKind::InvalidData)?;
        if portion.is_empty() {
            break;
        }
        length += portion.len() as u64;
        memory.write_all(portion)?;
        tokio::task::yield_now().await;
    }
    if length != document.content.length() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    memory.seal()
}
