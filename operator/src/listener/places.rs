//! Places for connections and bytes, divided among addresses so that a flood takes them from the flood.
//!
//! Nothing tells the API server from other callers: it has no certificate in most clusters, and its addresses are not
//! known. So a full listener never refuses a caller for being late. It gives up what is worth the least:
//!
//! 1. never a connection whose request is being answered, which takes milliseconds;
//! 2. never one of a *known* address, one that was answered something useful, while known addresses have at most
//!    [`Limits::kept`] connections;
//! 3. of the others, one of the address with the most; of an address, one that was never useful before one that was, and
//!    the oldest first.
//!
//! An address of a pod costs whoever attacks a pod. IPv6 addresses count by their /64, which is what one machine has.

use std::{
    cmp::Reverse,
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, task::AbortHandle};

use super::Limits;

/// Number of addresses that are known at a time. One more takes the place of the one that was useful longest ago.
const KNOWN_ADDRESSES: usize = 64;

/// An address as places are counted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Caller(IpAddr);

impl From<IpAddr> for Caller {
    fn from(address: IpAddr) -> Caller {
        Caller(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is idle, or in its handshake, or sends a head, or reads an answer.
    Waiting,
    /// It sends a body.
    Reading(Lane),
    /// Its request is complete and has no answer yet.
    Answering(Lane),
}

/// Small bodies and large ones have bytes of their own, so that none waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Small,
    Large,
}

struct Connection {
    caller: Caller,
    /// Larger is later. A number, as clocks may have no two times between two connections.
    since: u64,
    /// When something useful was last answered.
    useful: Option<u64>,
    stage: Stage,
    /// Bytes of its body, which it has a share for.
    bytes: usize,
    /// None until its task exists.
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct State {
    clock: u64,
    connections: HashMap<u64, Connection>,
    /// When something useful was last answered to an address.
    known: HashMap<Caller, u64>,
}

/// All connections of a listener.
pub(super) struct Places {
    limits: Limits,
    state: Mutex<State>,
    /// Something was given back.
    changed: Notify,
}

/// A connection's place, until it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
}

impl Places {
    /// Places within these limits.
    pub(super) fn new(limits: Limits) -> Arc<Places> {
        Arc::new(Places { limits, state: Mutex::default(), changed: Notify::new() })
    }

    /// A place for one more connection. It may cost another connection its place; waits while all are being answered.
    pub(super) async fn enter(self: &Arc<Self>, caller: Caller) -> Place {
        loop {
            let changed = self.changed.notified();
            if let Some(place) = self.try_enter(caller) {
                return place;
            }
            changed.await;
        }
    }

    /// A place, if there is one or another connection can be given up for it.
    pub(super) fn try_enter(self: &Arc<Self>, caller: Caller) -> Option<Place> {
        let mut state = self.state();
        let id = state.tick();
        let connection = Connection { caller, since: id, useful: None, stage: Stage::Waiting, bytes: 0, task: None };
        state.connections.insert(id, connection);
        if state.connections.len() > self.limits.connections {
            let victim = state.connection_to_close(self.limits.kept).filter(|victim| *victim != id);
            let Some(victim) = victim else {
                state.connections.remove(&id);
                return None;
            };
            state.close(victim);
        }
        Some(Place { places: Arc::clone(self), id })
    }

    /// Ends a task once its connection loses its place.
    pub(super) fn ends_with_place(&self, id: u64, task: AbortHandle) {
        match self.state().connections.get_mut(&id) {
            Some(connection) => connection.task = Some(task),
            None => task.abort(),
        }
    }

    /// Number of connections.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.state().connections.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The connection's number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns once there is a share of bytes for a body. It may cost a slower body its connection.
    pub(super) async fn reserve(&self, bytes: usize) {
        loop {
            let changed = self.places.changed.notified();
            if self.places.state().reserve(self.id, bytes, &self.places.limits) {
                return;
            }
            changed.await;
        }
    }

    /// The body is complete: nobody takes the place before there is an answer.
    pub(super) fn answering(&self) {
        let mut state = self.places.state();
        if let Some(connection) = state.connections.get_mut(&self.id) {
            connection.stage = match connection.stage {
                Stage::Reading(lane) | Stage::Answering(lane) => Stage::Answering(lane),
                Stage::Waiting => Stage::Answering(Lane::Small),
            };
        }
    }

    /// The request has its answer, or was given up: gives its bytes back. A useful answer makes the address known.
    pub(super) fn answered(&self, is_useful: bool) {
        let mut state = self.places.state();
        let now = state.tick();
        if let Some(connection) = state.connections.get_mut(&self.id) {
            connection.stage = Stage::Waiting;
            connection.bytes = 0;
            connection.since = now;
            if is_useful {
                connection.useful = Some(now);
                let caller = connection.caller;
                state.remember(caller, now);
            }
        }
        drop(state);
        self.places.changed.notify_waiters();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.state().connections.remove(&self.id);
        self.places.changed.notify_waiters();
    }
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn remember(&mut self, caller: Caller, now: u64) {
        self.known.insert(caller, now);
        if self.known.len() > KNOWN_ADDRESSES {
            let oldest = self.known.iter().min_by_key(|(_, useful)| **useful).map(|(caller, _)| *caller);
            oldest.map(|oldest| self.known.remove(&oldest));
        }
    }

    fn is_known(&self, connection: &Connection) -> bool {
        self.known.contains_key(&connection.caller)
    }

    /// The connection that is worth the least; see the module.
    fn connection_to_close(&self, kept: usize) -> Option<u64> {
        let of_known = self.connections.values().filter(|connection| self.is_known(connection)).count();
        let spare_known = of_known <= kept;
        let candidates = || {
            self.connections.iter().filter(move |(_, connection)| {
                let is_spared = spare_known && self.is_known(connection);
                !is_spared && !matches!(connection.stage, Stage::Answering(_))
            })
        };
        let mut held = HashMap::<Caller, usize>::new();
        for (_, connection) in candidates() {
            *held.entry(connection.caller).or_default() += 1;
        }
        let worth = |connection: &Connection| {
            (Reverse(held.get(&connection.caller).copied().unwrap_or_default()), connection.useful, connection.since)
        };
        candidates().min_by_key(|(_, connection)| worth(connection)).map(|(id, _)| *id)
    }

    /// Takes a share of bytes, from slower bodies if need be; false if it has to wait.
    fn reserve(&mut self, id: u64, bytes: usize, limits: &Limits) -> bool {
        let (lane, capacity) = if bytes <= limits.small_body {
            (Lane::Small, limits.small_bytes)
        } else {
            (Lane::Large, limits.large_bytes)
        };
        loop {
            let used: usize = self.of_lane(lane).map(|(_, connection)| connection.bytes).sum();
            if bytes == 0 || used + bytes <= capacity {
                if let Some(connection) = self.connections.get_mut(&id) {
                    (connection.stage, connection.bytes) = (Stage::Reading(lane), bytes);
                }
                return true;
            }
            match self.body_to_give_up(id, bytes, lane) {
                Some(victim) => self.close(victim),
                None => return false,
            }
        }
    }

    fn of_lane(&self, lane: Lane) -> impl Iterator<Item = (u64, &Connection)> {
        let is_in = move |stage| matches!(stage, Stage::Reading(at) | Stage::Answering(at) if at == lane);
        self.connections.iter().filter(move |(_, connection)| is_in(connection.stage)).map(|(id, held)| (*id, held))
    }

    /// The oldest unfinished body of the address with most bytes of them: if it has more than the one that asks would
    /// have, or is not known and the one that asks is.
    fn body_to_give_up(&self, id: u64, bytes: usize, lane: Lane) -> Option<u64> {
        let asks = self.connections.get(&id)?;
        let asks_is_known = self.is_known(asks);
        let unfinished = || self.of_lane(lane).filter(move |(_, held)| held.stage == Stage::Reading(lane));
        let mut held = HashMap::<Caller, usize>::new();
        for (_, connection) in unfinished() {
            *held.entry(connection.caller).or_default() += connection.bytes;
        }
        let would_have = held.get(&asks.caller).copied().unwrap_or_default() + bytes;
        let of = |connection: &Connection| held.get(&connection.caller).copied().unwrap_or_default();
        let may_be_taken = |connection: &Connection| match (asks_is_known, self.is_known(connection)) {
            (true, false) => true,
            (false, true) => false,
            _ => of(connection) > would_have,
        };
        let candidates = unfinished().filter(|(_, connection)| may_be_taken(connection));
        candidates
            .min_by_key(|(_, held)| (self.is_known(held), Reverse(of(held)), held.since))
            .map(|(victim, _)| victim)
    }

    fn close(&mut self, id: u64) {
        if let Some(task) = self.connections.remove(&id).and_then(|connection| connection.task) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
