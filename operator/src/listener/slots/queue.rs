//! Queue of the bodies that wait for bytes.

use std::collections::HashMap;

use tokio::sync::oneshot;

use super::{BodySize, Caller, Limits, State};

/// Bodies that wait for bytes, in the order of their arrival.
#[derive(Default)]
pub(super) struct Queue(Vec<Waiting>);

struct Waiting {
    /// Number of the connection.
    id: u64,
    bytes: usize,
    /// Wakes the connection once the bytes are reserved.
    wake: oneshot::Sender<()>,
}

impl Queue {
    /// Adds a body. The receiver gets its bytes in one of the next calls of [`State::admit`].
    pub(super) fn push(&mut self, id: u64, bytes: usize) -> oneshot::Receiver<()> {
        let (wake, turn) = oneshot::channel();
        self.0.push(Waiting { id, bytes, wake });
        turn
    }
}

impl State {
    /// Reserves bytes for the bodies that can have them, and wakes their connections.
    pub(super) fn admit(&mut self, limits: &Limits) {
        let connections = &self.connections;
        self.queue.0.retain(|waiting| !waiting.wake.is_closed() && connections.contains_key(&waiting.id));
        for size in [BodySize::Small, BodySize::Large] {
            while let Some(next) = self.next_in_queue(size, limits) {
                let Some((id, bytes)) = self.queue.0.get(next).map(|waiting| (waiting.id, waiting.bytes)) else {
                    break;
                };
                // The others of this size would have more bytes.
                if !self.reserve(id, bytes, limits) {
                    break;
                }
                // A connection whose time ended just now returns the bytes with its refusal.
                let _ = self.queue.0.remove(next).wake.send(());
            }
        }
    }

    /// Returns the place in the queue of the body that is next: of a known address, then of the address that would have the
    /// fewest bytes, then the one that waits longest.
    fn next_in_queue(&self, size: BodySize, limits: &Limits) -> Option<usize> {
        let of_size = |bytes: usize| BodySize::of(bytes, limits) == size;
        let waiting = self.queue.0.iter().enumerate().filter(|(_, waiting)| of_size(waiting.bytes));
        let mut waiting = waiting.peekable();
        waiting.peek()?;
        let mut held = HashMap::<Caller, usize>::new();
        for (_, connection) in self.of_size(size) {
            *held.entry(connection.caller).or_default() += connection.bytes;
        }
        let next = waiting.min_by_key(|(_, waiting)| {
            let connection = self.connections.get(&waiting.id);
            let of_caller = connection.and_then(|connection| held.get(&connection.caller)).copied().unwrap_or_default();
            (!connection.is_some_and(|connection| self.is_known(connection)), of_caller + waiting.bytes)
        });
        next.map(|(place, _)| place)
    }
}
