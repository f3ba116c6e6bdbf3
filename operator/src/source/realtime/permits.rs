//! Permits for streams, of which each namespace with more environments gets its share.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum number of streams that are open at one time. Environments beyond it are polled only.
pub(super) const STREAMS_MAX: usize = 2048;

/// Permits for streams, which several sets of streams may share. A stream stays open for as long as its environment asks for
/// it, so a full set of permits is divided anew when another namespace comes: a request of a namespace that has two permits
/// fewer than the one with the most takes a permit of that one. A free permit goes to the waiting namespace with the fewest.
#[derive(Clone, Debug)]
pub struct StreamPermits(Arc<Mutex<State>>);

/// A permit of a namespace. Dropping it gives the permit to the next request.
#[derive(Debug)]
pub(super) struct Permit {
    state: Arc<Mutex<State>>,
    namespace: String,
    number: u64,
    revoked: oneshot::Receiver<()>,
}

/// A request that waits for a permit.
#[derive(Debug)]
pub(super) struct Turn(oneshot::Receiver<Permit>);

#[derive(Debug)]
struct State {
    free: usize,
    /// Namespaces with permits or waiting requests.
    namespaces: HashMap<String, Share>,
    /// Number of the next permit that is given.
    next: u64,
}

#[derive(Debug, Default)]
struct Share {
    /// Permits by number. Dropping the sender revokes the permit.
    held: BTreeMap<u64, oneshot::Sender<()>>,
    waiting: VecDeque<oneshot::Sender<Permit>>,
}

impl Default for StreamPermits {
    fn default() -> Self {
        Self::new(STREAMS_MAX)
    }
}

impl StreamPermits {
    pub(super) fn new(permits: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: permits, namespaces: HashMap::new(), next: 0 })))
    }

    /// Takes a permit.
    ///
    /// # Errors
    /// No permit is free, and no namespace has two more than this one: the request waits for its turn.
    pub(super) fn request(&self, namespace: &str) -> Result<Permit, Turn> {
        let mut state = self.0.lock();
        if state.free > 0 {
            state.free -= 1;
        } else if !state.revoke(namespace) {
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
    /// Takes the latest permit of the namespace with the most, if it has at least two more than this one.
    fn revoke(&mut self, namespace: &str) -> bool {
        let own = self.namespaces.get(namespace).map_or(0, |share| share.held.len());
        let Some(most) = self.namespaces.values_mut().max_by_key(|share| share.held.len()) else { return false };
        most.held.len() > own + 1 && most.held.pop_last().is_some()
    }

    fn give(&mut self, all: &Arc<Mutex<Self>>, namespace: &str) -> Permit {
        let (sender, revoked) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.namespaces.entry(namespace.to_owned()).or_default().held.insert(number, sender);
        Permit { state: Arc::clone(all), namespace: namespace.to_owned(), number, revoked }
    }

    /// Returns the next request and its namespace.
    fn next(&mut self) -> Option<(String, oneshot::Sender<Permit>)> {
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
    /// Waits for the permit.
    pub(super) async fn permit(self) -> Permit {
        match self.0.await {
            Ok(permit) => permit,
            // The sender stays in the queue until it has sent a permit.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Permit {
    /// Waits until another namespace gets the permit.
    pub(super) async fn revoked(&mut self) {
        let _ = (&mut self.revoked).await;
    }
}

impl Drop for Permit {
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
        if let Some((permit, sender)) = given {
            // A request that ended just now returns its permit, which goes to the next one then.
            drop(sender.send(permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn namespace_with_all_places_gives_half_to_another_one() {
        let permits = StreamPermits::new(16);
        let mut large: Vec<Permit> = (0..16).map(|_| permits.request("large").unwrap()).collect();
        let waiting = permits.request("large").unwrap_err();
        let small: Vec<Result<Permit, Turn>> = (0..16).map(|_| permits.request("small")).collect();
        assert_eq!(small.iter().filter(|permit| permit.is_ok()).count(), 8);
        let revoked = large.iter_mut().filter_map(|permit| permit.revoked().now_or_never()).count();
        assert_eq!(revoked, 8);
        // A third namespace takes from both.
        let third: Vec<Permit> = (0..5).map(|_| permits.request("third").unwrap()).collect();
        assert!(permits.request("third").is_err());
        drop((large, small, third, waiting));
        let state = permits.0.lock();
        assert!(state.free == 16 && state.namespaces.is_empty(), "{state:?}");
    }

    #[tokio::test]
    async fn returned_place_goes_to_the_waiting_namespace_with_the_fewest() {
        let permits = StreamPermits::new(5);
        let _large: Vec<Permit> = (0..5).map(|_| permits.request("large").unwrap()).collect();
        let large_waits = permits.request("large").unwrap_err();
        let mut small: Vec<Permit> = (0..2).map(|_| permits.request("small").unwrap()).collect();
        let small_waits = permits.request("small").unwrap_err();
        drop(small.pop());
        let _given = small_waits.permit().now_or_never().unwrap();
        assert!(large_waits.permit().now_or_never().is_none());
    }

    #[tokio::test]
    async fn place_of_a_request_that_ended_goes_to_the_next() {
        let permits = StreamPermits::new(1);
        let held = permits.request("shop").unwrap();
        drop(permits.request("shop").unwrap_err());
        let waiting = permits.request("other").unwrap_err();
        drop(held);
        assert!(waiting.permit().now_or_never().is_some());
        assert!(permits.request("shop").is_ok());
    }
}
