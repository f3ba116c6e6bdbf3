//! A semaphore whose permits namespaces share evenly while they wait.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A semaphore. A free permit goes to the waiting namespace that has the fewest permits; among equals, to the one that
/// has waited longest for a turn. So a namespace waits for the end of one task, however many another one has waiting,
/// and however long those take. Clones share the permits.
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
    /// Namespaces with permits or waiting tasks.
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
}

impl FairSemaphore {
    /// Creates a semaphore with this many permits.
    pub(crate) fn new(permits: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: permits, namespaces: HashMap::new(), turns: 0 })))
    }

    /// Waits for a permit. A future that is dropped leaves the queue.
    pub(crate) async fn acquire(&self, namespace: &str) -> Permit {
        let namespace: Arc<str> = namespace.into();
        let permit = || Permit { state: Arc::clone(&self.0), namespace: Arc::clone(&namespace) };
        let turn = {
            let mut state = self.0.lock();
            if state.free > 0 {
                // No task waits while a permit is free.
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
    fn share(&mut self, namespace: &Arc<str>) -> &mut Share {
        let turns = &mut self.turns;
        self.namespaces.entry(Arc::clone(namespace)).or_insert_with(|| {
            *turns += 1;
            Share { turn: *turns, ..Share::default() }
        })
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

    /// Takes the free permit for the next task.
    fn next(&mut self) -> Option<(Arc<str>, oneshot::Sender<Permit>)> {
        self.namespaces.retain(|_, share| {
            while share.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                share.waiting.pop_front();
            }
            share.permits > 0 || !share.waiting.is_empty()
        });
        let waiting = self.namespaces.iter().filter(|(_, share)| !share.waiting.is_empty());
        let (namespace, _) = waiting.min_by_key(|(_, share)| (share.permits, share.turn))?;
        let namespace = Arc::clone(namespace);
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
        assert!(semaphore.0.lock().namespaces.is_empty() && semaphore.0.lock().free == 16);
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
