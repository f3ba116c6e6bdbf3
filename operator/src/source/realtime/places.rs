//! Places for streams, of which each namespace with more environments gets its share.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum number of streams that are open at one time. Environments beyond it are polled only.
const STREAMS_MAX: usize = 2048;

/// Places for streams, which several sets of streams may share. A stream stays open for as long as its environment asks for
/// it, so a full set of places is divided anew when another namespace comes: a request of a namespace that has two places
/// fewer than the one with the most takes a place of that one. A free place goes to the waiting namespace with the fewest.
#[derive(Clone, Debug)]
pub struct StreamPlaces(Arc<Mutex<State>>);

/// A place of a namespace. Dropping it gives the place to the next request.
#[derive(Debug)]
pub(super) struct Place {
    state: Arc<Mutex<State>>,
    namespace: String,
    number: u64,
    reclaimed: oneshot::Receiver<()>,
}

/// A request that waits for a place.
#[derive(Debug)]
pub(super) struct Turn(oneshot::Receiver<Place>);

#[derive(Debug)]
struct State {
    free: usize,
    /// Namespaces with places or waiting requests.
    namespaces: HashMap<String, Share>,
    /// Number of the next place that is given.
    next: u64,
}

#[derive(Debug, Default)]
struct Share {
    /// Places by number. Dropping the sender reclaims the place.
    held: BTreeMap<u64, oneshot::Sender<()>>,
    waiting: VecDeque<oneshot::Sender<Place>>,
}

impl Default for StreamPlaces {
    fn default() -> Self {
        Self::new(STREAMS_MAX)
    }
}

impl StreamPlaces {
    pub(super) fn new(places: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: places, namespaces: HashMap::new(), next: 0 })))
    }

    /// Takes a place.
    ///
    /// # Errors
    /// No place is free, and no namespace has two more than this one: the request waits for its turn.
    pub(super) fn request(&self, namespace: &str) -> Result<Place, Turn> {
        let mut state = self.0.lock();
        if state.free > 0 {
            state.free -= 1;
        } else if !state.reclaim(namespace) {
            let (sender, turn) = oneshot::channel();
            let share = state.namespaces.entry(namespace.to_owned()).or_default();
            share.waiting.retain(|waiting| !waiting.is_closed());
            share.waiting.push_back(sender);
            return Err(Turn(turn));
        }
        Ok(state.give(&self.0, namespace))
    }
}

impl State {
    /// Takes the latest place of the namespace with the most, if it has at least two more than this one.
    fn reclaim(&mut self, namespace: &str) -> bool {
        let own = self.namespaces.get(namespace).map_or(0, |share| share.held.len());
        let Some(most) = self.namespaces.values_mut().max_by_key(|share| share.held.len()) else { return false };
        most.held.len() > own + 1 && most.held.pop_last().is_some()
    }

    fn give(&mut self, all: &Arc<Mutex<Self>>, namespace: &str) -> Place {
        let (sender, reclaimed) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.namespaces.entry(namespace.to_owned()).or_default().held.insert(number, sender);
        Place { state: Arc::clone(all), namespace: namespace.to_owned(), number, reclaimed }
    }

    /// Returns the next request and its namespace.
    fn next(&mut self) -> Option<(String, oneshot::Sender<Place>)> {
        self.namespaces.retain(|_, share| {
            share.waiting.retain(|waiting| !waiting.is_closed());
            !share.held.is_empty() || !share.waiting.is_empty()
        });
        let waiting = self.namespaces.iter_mut().filter(|(_, share)| !share.waiting.is_empty());
        let (namespace, share) = waiting.min_by_key(|(_, share)| share.held.len())?;
        Some((namespace.clone(), share.waiting.pop_front()?))
    }
}

impl Turn {
    /// Waits for the place.
    pub(super) async fn place(self) -> Place {
        match self.0.await {
            Ok(place) => place,
            // The sender stays in the queue until it has sent a place.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Place {
    /// Waits until another namespace gets the place.
    pub(super) async fn reclaimed(&mut self) {
        let _ = (&mut self.reclaimed).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let given = {
            let mut state = self.state.lock();
            let is_held = state
                .namespaces
                .get_mut(&self.namespace)
                .is_some_and(|share| share.held.remove(&self.number).is_some());
            if !is_held {
                return;
            }
            match state.next() {
                Some((namespace, sender)) => Some((state.give(&self.state, &namespace), sender)),
                None => {
                    state.free += 1;
                    None
                }
            }
        };
        if let Some((place, sender)) = given {
            // A request that ended just now returns its place, which goes to the next one then.
            drop(sender.send(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn namespace_with_all_places_gives_half_to_another_one() {
        let places = StreamPlaces::new(16);
        let mut large: Vec<Place> = (0..16).map(|_| places.request("large").unwrap()).collect();
        let waiting = places.request("large").unwrap_err();
        let small: Vec<Result<Place, Turn>> = (0..16).map(|_| places.request("small")).collect();
        assert_eq!(small.iter().filter(|place| place.is_ok()).count(), 8);
        let reclaimed = large.iter_mut().filter_map(|place| place.reclaimed().now_or_never()).count();
        assert_eq!(reclaimed, 8);
        // A third namespace takes from both.
        let third: Vec<Place> = (0..5).map(|_| places.request("third").unwrap()).collect();
        assert!(places.request("third").is_err());
        drop((large, small, third, waiting));
        let state = places.0.lock();
        assert!(state.free == 16 && state.namespaces.is_empty(), "{state:?}");
    }

    #[tokio::test]
    async fn returned_place_goes_to_the_waiting_namespace_with_the_fewest() {
        let places = StreamPlaces::new(5);
        let _large: Vec<Place> = (0..5).map(|_| places.request("large").unwrap()).collect();
        let large_waits = places.request("large").unwrap_err();
        let mut small: Vec<Place> = (0..2).map(|_| places.request("small").unwrap()).collect();
        let small_waits = places.request("small").unwrap_err();
        drop(small.pop());
        let _given = small_waits.place().now_or_never().unwrap();
        assert!(large_waits.place().now_or_never().is_none());
    }

    #[tokio::test]
    async fn place_of_a_request_that_ended_goes_to_the_next() {
        let places = StreamPlaces::new(1);
        let held = places.request("shop").unwrap();
        drop(places.request("shop").unwrap_err());
        let waiting = places.request("other").unwrap_err();
        drop(held);
        assert!(waiting.place().now_or_never().is_some());
        assert!(places.request("shop").is_ok());
    }
}
