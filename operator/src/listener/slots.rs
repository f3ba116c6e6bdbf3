//! Divides connections and bytes among addresses, so that a flood takes slots only from itself.
//!
//! Nothing distinguishes the API server from other callers: in most clusters it has no certificate, and its addresses
//! are not known. So a full listener never refuses a caller because it is late. It closes the connection that is worth
//! the least:
//!
//! 1. It never closes a connection whose request is being answered, which takes milliseconds.
//! 2. It never closes a connection of a *known* address, which got a useful answer before, while known addresses have
//!    at most [`Limits::kept`] connections.
//! 3. Of the others, it closes a connection of the address with the most. Among the connections of an address, those
//!    without a useful answer go first, then the one whose last useful answer is oldest.
//!
//! Bodies that wait for bytes have a queue: first those of known addresses, then those of the address that would have the
//! fewest bytes. Bytes that come back wake only the body that gets them.
//!
//! Answers that callers do not read are bounded too. When their bytes exceed [`Limits::unread_bytes`], the listener
//! closes a connection whose answer is older than a second, or any other if there is none: of the address with the most
//! bytes, the one whose answer is the oldest. The API server reads its answers within milliseconds.
//!
//! Each further address costs an attacker a pod. IPv6 addresses count by their /64, because one machine has a whole
//! /64.

mod queue;

use std::{
    cmp::Reverse,
    collections::HashMap,
    future::pending,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, task::AbortHandle, time::Instant};

use self::queue::Queue;
use super::Limits;

/// Number of addresses that are known at a time. A further address replaces the one whose last useful answer is oldest.
const KNOWN_ADDRESSES: usize = 64;

/// Time in which a caller that reads has read its answer. Answers of others are given up first.
const READING_TIME: Duration = Duration::from_secs(1);

/// Address of a caller: an IPv4 address, or the /64 of an IPv6 address.
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

/// Stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The connection is idle, in its handshake, sends a head, or reads an answer.
    Waiting,
    /// The caller sends a body.
    Reading(BodySize),
    /// The request is complete and has no answer yet.
    Answering(BodySize),
}

/// Class of a body by its size. Small and large bodies have separate bounds, so that neither waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodySize {
    Small,
    Large,
}

impl BodySize {
    fn of(bytes: usize, limits: &Limits) -> Self {
        if bytes <= limits.small_body { Self::Small } else { Self::Large }
    }
}

struct Connection {
    caller: Caller,
    /// Order number of the last answer, or of the acceptance before the first answer. A clock may return the same time
    /// twice.
    since: u64,
    /// Order number of the last useful answer.
    useful: Option<u64>,
    stage: Stage,
    /// Reserved bytes for the connection's body.
    bytes: usize,
    /// Bytes of answers that the caller has not read.
    unread: usize,
    /// Time of the last answer, or of the acceptance before the first answer.
    answered: Instant,
    /// Task of the connection. `None` until the task exists.
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct State {
    clock: u64,
    connections: HashMap<u64, Connection>,
    /// Order number of the last useful answer to each known address.
    known: HashMap<Caller, u64>,
    /// Bodies that wait for bytes.
    queue: Queue,
}

/// All connections of a listener.
pub(super) struct Slots {
    limits: Limits,
    state: Mutex<State>,
    /// Notified when a connection ends or was answered, so that one more may enter.
    changed: Notify,
}

/// Slot of a connection, which is released on drop.
pub(super) struct Slot {
    slots: Arc<Slots>,
    id: u64,
}

/// Bytes of an answer, which count as unread until this is dropped.
pub(super) struct Unread {
    slots: Arc<Slots>,
    id: u64,
    bytes: usize,
}

impl Slots {
    /// Creates an empty set of slots with these limits.
    pub(super) fn new(limits: Limits) -> Arc<Slots> {
        Arc::new(Slots { limits, state: Mutex::default(), changed: Notify::new() })
    }

    /// Returns a slot for a further connection, and may close another connection for it. Waits while all connections
    /// are being answered.
    pub(super) async fn enter(self: &Arc<Self>, caller: Caller) -> Slot {
        loop {
            let changed = self.changed.notified();
            if let Some(slot) = self.try_enter(caller) {
                return slot;
            }
            changed.await;
        }
    }

    /// Returns a slot if one is free or another connection can be closed for it.
    pub(super) fn try_enter(self: &Arc<Self>, caller: Caller) -> Option<Slot> {
        let mut state = self.state.lock();
        let id = state.tick();
        let connection = Connection {
            caller,
            since: id,
            useful: None,
            stage: Stage::Waiting,
            bytes: 0,
            unread: 0,
            answered: Instant::now(),
            task: None,
        };
        state.connections.insert(id, connection);
        if state.connections.len() > self.limits.connections {
            let victim = state.connection_to_close(self.limits.kept).filter(|victim| *victim != id);
            let Some(victim) = victim else {
                state.connections.remove(&id);
                return None;
            };
            state.close(victim);
        }
        Some(Slot { slots: Arc::clone(self), id })
    }

    /// Aborts `task` when its connection loses its slot.
    pub(super) fn ends_with_slot(&self, id: u64, task: AbortHandle) {
        match self.state.lock().connections.get_mut(&id) {
            Some(connection) => connection.task = Some(task),
            None => task.abort(),
        }
    }

    /// Returns the number of connections.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.state.lock().connections.len()
    }
}

impl Slot {
    /// Returns the connection's number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Waits until `bytes` bytes are reserved for a body. May close a connection with a slower body.
    pub(super) async fn reserve(&self, bytes: usize) {
        let turn = {
            let mut state = self.slots.state.lock();
            if bytes == 0 {
                state.reserve(self.id, 0, &self.slots.limits);
                return;
            }
            let turn = state.queue.push(self.id, bytes);
            state.admit(&self.slots.limits);
            turn
        };
        if turn.await.is_err() {
            // The connection has lost its slot, and its task ends.
            pending::<()>().await;
        }
    }

    /// Marks the body as complete. No other caller can take the slot before the answer is sent.
    pub(super) fn answering(&self) {
        let mut state = self.slots.state.lock();
        if let Some(connection) = state.connections.get_mut(&self.id) {
            connection.stage = match connection.stage {
                Stage::Reading(size) | Stage::Answering(size) => Stage::Answering(size),
                Stage::Waiting => Stage::Answering(BodySize::Small),
            };
        }
    }

    /// Releases the bytes of a request that is answered or given up. A useful answer makes the address known.
    pub(super) fn answered(&self, is_useful: bool) {
        let mut state = self.slots.state.lock();
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
        state.admit(&self.slots.limits);
        drop(state);
        self.slots.changed.notify_one();
    }

    /// Counts the bytes of an answer until the caller has read them. Closes connections, perhaps this one, while all
    /// callers together leave too many bytes unread. A single answer may be larger.
    pub(super) fn sending(&self, bytes: usize) -> Unread {
        let mut state = self.slots.state.lock();
        if let Some(connection) = state.connections.get_mut(&self.id) {
            connection.unread += bytes;
            connection.answered = Instant::now();
        }
        state.bound_unread(self.slots.limits.unread_bytes);
        Unread { slots: Arc::clone(&self.slots), id: self.id, bytes }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(connection) = self.slots.state.lock().connections.get_mut(&self.id) {
            connection.unread -= self.bytes;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        state.connections.remove(&self.id);
        state.admit(&self.slots.limits);
        drop(state);
        self.slots.changed.notify_one();
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

    /// Returns the connection that is worth the least by the rules of this module.
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

    /// Reserves bytes, and closes connections with slower bodies if necessary. Returns false if the request has to
    /// wait.
    fn reserve(&mut self, id: u64, bytes: usize, limits: &Limits) -> bool {
        let size = BodySize::of(bytes, limits);
        let capacity = match size {
            BodySize::Small => limits.small_bytes,
            BodySize::Large => limits.large_bytes,
        };
        loop {
            let used: usize = self.of_size(size).map(|(_, connection)| connection.bytes).sum();
            if bytes == 0 || used + bytes <= capacity {
                if let Some(connection) = self.connections.get_mut(&id) {
                    (connection.stage, connection.bytes) = (Stage::Reading(size), bytes);
                }
                return true;
            }
            match self.body_to_abort(id, bytes, size) {
                Some(victim) => self.close(victim),
                None => return false,
            }
        }
    }

    fn of_size(&self, size: BodySize) -> impl Iterator<Item = (u64, &Connection)> {
        let is_in = move |stage| matches!(stage, Stage::Reading(at) | Stage::Answering(at) if at == size);
        self.connections.iter().filter(move |(_, connection)| is_in(connection.stage)).map(|(id, held)| (*id, held))
    }

    /// Returns the oldest unfinished body of the address with the most bytes of them. The address must have more bytes
    /// than the caller would have, or be unknown while the caller's address is known.
    fn body_to_abort(&self, id: u64, bytes: usize, size: BodySize) -> Option<u64> {
        let requester = self.connections.get(&id)?;
        let requester_is_known = self.is_known(requester);
        let unfinished = || self.of_size(size).filter(move |(_, held)| held.stage == Stage::Reading(size));
        let mut held = HashMap::<Caller, usize>::new();
        for (_, connection) in unfinished() {
            *held.entry(connection.caller).or_default() += connection.bytes;
        }
        let would_have = held.get(&requester.caller).copied().unwrap_or_default() + bytes;
        let of = |connection: &Connection| held.get(&connection.caller).copied().unwrap_or_default();
        let may_be_taken = |connection: &Connection| match (requester_is_known, self.is_known(connection)) {
            (true, false) => true,
            (false, true) => false,
            _ => of(connection) > would_have,
        };
        let candidates = unfinished().filter(|(_, connection)| may_be_taken(connection));
        candidates
            .min_by_key(|(_, held)| (self.is_known(held), Reverse(of(held)), held.since))
            .map(|(victim, _)| victim)
    }

    /// Closes connections until the answers of those that remain have at most `capacity` unread bytes, or one remains.
    fn bound_unread(&mut self, capacity: usize) {
        loop {
            let unread = || self.connections.iter().filter(|(_, connection)| connection.unread > 0);
            let mut held = HashMap::<Caller, usize>::new();
            for (_, connection) in unread() {
                *held.entry(connection.caller).or_default() += connection.unread;
            }
            if held.values().sum::<usize>() <= capacity || unread().nth(1).is_none() {
                return;
            }
            let of = |connection: &Connection| held.get(&connection.caller).copied().unwrap_or_default();
            let is_recent = |connection: &Connection| connection.answered.elapsed() < READING_TIME;
            let slowest = unread().min_by_key(|(_, held)| (is_recent(held), Reverse(of(held)), held.since));
            let Some(slowest) = slowest.map(|(id, _)| *id) else { return };
            self.close(slowest);
        }
    }

    fn close(&mut self, id: u64) {
        if let Some(task) = self.connections.remove(&id).and_then(|connection| connection.task) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
