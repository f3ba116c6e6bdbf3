//! Memory budgets over all connections: request bodies that arrive in several portions, and built answers that clients
//! have not fetched yet.
//!
//! A request that needs more than the budget has left waits: the rest of its body stays in its socket, or it stays
//! unanswered. The latest waiter continues first, because among many waiters the oldest are abusive or have given up.
//! To end the wait, the budget closes connections: first those whose bytes lie untouched, the longest first, and then
//! those that take long altogether. A client that sends or fetches without pauses is not closed, and neither is one
//! that has sent its whole body and waits for the answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::lock::Lock;
use crate::log;

/// Largest size in bytes of all bodies that arrive in several portions, over all connections. A body that arrived in
/// one portion is answered at once and does not count.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// Largest size in bytes of the built answers that wait to be fetched, over all connections of the data port and the
/// socket. Beyond it, no other answer is begun.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// The same for the admin port, which other pods reach: they must not delay the application's answers.
const MAX_ADMIN_ANSWER_BYTES: usize = 1024 * 1024;

/// Interval between two searches for slow connections while others wait. Rounds are counted instead of time: when the
/// container is throttled, no connection makes progress, and none must be closed for that.
const ROUND: Duration = Duration::from_millis(50);
/// Number of rounds for which bytes may lie untouched.
const STALLED: u64 = 2;
/// Number of rounds for which bytes may be in flight. On loopback, a megabyte takes milliseconds.
const SLOW: u64 = 20;

/// The budgets of the data port and the socket, or of the admin port.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    pub(crate) bodies: Arc<MemoryBudget>,
    pub(crate) answers: Arc<MemoryBudget>,
}

impl InFlight {
    /// Creates the budgets of the data port and the socket.
    pub(crate) fn of_data() -> InFlight {
        InFlight { bodies: MemoryBudget::new(MAX_BODY_BYTES), answers: MemoryBudget::new(MAX_ANSWER_BYTES) }
    }

    /// Creates the budgets of the admin port.
    pub(crate) fn of_admin() -> InFlight {
        InFlight { answers: MemoryBudget::new(MAX_ADMIN_ANSWER_BYTES), ..InFlight::of_data() }
    }
}

/// Bytes in flight of one kind, and the connections that have reserved them.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: usize,
    /// Outside of the lock, because every request reads it.
    used: AtomicUsize,
    reservations: Lock<Reservations>,
}

#[derive(Debug, Default)]
struct Reservations {
    /// Reservations in the order in which their bytes were last touched, without those that are complete.
    by_touch: BTreeMap<u64, Reserved>,
    /// Sequence number of the latest touch or waiter.
    sequence: u64,
    /// Number of bytes of connections that are being closed.
    closing: usize,
    /// Waiters in the order in which they arrived.
    waiting: BTreeMap<u64, Waker>,
    /// Number of rounds so far. Rounds pass only while a request waits.
    round: u64,
    is_round_running: bool,
}

#[derive(Debug)]
struct Reserved {
    bytes: usize,
    began: u64,
    touched: u64,
    task: Option<AbortHandle>,
}

/// The position of a request among the waiters of a budget.
#[derive(Debug, Default)]
pub(crate) struct Ticket(Option<u64>);

impl MemoryBudget {
    /// Creates a budget of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget { limit, used: AtomicUsize::new(0), reservations: Lock::default() })
    }

    fn reservations(&self) -> MutexGuard<'_, Reservations> {
        self.reservations.lock()
    }

    /// True if `bytes` more exceed the limit. An unused budget admits any number.
    fn would_exceed(&self, bytes: usize, closing: usize) -> bool {
        let used = self.used.load(Ordering::Relaxed).saturating_sub(closing);
        used > 0 && used.saturating_add(bytes) > self.limit
    }

    /// True if the budget is used up.
    pub(crate) fn is_used_up(&self) -> bool {
        self.would_exceed(1, 0)
    }

    /// Waits until the budget has `bytes` left, and closes slow connections to free them.
    pub(crate) fn poll_capacity(
        self: &Arc<MemoryBudget>,
        bytes: usize,
        ticket: &mut Ticket,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if !self.would_exceed(bytes, 0) {
            ticket.0 = None;
            return Poll::Ready(());
        }
        let mut reservations = self.reservations();
        let closing = reservations.closing;
        while self.would_exceed(bytes, reservations.closing) && reservations.evict() {}
        let closed = reservations.closing - closing;
        let place = *ticket.0.get_or_insert_with(|| reservations.next());
        reservations.waiting.insert(place, cx.waker().clone());
        if !std::mem::replace(&mut reservations.is_round_running, true) {
            let budget = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(ROUND).await;
                let mut reservations = budget.reservations();
                reservations.round += 1;
                reservations.is_round_running = false;
                drop(reservations);
                budget.wake();
            });
        }
        // Writing a line may block, so no lock is held.
        drop(reservations);
        if closed > 0 {
            log::debug!("closed connections with {closed} bytes in flight to make room");
        }
        Poll::Pending
    }

    /// Wakes all waiters, the latest first.
    fn wake(&self) {
        let waiting = std::mem::take(&mut self.reservations().waiting);
        waiting.into_values().rev().for_each(Waker::wake);
    }

    /// Reserves bytes that a connection keeps in memory, until the result is dropped. `task` serves the connection.
    pub(crate) fn reserve(self: &Arc<MemoryBudget>, bytes: usize, task: Option<AbortHandle>) -> Reservation {
        let mut reservations = self.reservations();
        let round = reservations.round;
        let touch = reservations.add(Reserved { bytes, began: round, touched: round, task });
        self.used.fetch_add(bytes, Ordering::Relaxed);
        drop(reservations);
        Reservation { budget: Arc::clone(self), touch, bytes, is_complete: false }
    }
}

impl Reservations {
    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn add(&mut self, reserved: Reserved) -> u64 {
        let touch = self.next();
        self.by_touch.insert(touch, reserved);
        touch
    }

    /// Closes the slowest connection. False if none has been slow for long enough.
    fn evict(&mut self) -> bool {
        let lasts = |since: u64, rounds: u64| self.round.saturating_sub(since) >= rounds;
        let stalled = self.by_touch.first_key_value().filter(|(_, reserved)| lasts(reserved.touched, STALLED));
        let oldest = || self.by_touch.iter().min_by_key(|(_, reserved)| reserved.began);
        let first = stalled.or_else(|| oldest().filter(|(_, reserved)| lasts(reserved.began, SLOW)));
        let Some(Reserved { bytes, task, .. }) =
            first.map(|(touch, _)| *touch).and_then(|it| self.by_touch.remove(&it))
        else {
            return false;
        };
        self.closing += bytes;
        if let Some(task) = task {
            task.abort();
        }
        true
    }
}

/// Bytes of one connection that count in a budget until the value is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<MemoryBudget>,
    touch: u64,
    bytes: usize,
    /// True if the connection is no longer closed for the bytes. They count all the same.
    is_complete: bool,
}

impl Reservation {
    /// Notes that the client has just sent or fetched some of the bytes.
    pub(crate) fn touch(&mut self) {
        let mut reservations = self.budget.reservations();
        // The entry is gone if its connection is being closed.
        if let Some(reserved) = reservations.by_touch.remove(&self.touch) {
            let touched = reservations.round;
            self.touch = reservations.add(Reserved { touched, ..reserved });
        }
    }

    /// Notes that the client has nothing left to send: from now on, the connection is not closed for the bytes. The
    /// time limit of a request bounds how long they stay.
    pub(crate) fn complete(&mut self) {
        if !self.is_complete {
            // The entry is gone if its connection is being closed.
            self.is_complete = self.budget.reservations().by_touch.remove(&self.touch).is_some();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reservations = self.budget.reservations();
        if !self.is_complete && reservations.by_touch.remove(&self.touch).is_none() {
            reservations.closing = reservations.closing.saturating_sub(self.bytes);
        }
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        let is_awaited = !reservations.waiting.is_empty();
        drop(reservations);
        if is_awaited {
            self.budget.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};

    use tokio::sync::{mpsc, oneshot};
    use tokio::task::JoinHandle;

    use super::*;

    /// Starts a task that holds bytes, and touches them at each message.
    async fn reserving_task(budget: &Arc<MemoryBudget>, bytes: usize) -> (JoinHandle<()>, mpsc::UnboundedSender<()>) {
        let (sender, mut touches) = mpsc::unbounded_channel();
        let (named, name) = oneshot::channel::<AbortHandle>();
        let (reserved, is_reserved) = oneshot::channel();
        let budget = Arc::clone(budget);
        let task = tokio::spawn(async move {
            let mut reservation = budget.reserve(bytes, name.await.ok());
            reserved.send(()).unwrap();
            while touches.recv().await.is_some() {
                reservation.touch();
            }
            pending::<()>().await;
        });
        named.send(task.abort_handle()).unwrap();
        is_reserved.await.unwrap();
        (task, sender)
    }

    /// Waits for the budget, while a reservation is touched again and again.
    async fn wait_for_room(budget: &Arc<MemoryBudget>, bytes: usize, touch: &mpsc::UnboundedSender<()>) {
        let mut ticket = Ticket::default();
        let moving = async {
            while touch.send(()).is_ok() {
                tokio::task::yield_now().await;
            }
            pending::<()>().await;
        };
        tokio::select! {
            () = poll_fn(|cx| budget.poll_capacity(bytes, &mut ticket, cx)) => {}
            () = moving => {}
        }
    }

    #[tokio::test]
    async fn stalled_holder_is_closed_before_an_active_one() {
        let budget = MemoryBudget::new(100);
        let (moves, touch) = reserving_task(&budget, 40).await;
        let (stalls, _silent) = reserving_task(&budget, 50).await;
        wait_for_room(&budget, 10, &touch).await;
        assert!(!stalls.is_finished(), "there was room");
        wait_for_room(&budget, 11, &touch).await;
        assert!(stalls.await.is_err_and(|error| error.is_cancelled()));
        assert!(!moves.is_finished());
        assert_eq!(budget.used.load(Ordering::Relaxed), 40);
        // A connection that makes progress all the time is closed in the end, too.
        wait_for_room(&budget, 61, &touch).await;
        assert!(moves.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!((budget.used.load(Ordering::Relaxed), budget.reservations().closing), (0, 0));
        assert!(budget.reservations().round >= SLOW);
        // A request for more than the whole budget is admitted alone.
        wait_for_room(&budget, 1000, &touch).await;
    }

    #[tokio::test]
    async fn complete_holder_is_not_closed_and_counts_until_its_end() {
        let budget = MemoryBudget::new(100);
        let task = tokio::spawn(pending::<()>());
        let mut complete = budget.reserve(60, Some(task.abort_handle()));
        complete.complete();
        complete.complete();
        let (stalls, _silent) = reserving_task(&budget, 40).await;
        let mut ticket = Ticket::default();
        poll_fn(|cx| budget.poll_capacity(40, &mut ticket, cx)).await;
        assert!(stalls.await.is_err_and(|error| error.is_cancelled()));
        let mut waits = std::pin::pin!(poll_fn(|cx| budget.poll_capacity(41, &mut ticket, cx)));
        let (first, rounds) = (budget.reservations().round, SLOW + 2);
        while budget.reservations().round < first + rounds {
            tokio::select! {
                () = &mut waits => panic!("the bytes of a complete body count"),
                () = tokio::time::sleep(ROUND) => {}
            }
        }
        assert!(!task.is_finished());
        drop(complete);
        waits.await;
        assert_eq!((budget.used.load(Ordering::Relaxed), budget.reservations().closing), (0, 0));
        task.abort();
    }

    #[tokio::test]
    async fn latest_waiter_continues_first() {
        let budget = MemoryBudget::new(10);
        let reservation = budget.reserve(10, None);
        let (sender, mut order) = mpsc::unbounded_channel();
        for number in 0..5 {
            let (budget, sender) = (Arc::clone(&budget), sender.clone());
            tokio::spawn(async move {
                let mut ticket = Ticket::default();
                poll_fn(|cx| budget.poll_capacity(10, &mut ticket, cx)).await;
                let _reservation = budget.reserve(10, None);
                sender.send(number).unwrap();
                tokio::task::yield_now().await;
            });
            tokio::task::yield_now().await;
        }
        drop(reservation);
        for number in (0..5).rev() {
            assert_eq!(order.recv().await, Some(number));
        }
    }
}
