//! The bounds of one listener, in numbers.

use std::time::Duration;

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for the TLS handshake, from the connection's start. Beyond it the connection is closed.
    pub handshake: Duration,
    /// Bytes that a caller may send before its TLS handshake is complete. Beyond it the connection is closed.
    pub handshake_bytes: usize,
    /// Time for the head of a request, from its first byte. Beyond it the connection is closed.
    pub head: Duration,
    /// Bytes of a request's head. Beyond it the answer is 431.
    pub head_bytes: usize,
    /// Time for a request's body, from the moment it may be read. Beyond it the answer is 408.
    pub body: Duration,
    /// Time from a request's head to its answer; less than the registration's `timeoutSeconds`. It includes the wait for a
    /// share of bytes, beyond which the answer is 503; otherwise 408. A caller that takes no byte of an answer for as
    /// long is cut off.
    pub request: Duration,
    /// Time between two requests of a connection, and before its first. Beyond it the connection is closed.
    pub idle: Duration,
    /// Connections at a time. Beyond it the address with the most connections loses one.
    pub connections: usize,
    /// Connections that known addresses keep whatever others do, out of `connections`. An address is known once
    /// something useful was answered to it.
    pub kept: usize,
    /// Bytes of the largest body. Beyond it the answer is 413.
    pub largest_body: usize,
    /// Bytes of the largest body that counts as small.
    pub small_body: usize,
    /// Bytes of small bodies under way, over all connections. Beyond it the address with the most of them loses one, or the
    /// request waits.
    pub small_bytes: usize,
    /// Bytes of all other bodies under way, over all connections. Beyond it, as `small_bytes`.
    pub large_bytes: usize,
    /// Time that a listener which is told to end still takes requests, until every node has heard that it is not ready.
    /// Each answer of that time closes its connection.
    pub linger: Duration,
    /// Time after that for the requests under way.
    pub drain: Duration,
}

impl Limits {
    /// Bounds of the webhook.
    #[must_use]
    pub fn webhook() -> Limits {
        Limits {
            handshake: Duration::from_secs(5),
            // A ClientHello takes less than 2 KiB, with a session ticket and a post-quantum key.
            handshake_bytes: 16 << 10,
            head: Duration::from_secs(5),
            head_bytes: 16 << 10,
            body: Duration::from_secs(2),
            request: Duration::from_secs(4),
            // API servers keep a connection that they do not use for 90 s: they send a request on it in the very moment
            // that it is closed here, and nobody repeats it.
            idle: Duration::from_secs(120),
            connections: 1024,
            kept: 512,
            // A pod may be 3 MiB, and the review has its options beside it.
            largest_body: 8 << 20,
            small_body: 64 << 10,
            small_bytes: 8 << 20,
            large_bytes: 16 << 20,
            linger: Duration::from_secs(5),
            drain: Duration::from_secs(10),
        }
    }

    /// Bounds of the admin port, whose requests have no body.
    #[must_use]
    pub fn admin() -> Limits {
        Limits {
            request: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            connections: 256,
            kept: 64,
            largest_body: 0,
            small_body: 0,
            small_bytes: 0,
            large_bytes: 0,
            // It tells that the process ends, for as long as that takes.
            linger: Duration::ZERO,
            drain: Duration::from_secs(1),
            ..Limits::webhook()
        }
    }
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It is not in sight.
    Serving,
    /// Requests are answered, and their connections closed.
    Leaving,
    /// What is under way is answered.
    Ending,
}
