//! Life of a process of the controller: it is stopped, its machine's clock jumps, its connections break, and it ends.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Poll, Waker},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// Part of a process. Both stop together; the work goes on first, so that only the fence stands in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The reconciliation.
    Work,
    /// The renewal of the lease.
    Renewal,
}

/// A process of the controller.
#[derive(Clone)]
pub(super) struct Life(Arc<Shared>);

struct Shared {
    identity: String,
    /// Start of the simulated time.
    start: Instant,
    condition: Mutex<Condition>,
    leads: Notify,
    pause: Notify,
    end: Notify,
}

#[derive(Default)]
struct Condition {
    has_ended: bool,
    is_work_stopped: bool,
    is_renewal_stopped: bool,
    /// Wakers of the parts that are stopped.
    stopped: Vec<Waker>,
    /// Time at which a clock without the time of stops stands. `None` while it runs.
    stands_at: Option<Duration>,
    /// Time that such a clock has missed.
    missed: Duration,
    /// Time by which the clock jumped.
    jumped: Duration,
    /// True if such a clock is in use, so that the fence does not notice a stop.
    is_unfenced: bool,
    /// True if no request reaches the API server.
    is_partitioned: bool,
    /// True if no request about the Lease reaches the API server, and writes take long.
    cannot_renew: bool,
}

impl Life {
    /// Returns the life of a process, which begins now. The simulated time began at `start`.
    pub(super) fn new(identity: String, start: Instant) -> Self {
        let condition = Mutex::default();
        Self(Arc::new(Shared {
            identity,
            start,
            condition,
            leads: Notify::new(),
            pause: Notify::new(),
            end: Notify::new(),
        }))
    }

    pub(super) fn identity(&self) -> &str {
        &self.0.identity
    }

    fn condition(&self) -> MutexGuard<'_, Condition> {
        self.0.condition.lock().unwrap()
    }

    /// Returns the time of the process's machine since its boot.
    pub(super) fn clock(&self) -> Duration {
        let now = self.0.start.elapsed();
        let condition = self.condition();
        condition.stands_at.unwrap_or(now) + condition.jumped - condition.missed
    }

    /// Lets the clock jump forward, as after a suspension of the machine that nothing else notices.
    pub(super) fn jump(&self, by: Duration) {
        self.condition().jumped += by;
    }

    pub(super) fn has_jumped(&self) -> bool {
        !self.condition().jumped.is_zero()
    }

    /// Stops the process, which does not notice it. If `unfenced`, the clock of its fence stands still as well.
    pub(super) fn stop(&self, unfenced: bool) {
        let now = self.0.start.elapsed();
        let mut condition = self.condition();
        (condition.is_work_stopped, condition.is_renewal_stopped) = (true, true);
        condition.is_unfenced |= unfenced;
        condition.stands_at = unfenced.then_some(now);
        self.0.pause.notify_one();
    }

    /// Lets this part of a stopped process go on.
    pub(super) fn resume(&self, part: Part) {
        let now = self.0.start.elapsed();
        let mut condition = self.condition();
        match part {
            Part::Work => condition.is_work_stopped = false,
            Part::Renewal => condition.is_renewal_stopped = false,
        }
        if let Some(stood) = condition.stands_at.take() {
            condition.missed += now - stood;
        }
        condition.stopped.drain(..).for_each(Waker::wake);
    }

    /// Runs a part of the process, except while it is stopped.
    pub(super) async fn run<T>(&self, part: Part, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            let mut condition = self.condition();
            let is_stopped = match part {
                Part::Work => condition.is_work_stopped,
                Part::Renewal => condition.is_renewal_stopped,
            };
            if is_stopped {
                condition.stopped.push(context.waker().clone());
                return Poll::Pending;
            }
            drop(condition);
            future.as_mut().poll(context)
        })
        .await
    }

    pub(super) fn is_unfenced(&self) -> bool {
        self.condition().is_unfenced
    }

    /// Breaks all connections to the API server for ever.
    pub(super) fn partition(&self) {
        self.condition().is_partitioned = true;
    }

    pub(super) fn is_partitioned(&self) -> bool {
        self.condition().is_partitioned
    }

    /// Lets all renewals of the lease fail, and slows writes down.
    pub(super) fn fail_renewals(&self) {
        self.condition().cannot_renew = true;
    }

    pub(super) fn cannot_renew(&self) -> bool {
        self.condition().cannot_renew
    }

    pub(super) fn has_ended(&self) -> bool {
        self.condition().has_ended
    }

    pub(super) fn end(&self) {
        self.condition().has_ended = true;
        self.0.end.notify_one();
    }

    /// Waits until the process ends.
    pub(super) async fn ended(&self) {
        self.0.end.notified().await;
    }

    /// Waits until the process is stopped.
    pub(super) async fn stopped(&self) {
        self.0.pause.notified().await;
    }

    pub(super) fn lead(&self) {
        self.0.leads.notify_one();
    }

    /// Waits until the process holds the lease.
    pub(super) async fn leads(&self) {
        self.0.leads.notified().await;
    }
}
