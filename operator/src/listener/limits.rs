//! Bounds of a listener.

use std::time::Duration;

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for the TLS handshake, from the start of the connection. The listener closes a connection that takes
    /// longer.
    pub handshake: Duration,
    /// Bytes that a caller may send before its TLS handshake is complete. The listener closes a connection that sends
    /// more.
    pub handshake_bytes: usize,
    /// Time for the head of a request, from its first byte. The listener closes a connection that takes longer.
    pub head: Duration,
    /// Largest size of a request's head in bytes. A larger head gets status 431.
    pub head_bytes: usize,
    /// Time for a request's body, from the moment the listener starts to read it. A body that takes longer gets status
    /// 408.
    pub body: Duration,
    /// Time from a request's head to its answer, less than the registration's `timeoutSeconds`. A request that spends
    /// it on the wait for its reservation of bytes gets status 503, any other gets 408. The listener also closes a
    /// connection whose caller reads no byte of an answer for as long.
    pub request: Duration,
    /// Time between two requests of a connection, and before its first. The listener then closes the connection.
    pub idle: Duration,
    /// Number of connections at a time. For one more, the address with the most connections loses one.
    pub connections: usize,
    /// Number of connections, out of `connections`, that known addresses keep whatever other callers do. An address is
    /// known after it got a useful answer.
    pub kept: usize,
    /// Largest size of a body in bytes. A larger body gets status 413.
    pub largest_body: usize,
    /// Largest size in bytes of a body that counts as small.
    pub small_body: usize,
    /// Bytes of all small bodies under way, over all connections. For more, the address with the most of them loses
    /// one, or the request waits.
    pub small_bytes: usize,
    /// Bytes of all other bodies under way, over all connections. For more, the same happens as for `small_bytes`.
    pub large_bytes: usize,
    /// Bytes of all answers that callers have not read, over all connections. For more, the address with the most of
    /// them loses a connection: first one whose answer is older than a second.
    pub unread_bytes: usize,
    /// Time from the signal to end until the listener takes no more requests. Within it, every node learns that this
    /// replica is not ready. Each answer of that time closes its connection.
    pub linger: Duration,
    /// Time after `linger` for requests under way. The listener then closes their connections.
    pub drain: Duration,
}

impl Limits {
    /// Returns the bounds of the webhook.
    #[must_use]
    pub fn webhook() -> Limits {
        Limits {
            handshake: Duration::from_secs(5),
            // A ClientHello takes less than 2 KiB, even with a session ticket and a post-quantum key.
            handshake_bytes: 16 << 10,
            head: Duration::from_secs(5),
            head_bytes: 16 << 10,
            body: Duration::from_secs(2),
            request: Duration::from_secs(4),
            // An API server keeps an unused connection for 90 s. If the listener closed it first, the API server could
            // send a request at the same moment, and nothing repeats that request.
            idle: Duration::from_secs(120),
            connections: 1024,
            kept: 512,
            // A pod may be 3 MiB, and an admission review has the request's options in addition.
            largest_body: 8 << 20,
            small_body: 64 << 10,
            small_bytes: 8 << 20,
            large_bytes: 16 << 20,
            // The answer about a pod of 1,000 containers takes 400 kB.
            unread_bytes: 16 << 20,
            linger: Duration::from_secs(5),
            drain: Duration::from_secs(10),
        }
    }

    /// Returns the bounds of the receiver of webhooks. All requests may come from one address, that of an Ingress.
    #[must_use]
    pub fn receiver() -> Limits {
        Limits {
            connections: 256,
            kept: 128,
            // The value of a flag has at most 20,000 characters, and a webhook has its old and new state.
            largest_body: 256 << 10,
            small_body: 64 << 10,
            small_bytes: 2 << 20,
            large_bytes: 2 << 20,
            unread_bytes: 1 << 20,
            linger: Duration::ZERO,
            drain: Duration::from_secs(1),
            ..Limits::webhook()
        }
    }

    /// Returns the bounds of the admin port, whose requests have no body.
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
            unread_bytes: 16 << 20,
            // The admin port stays open while the other parts end, so it needs no extra time.
            linger: Duration::ZERO,
            drain: Duration::from_secs(1),
            ..Limits::webhook()
        }
    }
}

/// Phase of a listener's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shutdown {
    /// The listener accepts connections and requests.
    Serving,
    /// The listener answers requests and closes their connections.
    Leaving,
    /// The listener answers only the requests under way.
    Ending,
}
