//! The progress of a connection: what it is doing, since when, and what it holds in memory.
//!
//! A timer per request would cost every request of the many for the few that are slow. So each connection only notes what
//! it is doing since when, and once a second somebody looks at all of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::budget::{Hold, InFlight};

/// Time limits of the connections of a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Number of connections, streams not counted. Beyond it a new one takes the place of another.
    pub(crate) connections: usize,
    /// How long one may be open without a request. Longer than clients keep theirs: who closes first
    /// must be the client, or it writes into a closed connection.
    pub(crate) idle: Duration,
    /// How long a request may take to arrive, from its first byte to its last.
    pub(crate) receive: Duration,
    /// How long an answer may take to be fetched, from its first byte to its last.
    pub(crate) send: Duration,
    /// How long the last answers may take when the process ends.
    pub(crate) drain: Duration,
}

impl Limits {
    /// Of a port with room for so many connections, whose requests take so long to arrive at most.
    pub(crate) fn of(connections: usize, receive: Duration) -> Limits {
        Limits {
            connections,
            idle: Duration::from_secs(30 * 60),
            receive,
            send: Duration::from_secs(30),
            drain: Duration::from_millis(800),
        }
    }
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for its first request.
    Fresh,
    /// Its first request is arriving.
    First,
    /// Waiting for another request.
    Idle,
    /// Another request is arriving.
    Receiving,
    /// An answer is leaving.
    Answering,
    /// Events leave when they come.
    Streaming,
    /// An event is leaving.
    Telling,
}

impl Phase {
    /// Order in which connections make room for others, the lowest first; none for those that never do.
    ///
    /// A connection that never sent a whole request goes before one that did, and one in the middle of a request before
    /// one that waits for the next, which may be in a client's pool. Streams have a limit of their own.
    pub(crate) fn eviction_rank(self) -> Option<u8> {
        match self {
            Phase::Fresh | Phase::First => Some(0),
            Phase::Receiving => Some(1),
            Phase::Idle => Some(2),
            Phase::Answering => Some(3),
            Phase::Streaming | Phase::Telling => None,
        }
    }
}

/// Number of bits that a phase takes.
const PHASE_BITS: u32 = 3;

/// Seconds that fit beside a phase, some 17 years.
pub(crate) const MAX_SECONDS: u32 = u32::MAX >> PHASE_BITS;

/// What a connection is doing, and since when: the phase in the lower three bits, seconds above them.
#[derive(Debug)]
pub(crate) struct Progress {
    word: AtomicU32,
    clock: Arc<AtomicU32>,
    in_flight: InFlight,
    task: OnceLock<AbortHandle>,
}

/// State of a connection at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u32);

impl Progress {
    /// Progress of a new connection, by a clock of seconds.
    pub(crate) fn new(clock: &Arc<AtomicU32>, in_flight: &InFlight) -> Progress {
        let (clock, in_flight) = (Arc::clone(clock), in_flight.clone());
        let progress = Progress { word: AtomicU32::new(0), clock, in_flight, task: OnceLock::new() };
        progress.enter(Phase::Fresh);
        progress
    }

    /// Names the task that serves the connection.
    pub(crate) fn served_by(&self, task: AbortHandle) {
        // There is one, which is named once.
        let _ = self.task.set(task);
    }

    /// Closes the connection as soon as the runtime comes to its task.
    pub(crate) fn close(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// True once nothing of the connection is left.
    pub(crate) fn is_over(&self) -> bool {
        self.task.get().is_some_and(AbortHandle::is_finished)
    }

    /// Counts bytes of a body that the connection keeps in memory, for as long as the result lives.
    pub(crate) fn hold_body(&self, bytes: usize) -> Hold {
        self.in_flight.bodies.hold(bytes, self.task.get().cloned())
    }

    /// The same for bytes of an answer.
    pub(crate) fn hold_answer(&self, bytes: usize) -> Hold {
        self.in_flight.answers.hold(bytes, self.task.get().cloned())
    }

    /// Notes that the connection does something else from now on.
    pub(crate) fn enter(&self, phase: Phase) {
        self.word.store(self.clock.load(Ordering::Relaxed) << PHASE_BITS | phase as u32, Ordering::Relaxed);
    }

    /// What the connection is doing.
    pub(crate) fn phase(&self) -> Phase {
        match self.word.load(Ordering::Relaxed) & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Fresh,
            1 => Phase::First,
            2 => Phase::Idle,
            3 => Phase::Receiving,
            4 => Phase::Answering,
            5 => Phase::Streaming,
            _ => Phase::Telling,
        }
    }

    /// Seconds since the connection began to do that.
    pub(crate) fn seconds(&self) -> u32 {
        let now = self.clock.load(Ordering::Relaxed);
        now.saturating_sub(self.word.load(Ordering::Relaxed) >> PHASE_BITS)
    }

    /// A request is arriving; the first word of it counts.
    pub(crate) fn receiving(&self) {
        match self.phase() {
            Phase::Idle => self.enter(Phase::Receiving),
            Phase::Fresh => self.enter(Phase::First),
            _ => {}
        }
    }

    /// The answer is known.
    pub(crate) fn answering(&self) {
        self.enter(Phase::Answering);
    }

    /// The answer is a stream, and will be for as long as it likes.
    pub(crate) fn streaming(&self) {
        self.enter(Phase::Streaming);
    }

    /// The answer is a stream, and something of it leaves. What waits already counts from its own time.
    pub(crate) fn telling(&self) {
        if self.phase() != Phase::Telling {
            self.enter(Phase::Telling);
        }
    }

    /// How it stands, to go on from there.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.word.load(Ordering::Relaxed))
    }

    /// The answer that was known then is not through yet, whatever was sent meanwhile.
    pub(crate) fn resume(&self, mark: Mark) {
        self.word.store(mark.0, Ordering::Relaxed);
    }

    /// What was known has been sent.
    pub(crate) fn flushed(&self) {
        match self.phase() {
            Phase::Answering => self.enter(Phase::Idle),
            Phase::Telling => self.enter(Phase::Streaming),
            _ => {}
        }
    }

    /// True if a client follows events on the connection.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.phase(), Phase::Streaming | Phase::Telling)
    }

    /// True if the connection waits for a request, its first or another.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase(), Phase::Fresh | Phase::Idle)
    }

    /// True if the connection has been doing the same for longer than it may.
    pub(crate) fn is_overdue(&self, limits: &Limits) -> bool {
        let limit = match self.phase() {
            Phase::Fresh | Phase::Idle => limits.idle,
            Phase::First | Phase::Receiving => limits.receive,
            Phase::Answering | Phase::Telling => limits.send,
            // How many there may be is bounded; each comes to its end by itself.
            Phase::Streaming => return false,
        };
        u64::from(self.seconds()) > limit.as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For how long clients keep a connection that they do not use, if nobody tells them otherwise. Others keep theirs
    /// until it is closed (Python's requests), and look whether it was before they use it.
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
    fn connection_is_overdue_by_what_it_is_doing() {
        let clock = Arc::new(AtomicU32::new(100));
        let limits = Limits::of(1, Duration::from_secs(10));
        let progress = Progress::new(&clock, &InFlight::default());
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
        assert!(!overdue_after(100_000), "who listens may be silent");
        progress.telling();
        clock.store(110, Ordering::Relaxed);
        progress.telling();
        assert!(!overdue_after(25) && overdue_after(26), "the first event that is not fetched counts");
        progress.flushed();
        assert!(!overdue_after(100_000));
        progress.answering();
        let mark = progress.mark();
        progress.flushed();
        progress.resume(mark);
        assert!(!overdue_after(30) && overdue_after(31), "not through yet");
    }
}
