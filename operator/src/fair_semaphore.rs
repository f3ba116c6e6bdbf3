//! A semaphore whose permits namespaces share evenly while they wait.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant};

/// Time for which a namespace without permits and without waiting tasks keeps its turn. A task that gave up waiting is
/// repeated within seconds, and would else wait behind all others again, however often it has waited before.
const TURN_RETAINED: Duration = Duration::from_secs(10);

/// A semaphore. A free permit goes to the waiting namespace that has the fewest permits; among equals, to the one that
/// has waited longest for a turn. So a namespace waits for the end of one task, however many another one has waiting,
/// and however long those take. Clones share the permits.
///
/// A *sparing* semaphore also keeps permits free for namespaces that have none: a namespace gets a permit only while more
/// are free than it has. So one namespace has at most half of the permits, a second one a quarter, a third one an eighth.
#[derive(Clone, Debug)]
pub(crate) struct FairSemaphore(Arc<Mutex<State>>);

/// A permit of a namespace. Dropping it gives the permit to the next task.
#[derive(Debug)]
pub(crate) struct Permit {
    state: Arc<Mutex<State>>,
    namespace: Arc<str>,
}

#[derive(Debug)]
struct State {
    free: usize,
    is_sparing: bool,
    /// Namespaces with permits or waiting tasks, or that had some a short time ago.
    namespaces: HashMap<Arc<str>, Share>,
    /// Number of turns so far.
    turns: u64,
}

/// Permits and waiting tasks of a namespace.
#[derive(Debug, Default)]
struct Share {
    permits: usize,
    waiting: VecDeque<oneshot::Sender<Permit>>,
    /// Number of the last turn, or of the turn at which the namespace arrived.
    turn: u64,
    /// Time since which the namespace is known to have neither permits nor waiting tasks.
    idle: Option<Instant>,
}

impl FairSemaphore {
    /// Creates a semaphore with this many permits.
    pub(crate) fn new(permits: usize) -> Self {
        Self::with(permits, false)
    }

    /// Creates a sparing semaphore with this many permits.
    pub(crate) fn sparing(permits: usize) -> Self {
        Self::with(permits, true)
    }

    fn with(permits: usize, is_sparing: bool) -> Self {
        Self(Arc::new(Mutex::new(State { free: permits, is_sparing, namespaces: HashMap::new(), turns: 0 })))
    }

    /// Takes a permit. `None` if the namespace would have to wait.
    pub(crate) fn try_acquire(&self, namespace: &str) -> Option<Permit> {
        let namespace: Arc<str> = namespace.into();
        let mut state = self.0.lock();
        // No task of a namespace that may take a permit waits: it would have the permit.
        state.may_take(&namespace).then(|| {
            state.take(&namespace);
            Permit { state: Arc::clone(&self.0), namespace }
        })
    }

    /// Waits for a permit. A future that is dropped leaves the queue.
    pub(crate) async fn acquire(&self, namespace: &str) -> Permit {
        let namespace: Arc<str> = namespace.into();
        let permit = || Permit { state: Arc::clone(&self.0), namespace: Arc::clone(&namespace) };
        let turn = {
            let mut state = self.0.lock();
            if state.may_take(&namespace) {
                state.take(&namespace);
                None
            } else {
                let (sender, turn) = oneshot::channel();
                state.share(&namespace).waiting.push_back(sender);
                Some(turn)
            }
        };
        match turn {
            // The sender stays in the queue until it has sent a permit.
            Some(turn) => match turn.await {
                Ok(permit) => permit,
                Err(_) => std::future::pending().await,
            },
            None => permit(),
        }
    }
}

impl State {
    /// Returns the share of a namespace that takes a permit or waits.
    fn share(&mut self, namespace: &Arc<str>) -> &mut Share {
        let turns = &mut self.turns;
        let share = self.namespaces.entry(Arc::clone(namespace)).or_insert_with(|| {
            *turns += 1;
            Share { turn: *turns, ..Share::default() }
        });
        share.idle = None;
        share
    }

    /// True if a permit is free that the namespace may have.
    fn may_take(&self, namespace: &str) -> bool {
        let own = self.namespaces.get(namespace).map_or(0, |share| share.permits);
        self.free > if self.is_sparing { own } else { 0 }
    }

    fn take(&mut self, namespace: &Arc<str>) {
        self.free -= 1;
        self.turns += 1;
        let turn = self.turns;
        let share = self.share(namespace);
        share.permits += 1;
        share.turn = turn;
    }

    fn give_back(&mut self, namespace: &Arc<str>) {
        self.free += 1;
        if let Some(share) = self.namespaces.get_mut(namespace) {
            share.permits -= 1;
        }
    }

    /// Takes a free permit for the next task. `None` if no task waits that may have one.
    fn next(&mut self) -> Option<(Arc<str>, oneshot::Sender<Permit>)> {
        let now = Instant::now();
        self.namespaces.retain(|_, share| {
            while share.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                share.waiting.pop_front();
            }
            let is_used = share.permits > 0 || !share.waiting.is_empty();
            is_used || now.duration_since(*share.idle.get_or_insert(now)) < TURN_RETAINED
        });
        let waiting = self.namespaces.iter().filter(|(_, share)| !share.waiting.is_empty());
        let (namespace, _) = waiting.min_by_key(|(_, share)| (share.permits, share.turn))?;
        let namespace = Arc::clone(namespace);
        // The others have at least as many permits.
        if !self.may_take(&namespace) {
            return None;
        }
        let sender = self.namespaces.get_mut(&namespace)?.waiting.pop_front()?;
        self.take(&namespace);
        Some((namespace, sender))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let next = {
            let mut state = self.state.lock();
            state.give_back(&self.namespace);
            state.next()
        };
        if let Some((namespace, sender)) = next {
            // A task that ended just now returns its permit, which goes to the next one then.
            drop(sender.send(Permit { state: Arc::clone(&self.state), namespace }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{FutureExt, future::join_all};
    use tokio::time::{Instant, sleep};

    use super::*;

    impl FairSemaphore {
        /// True if no namespace has permits or waiting tasks.
        fn is_idle(&self) -> bool {
            self.0.lock().namespaces.values().all(|share| share.permits == 0 && share.waiting.is_empty())
        }
    }

    /// Time that each request takes.
    const REQUEST: Duration = Duration::from_secs(2);

    async fn requests(semaphore: &FairSemaphore, namespace: &str, number: usize) -> Duration {
        let began = Instant::now();
        let request = async || {
            let _permit = semaphore.acquire(namespace).await;
            sleep(REQUEST).await;
        };
        join_all((0..number).map(|_| request())).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn namespace_waits_for_one_request_of_another_with_very_many() {
        let semaphore = FairSemaphore::new(16);
        let small = async {
            sleep(Duration::from_secs(1)).await;
            requests(&semaphore, "small", 8).await
        };
        let (large, small) = tokio::join!(requests(&semaphore, "large", 1_000), small);
        assert!(small <= 2 * REQUEST, "{small:?}");
        assert!(large >= REQUEST * (1_000 / 16), "{large:?}: more than 16 requests ran at one time");
        assert!(semaphore.is_idle() && semaphore.0.lock().free == 16);
    }

    /// A fetch waits for its place for 2 s, and its reconciliation is repeated.
    #[tokio::test(start_paused = true)]
    async fn namespace_whose_task_gave_up_keeps_its_turn() {
        let semaphore = FairSemaphore::new(1);
        let first = semaphore.acquire("first").await;
        let gave_up = tokio::time::timeout(REQUEST, semaphore.acquire("patient")).await;
        assert!(gave_up.is_err());
        drop(first);
        let other = semaphore.acquire("other").await;
        let mut late = Box::pin(semaphore.acquire("late"));
        assert!((&mut late).now_or_never().is_none());
        let mut again = Box::pin(semaphore.acquire("patient"));
        assert!((&mut again).now_or_never().is_none());
        drop(other);
        let permit = again.now_or_never().expect("the one that came later has the permit");
        assert!((&mut late).now_or_never().is_none());
        drop(permit);
        drop(late.now_or_never().unwrap());
        sleep(TURN_RETAINED).await;
        drop(semaphore.acquire("first").await);
        let left: Vec<_> = semaphore.0.lock().namespaces.keys().cloned().collect();
        assert_eq!(left, ["first".into()], "the others are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_have_equal_shares_while_they_wait() {
        let semaphore = FairSemaphore::new(16);
        let names: Vec<String> = (0..40).map(|number| format!("small-{number}")).collect();
        let all = join_all(names.iter().map(|name| requests(&semaphore, name, 2)));
        let (_, small) = tokio::join!(requests(&semaphore, "large", 1_000), all);
        // The first turns are of the namespace that came first; then each of the others has two.
        let slowest = small.into_iter().max().unwrap();
        assert!(slowest <= REQUEST * (1 + 80 / 15 + 2), "{slowest:?}");
    }

    #[tokio::test]
    async fn sparing_semaphore_keeps_permits_for_namespaces_that_have_none() {
        let semaphore = FairSemaphore::sparing(128);
        let mut held = Vec::new();
        for (namespace, expected) in [("first", 64), ("second", 32), ("third", 16), ("fourth", 8)] {
            let permits = std::iter::from_fn(|| semaphore.acquire(namespace).now_or_never());
            held.push(permits.collect::<Vec<Permit>>());
            assert_eq!(held.last().unwrap().len(), expected);
        }
        assert!(semaphore.acquire("fifth").now_or_never().is_some());
        assert!(semaphore.acquire("first").now_or_never().is_none());
        held.truncate(1);
        assert!(semaphore.acquire("first").now_or_never().is_none(), "one namespace has half");
        drop(held);
        drop(semaphore.acquire("first").await);
        assert!(semaphore.is_idle() && semaphore.0.lock().free == 128);
    }

    /// The queue of each namespace moves on, however many tasks other namespaces have, and however long they take.
    #[tokio::test(start_paused = true)]
    async fn no_namespace_starves_at_sparing_semaphore() {
        let semaphore = FairSemaphore::sparing(16);
        let noisy: Vec<String> = (0..6).map(|number| format!("noisy-{number}")).collect();
        let endless = noisy.iter().flat_map(|namespace| (0..50).map(move |_| namespace)).map(async |namespace| {
            loop {
                requests(&semaphore, namespace, 1).await;
            }
        });
        let small = async {
            sleep(REQUEST * 5).await;
            requests(&semaphore, "small", 20).await
        };
        let all: Vec<_> = endless.collect();
        let took = tokio::select! {
            took = small => took,
            _ = join_all(all) => unreachable!("they never end"),
        };
        // Seven namespaces share 16 permits, so each always has at least two of them after the first turn.
        assert!(took <= REQUEST * 12, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_task_leaves_the_queue() {
        let semaphore = FairSemaphore::new(1);
        let held = semaphore.acquire("shop").await;
        for _ in 0..10_000 {
            assert!(semaphore.acquire("shop").now_or_never().is_none());
        }
        let waiting = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { drop(semaphore.acquire("other").await) }
        });
        tokio::task::yield_now().await;
        drop(held);
        waiting.await.unwrap();
        assert!(semaphore.acquire("shop").now_or_never().is_some());
    }

    #[tokio::test]
    async fn permit_that_was_given_to_dropped_task_is_free_again() {
        let semaphore = FairSemaphore::new(1);
        let held = semaphore.acquire("shop").await;
        let mut waiting = Box::pin(semaphore.acquire("shop"));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(held);
        assert!(semaphore.acquire("shop").now_or_never().is_none(), "the waiting task has the permit");
        drop(waiting);
        assert!(semaphore.acquire("shop").now_or_never().is_some());
    }
}
