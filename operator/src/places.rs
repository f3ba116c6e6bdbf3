//! Places for requests of one kind, which namespaces share evenly while requests wait.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Places for requests. A free place goes to the waiting namespace that has the fewest places; among equals, to the one
/// that has waited longest for a turn. So a namespace waits for the end of one request, however many another one has
/// waiting, and however long those take. Clones share the places.
#[derive(Clone, Debug)]
pub(crate) struct FairPlaces(Arc<Mutex<State>>);

/// A place of a namespace. Dropping it gives the place to the next request.
#[derive(Debug)]
pub(crate) struct Place {
    state: Arc<Mutex<State>>,
    namespace: Arc<str>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Namespaces with places or waiting requests.
    namespaces: HashMap<Arc<str>, Share>,
    /// Number of turns so far.
    turns: u64,
}

/// Places and waiting requests of a namespace.
#[derive(Debug, Default)]
struct Share {
    places: usize,
    waiting: VecDeque<oneshot::Sender<Place>>,
    /// Number of the last turn, or of the turn at which the namespace arrived.
    turn: u64,
}

impl FairPlaces {
    /// Creates this many places.
    pub(crate) fn new(places: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: places, namespaces: HashMap::new(), turns: 0 })))
    }

    /// Waits for a place. A future that is dropped leaves the queue.
    pub(crate) async fn place(&self, namespace: &str) -> Place {
        let namespace: Arc<str> = namespace.into();
        let place = || Place { state: Arc::clone(&self.0), namespace: Arc::clone(&namespace) };
        let turn = {
            let mut state = self.0.lock();
            if state.free > 0 {
                // No request waits while a place is free.
                state.take(&namespace);
                None
            } else {
                let (sender, turn) = oneshot::channel();
                state.share(&namespace).waiting.push_back(sender);
                Some(turn)
            }
        };
        match turn {
            // The sender stays in the queue until it has sent a place.
            Some(turn) => match turn.await {
                Ok(place) => place,
                Err(_) => std::future::pending().await,
            },
            None => place(),
        }
    }
}

impl State {
    fn share(&mut self, namespace: &Arc<str>) -> &mut Share {
        let turn = self.turns;
        self.namespaces.entry(Arc::clone(namespace)).or_insert_with(|| Share { turn, ..Share::default() })
    }

    fn take(&mut self, namespace: &Arc<str>) {
        self.free -= 1;
        self.turns += 1;
        let turn = self.turns;
        let share = self.share(namespace);
        share.places += 1;
        share.turn = turn;
    }

    fn give_back(&mut self, namespace: &Arc<str>) {
        self.free += 1;
        if let Some(share) = self.namespaces.get_mut(namespace) {
            share.places -= 1;
        }
    }

    /// Takes the free place for the next request.
    fn next(&mut self) -> Option<(Arc<str>, oneshot::Sender<Place>)> {
        self.namespaces.retain(|_, share| {
            while share.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                share.waiting.pop_front();
            }
            share.places > 0 || !share.waiting.is_empty()
        });
        let waiting = self.namespaces.iter().filter(|(_, share)| !share.waiting.is_empty());
        let (namespace, _) = waiting.min_by_key(|(_, share)| (share.places, share.turn))?;
        let namespace = Arc::clone(namespace);
        let sender = self.namespaces.get_mut(&namespace)?.waiting.pop_front()?;
        self.take(&namespace);
        Some((namespace, sender))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let next = {
            let mut state = self.state.lock();
            state.give_back(&self.namespace);
            state.next()
        };
        if let Some((namespace, sender)) = next {
            // A request that ended just now returns its place, which goes to the next one then.
            drop(sender.send(Place { state: Arc::clone(&self.state), namespace }));
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

    async fn requests(places: &FairPlaces, namespace: &str, number: usize) -> Duration {
        let began = Instant::now();
        let request = async || {
            let _place = places.place(namespace).await;
            sleep(REQUEST).await;
        };
        join_all((0..number).map(|_| request())).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn namespace_waits_for_one_request_of_another_with_very_many() {
        let places = FairPlaces::new(16);
        let small = async {
            sleep(Duration::from_secs(1)).await;
            requests(&places, "small", 8).await
        };
        let (large, small) = tokio::join!(requests(&places, "large", 1_000), small);
        assert!(small <= 2 * REQUEST, "{small:?}");
        assert!(large >= REQUEST * (1_000 / 16), "{large:?}: more than 16 requests ran at one time");
        assert!(places.0.lock().namespaces.is_empty() && places.0.lock().free == 16);
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_have_equal_shares_while_they_wait() {
        let places = FairPlaces::new(16);
        let names: Vec<String> = (0..40).map(|number| format!("small-{number}")).collect();
        let all = join_all(names.iter().map(|name| requests(&places, name, 2)));
        let (_, small) = tokio::join!(requests(&places, "large", 1_000), all);
        // The first turns are of the namespace that came first; then each of the others has two.
        let slowest = small.into_iter().max().unwrap();
        assert!(slowest <= REQUEST * (1 + 80 / 15 + 2), "{slowest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_request_leaves_the_queue() {
        let places = FairPlaces::new(1);
        let held = places.place("shop").await;
        for _ in 0..10_000 {
            assert!(places.place("shop").now_or_never().is_none());
        }
        let waiting = tokio::spawn({
            let places = places.clone();
            async move { drop(places.place("other").await) }
        });
        tokio::task::yield_now().await;
        drop(held);
        waiting.await.unwrap();
        assert!(places.place("shop").now_or_never().is_some());
    }

    #[tokio::test]
    async fn place_that_was_given_to_a_dropped_request_is_free_again() {
        let places = FairPlaces::new(1);
        let held = places.place("shop").await;
        let mut waiting = Box::pin(places.place("shop"));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(held);
        assert!(places.place("shop").now_or_never().is_none(), "the waiting request has the place");
        drop(waiting);
        assert!(places.place("shop").now_or_never().is_some());
    }
}
