//! Memory for which namespaces wait in the order in which they began to wait.
//!
//! A request that gives up comes back within seconds, because its reconciliation is repeated. Its namespace keeps its place
//! until then. Otherwise the namespace would wait anew behind all others, however often it has waited before, whenever the
//! documents of others take longer than the request's patience.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

/// Time for which a namespace keeps its place without a request. A request that gave up is repeated within 2 s; the rest is
/// for the queue of reconciliations. Memory that becomes free meanwhile stays free.
const PLACE_RETAINED: Duration = Duration::from_secs(10);
/// Longest time until a waiting request sees that a place before it is given up.
const LOOK: Duration = Duration::from_secs(1);

/// Memory for which namespaces wait. The first namespace in the queue gets the next free memory, and nobody overtakes it.
/// Clones share the memory.
#[derive(Clone, Debug)]
pub(super) struct MemoryQueue(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Free units.
    free: usize,
    /// Places of the namespaces, at most one for each.
    places: VecDeque<QueueEntry>,
}

#[derive(Debug)]
struct QueueEntry {
    namespace: Arc<str>,
    claim: Claim,
}

#[derive(Debug)]
enum Claim {
    /// A request that waits for so many units.
    Request { units: usize, sender: oneshot::Sender<MemoryPermit> },
    /// No request. The place is kept until this time.
    Retained { until: Instant },
}

/// Units that are taken. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct MemoryPermit {
    queue: MemoryQueue,
    units: usize,
}

impl MemoryQueue {
    pub(super) fn new(units: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: units, places: VecDeque::new() })))
    }

    /// Takes units. `None` if so many are not free, or a namespace waits.
    pub(super) fn take(&self, units: usize) -> Option<MemoryPermit> {
        let mut permit = MemoryPermit { queue: self.clone(), units: 0 };
        permit.grow(units).then_some(permit)
    }

    /// Waits for units until the deadline. Beyond it, returns `None`, and the namespace keeps its place for [`PLACE_RETAINED`].
    ///
    /// A namespace has one request at a time.
    pub(super) async fn wait(&self, namespace: &str, units: usize, deadline: Instant) -> Option<MemoryPermit> {
        let mut turn = self.join(namespace, units);
        loop {
            self.serve();
            match timeout_at(deadline.min(Instant::now() + LOOK), &mut turn).await {
                Ok(permit) => return permit.ok(),
                Err(_) if Instant::now() < deadline => {}
                Err(_) => {
                    self.leave(namespace);
                    return turn.try_recv().ok();
                }
            }
        }
    }

    /// Number of free units.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.0.lock().free
    }

    /// Adds a request at the place of the namespace, or at the end of the queue.
    fn join(&self, namespace: &str, units: usize) -> oneshot::Receiver<MemoryPermit> {
        let (sender, turn) = oneshot::channel();
        let claim = Claim::Request { units, sender };
        let mut state = self.0.lock();
        state.forget_lost_places();
        match state.place(namespace) {
            Some(place) => place.claim = claim,
            None => state.places.push_back(QueueEntry { namespace: namespace.into(), claim }),
        }
        turn
    }

    /// Removes the request of a namespace, and keeps its place.
    fn leave(&self, namespace: &str) {
        if let Some(place) = self.0.lock().place(namespace) {
            place.claim = Claim::Retained { until: Instant::now() + PLACE_RETAINED };
        }
    }

    /// Gives free units to the first requests.
    fn serve(&self) {
        loop {
            let next = self.0.lock().next();
            let Some((sender, units)) = next else { return };
            // A request that ended just now gives its units back.
            drop(sender.send(MemoryPermit { queue: self.clone(), units }));
        }
    }
}

impl State {
    fn place(&mut self, namespace: &str) -> Option<&mut QueueEntry> {
        self.places.iter_mut().find(|place| &*place.namespace == namespace)
    }

    fn forget_lost_places(&mut self) {
        let now = Instant::now();
        self.places.retain(|place| match &place.claim {
            Claim::Request { sender, .. } => !sender.is_closed(),
            Claim::Retained { until } => now < *until,
        });
    }

    /// Takes the units of the first request, if they are free.
    fn next(&mut self) -> Option<(oneshot::Sender<MemoryPermit>, usize)> {
        self.forget_lost_places();
        let is_served = |place: &QueueEntry| matches!(place.claim, Claim::Request { units, .. } if units <= self.free);
        let place = if self.places.front().is_some_and(is_served) { self.places.pop_front() } else { None };
        let Claim::Request { units, sender } = place?.claim else { return None };
        self.free -= units;
        Some((sender, units))
    }
}

impl MemoryPermit {
    /// Number of units.
    pub(super) fn units(&self) -> usize {
        self.units
    }

    /// Takes more units. Returns false, and takes none, if so many are not free, or a namespace waits.
    pub(super) fn grow(&mut self, more: usize) -> bool {
        let mut state = self.queue.0.lock();
        state.forget_lost_places();
        if !state.places.is_empty() || state.free < more {
            return false;
        }
        state.free -= more;
        self.units += more;
        true
    }

    /// Gives units back.
    pub(super) fn shrink(&mut self, less: usize) {
        let less = less.min(self.units);
        self.units -= less;
        self.queue.0.lock().free += less;
        self.queue.serve();
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.shrink(self.units);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Patience of each request.
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn wait(queue: &MemoryQueue, namespace: &str, units: usize) -> Option<MemoryPermit> {
        queue.wait(namespace, units, Instant::now() + PATIENCE).await
    }

    #[tokio::test(start_paused = true)]
    async fn namespace_that_gives_up_and_comes_back_keeps_its_place() {
        let queue = MemoryQueue::new(10);
        let held = queue.take(6).unwrap();
        assert!(wait(&queue, "first", 10).await.is_none());
        let mut second = Box::pin(wait(&queue, "second", 1));
        assert!(second.as_mut().now_or_never().is_none());
        drop(held);
        // The memory that became free stays free for the first namespace.
        assert!(queue.take(1).is_none() && second.as_mut().now_or_never().is_none());
        tokio::time::sleep(PLACE_RETAINED / 2).await;
        let first = wait(&queue, "first", 10).now_or_never().flatten().expect("it has lost its place");
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn namespace_that_does_not_come_back_loses_its_place() {
        let queue = MemoryQueue::new(10);
        let held = queue.take(10).unwrap();
        assert!(wait(&queue, "gone", 10).await.is_none());
        drop(held);
        let began = Instant::now();
        assert!(wait(&queue, "other", 1).await.is_some());
        assert!(began.elapsed() <= PLACE_RETAINED + LOOK, "{:?}", began.elapsed());
        let first = queue.take(9).unwrap();
        assert!(queue.0.lock().places.is_empty(), "places are forgotten");
        drop(first);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_overtakes_a_namespace_that_waits() {
        let queue = MemoryQueue::new(10);
        let mut held = queue.take(1).unwrap();
        let mut large = Box::pin(wait(&queue, "large", 10));
        assert!(large.as_mut().now_or_never().is_none());
        assert!(queue.take(1).is_none() && !held.grow(1), "small requests overtake it");
        let mut small = Box::pin(wait(&queue, "small", 1));
        assert!(small.as_mut().now_or_never().is_none());
        held.shrink(1);
        let large = large.now_or_never().flatten().unwrap();
        drop(large);
        assert!(small.now_or_never().flatten().is_some());
        assert_eq!(queue.free(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_is_dropped_leaves_the_queue() {
        let queue = MemoryQueue::new(10);
        let held = queue.take(10).unwrap();
        for number in 0..1_000 {
            assert!(wait(&queue, &format!("n{number}"), 10).now_or_never().is_none());
        }
        assert!(queue.0.lock().places.len() <= 1);
        drop(held);
        // The units go to a request that is dropped before it takes them.
        let mut waiting = Box::pin(wait(&queue, "shop", 10));
        let held = queue.take(10).unwrap();
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(held);
        assert_eq!(queue.free(), 0);
        drop(waiting);
        assert_eq!(queue.free(), 10);
    }
}
