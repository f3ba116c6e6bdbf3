//! The progress of a connection: its phase, the time since the phase began, and the memory that it holds.
//!
//! A timer per request would cost each of many fast requests time for the sake of a few slow ones. Instead, each
//! connection notes its phase, and a sweep checks all connections once a second.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::http::budget::{InFlight, Reservation};

/// Limits of the connections of a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Number of connections, without streams. Beyond it, a new connection takes the place of another one.
    pub(crate) connections: usize,
    /// True if the places of connections are divided among the addresses of clients. False if all connections count as
    /// those of one client.
    pub(crate) by_address: bool,
    /// Time that a connection may be open without a request. It is longer than clients keep idle connections: the
    /// client must close first, or it may send a request on a closed connection.
    pub(crate) idle: Duration,
    /// Time from the first byte of a request to its last.
    pub(crate) receive: Duration,
    /// Time from the first byte of an answer to its last.
    pub(crate) send: Duration,
    /// Time for sending the last answers when the process ends.
    pub(crate) drain: Duration,
}

impl Limits {
    /// Limits of a port with `connections` connections, whose requests may take `receive` to arrive. All connections
    /// count as those of one client.
    pub(crate) fn of(connections: usize, receive: Duration) -> Limits {
        Limits {
            connections,
            by_address: false,
            idle: Duration::from_secs(30 * 60),
            receive,
            send: Duration::from_secs(30),
            drain: Duration::from_millis(800),
        }
    }
}

/// Phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The connection waits for its first request.
    Fresh,
    /// The first request is arriving.
    First,
    /// The connection waits for another request.
    Idle,
    /// Another request is arriving.
    Receiving,
    /// An answer is being sent, all of which is known.
    Answering,
    /// A stream of events waits for the next event.
    Streaming,
    /// An event of a stream is being sent.
    SendingEvent,
    /// An answer is being sent whose rest is produced meanwhile.
    Producing,
}

impl Phase {
    /// Order in which connections are evicted, the lowest first. `None` if the connection is never evicted.
    ///
    /// A connection that never sent a whole request goes before one that did. A connection in the middle of a request
    /// goes before one that waits for the next, which may be in a client's pool. Streams have a limit of their own.
    pub(crate) fn eviction_rank(self) -> Option<u8> {
        match self {
            Phase::Fresh | Phase::First => Some(0),
            Phase::Receiving => Some(1),
            Phase::Idle => Some(2),
            Phase::Answering | Phase::Producing => Some(3),
            Phase::Streaming | Phase::SendingEvent => None,
        }
    }
}

/// Number of bits of a phase.
const PHASE_BITS: u32 = 3;

/// Largest number of seconds that fits beside a phase: some 17 years.
pub(crate) const MAX_SECONDS: u32 = u32::MAX >> PHASE_BITS;

/// Phase of a connection in the lower three bits of a word, and the second at which it began above them.
#[derive(Debug)]
pub(crate) struct Progress {
    word: AtomicU32,
    clock: Arc<AtomicU32>,
    in_flight: InFlight,
    task: OnceLock<AbortHandle>,
}

impl Progress {
    /// Creates the progress of a new connection. `clock` counts seconds.
    pub(crate) fn new(clock: &Arc<AtomicU32>, in_flight: &InFlight) -> Progress {
        let (clock, in_flight) = (Arc::clone(clock), in_flight.clone());
        let progress = Progress { word: AtomicU32::new(0), clock, in_flight, task: OnceLock::new() };
        progress.enter(Phase::Fresh);
        progress
    }

    /// Sets the task that serves the connection.
    pub(crate) fn served_by(&self, task: AbortHandle) {
        // The task is set once, so this cannot fail.
        let _ = self.task.set(task);
    }

    /// Closes the connection when the runtime next runs its task.
    pub(crate) fn close(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// True if the connection's task has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.get().is_some_and(AbortHandle::is_finished)
    }

    /// Reserves bytes of a body that the connection keeps in memory, until the result is dropped.
    pub(crate) fn reserve_body(&self, bytes: usize) -> Reservation {
        self.in_flight.bodies.reserve(bytes, self.task.get().cloned())
    }

    /// Reserves bytes of an answer that the connection keeps in memory, until the result is dropped.
    pub(crate) fn reserve_answer(&self, bytes: usize) -> Reservation {
        self.in_flight.answers.reserve(bytes, self.task.get().cloned())
    }

    /// Notes that a phase begins now.
    pub(crate) fn enter(&self, phase: Phase) {
        self.word.store(self.clock.load(Ordering::Relaxed) << PHASE_BITS | phase as u32, Ordering::Relaxed);
    }

    /// Current phase.
    pub(crate) fn phase(&self) -> Phase {
        match self.word.load(Ordering::Relaxed) & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Fresh,
            1 => Phase::First,
            2 => Phase::Idle,
            3 => Phase::Receiving,
            4 => Phase::Answering,
            5 => Phase::Streaming,
            6 => Phase::SendingEvent,
            _ => Phase::Producing,
        }
    }

    /// Seconds since the current phase began.
    pub(crate) fn seconds(&self) -> u32 {
        let now = self.clock.load(Ordering::Relaxed);
        now.saturating_sub(self.word.load(Ordering::Relaxed) >> PHASE_BITS)
    }

    /// Notes that bytes of a request have arrived. The first ones begin the phase.
    pub(crate) fn receiving(&self) {
        match self.phase() {
            Phase::Idle => self.enter(Phase::Receiving),
            Phase::Fresh => self.enter(Phase::First),
            _ => {}
        }
    }

    /// Notes that the answer is known.
    pub(crate) fn answering(&self) {
        self.enter(Phase::Answering);
    }

    /// Notes that the answer is a stream of events, which has no time limit.
    pub(crate) fn streaming(&self) {
        self.enter(Phase::Streaming);
    }

    /// Notes that the stream sends an event. If one is being sent already, the time still counts from the earlier one.
    pub(crate) fn sending_event(&self) {
        if self.phase() != Phase::SendingEvent {
            self.enter(Phase::SendingEvent);
        }
    }

    /// Notes that a part of the answer is still to be produced. Until [`Progress::produced`], a flush is not its end.
    pub(crate) fn producing(&self) {
        if self.phase() == Phase::Answering {
            self.set_phase(Phase::Producing);
        }
    }

    /// Notes that the last part of the answer is produced.
    pub(crate) fn produced(&self) {
        if self.phase() == Phase::Producing {
            self.set_phase(Phase::Answering);
        }
    }

    /// Sets the phase. The time still counts from the beginning of the phase before.
    fn set_phase(&self, phase: Phase) {
        let seconds = self.word.load(Ordering::Relaxed) >> PHASE_BITS;
        self.word.store(seconds << PHASE_BITS | phase as u32, Ordering::Relaxed);
    }

    /// Notes that all bytes that were known have been sent.
    pub(crate) fn flushed(&self) {
        match self.phase() {
            Phase::Answering => self.enter(Phase::Idle),
            Phase::SendingEvent => self.enter(Phase::Streaming),
            _ => {}
        }
    }

    /// True if the connection serves a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.phase(), Phase::Streaming | Phase::SendingEvent)
    }

    /// True if the connection waits for a request.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase(), Phase::Fresh | Phase::Idle)
    }

    /// True if the current phase has lasted longer than its limit.
    pub(crate) fn is_overdue(&self, limits: &Limits) -> bool {
        let limit = match self.phase() {
            Phase::Fresh | Phase::Idle => limits.idle,
            Phase::First | Phase::Receiving => limits.receive,
            Phase::Answering | Phase::Producing | Phase::SendingEvent => limits.send,
            // The number of streams is bounded, and each ends by itself.
            Phase::Streaming => return false,
        };
        u64::from(self.seconds()) > limit.as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times for which clients keep an idle connection by default. Other clients, such as Python's requests, keep
    /// theirs until it is closed, and check that before they use it.
    const KEPT: [(&str, Duration); 5] = [
        ("undici, the fetch of Node", Duration::from_secs(4)),
        ("reqwest", Duration::from_secs(90)),
        ("Go's net/http", Duration::from_secs(90)),
        ("OkHttp", Duration::from_secs(5 * 60)),
        ("java.net.http of Java 17", Duration::from_secs(20 * 60)),
    ];

    #[test]
    fn idle_connection_is_closed_by_the_client_first() {
        for (client, kept) in KEPT {
            let idle = Limits::of(1, Duration::ZERO).idle;
            assert!(idle > kept, "{client} may write into a connection that is being closed");
        }
    }

    #[test]
    fn connection_is_overdue_by_the_limit_of_its_phase() {
        let clock = Arc::new(AtomicU32::new(100));
        let limits = Limits::of(1, Duration::from_secs(10));
        let progress = Progress::new(&clock, &InFlight::of_data());
        let overdue_after = |seconds: u32| {
            let start = clock.load(Ordering::Relaxed);
            clock.store(start + seconds, Ordering::Relaxed);
            let overdue = progress.is_overdue(&limits);
            clock.store(start, Ordering::Relaxed);
            overdue
        };
        for phase in [Phase::First, Phase::Receiving] {
            clock.store(100, Ordering::Relaxed);
            if phase == Phase::Receiving {
                progress.enter(Phase::Idle);
            }
            assert!(!overdue_after(1800) && overdue_after(1801));
            progress.receiving();
            assert_eq!(progress.phase(), phase);
            assert!(!overdue_after(10) && overdue_after(11));
            clock.store(105, Ordering::Relaxed);
            progress.receiving();
            assert!(!overdue_after(5) && overdue_after(6), "dripping does not help");
            progress.flushed();
            assert!(overdue_after(6), "a flush before the answer is not its end");
            progress.answering();
            assert!(!overdue_after(30) && overdue_after(31));
            progress.flushed();
            assert_eq!(progress.phase(), Phase::Idle);
        }
        progress.streaming();
        assert!(!overdue_after(100_000), "a listener of a stream may be silent");
        progress.sending_event();
        clock.store(110, Ordering::Relaxed);
        progress.sending_event();
        assert!(!overdue_after(25) && overdue_after(26), "the first event that is not fetched counts");
        progress.flushed();
        assert!(!overdue_after(100_000));
        progress.answering();
        progress.producing();
        clock.store(115, Ordering::Relaxed);
        progress.flushed();
        assert!(!progress.is_idle(), "the rest is not produced yet");
        assert!(!overdue_after(25) && overdue_after(26), "the time counts from the answer's first byte");
        progress.produced();
        assert!(!overdue_after(25) && overdue_after(26));
        progress.flushed();
        assert!(progress.is_idle());
    }
}
