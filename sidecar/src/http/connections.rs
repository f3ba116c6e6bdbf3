//! Accepts connections up to a limit, evicts others beyond it, sweeps them once a second, and drains them at the end.
//!
//! The operator has a loop of its own (`operator/src/listener`) and shares hyper with this one, and nothing else. Here one
//! thread answers a request in microseconds, so a request must pay for neither a timer nor a task: it stores its phase in
//! one word, and a sweep finds the connections that take too long. The operator answers few requests. They arrive over
//! TLS, on several threads, and take milliseconds; an attacker may share an address with the API server. So each of its
//! connections has timers, and places and bytes are divided among addresses. A common loop would have to be generic over
//! the transport, the clock, the order of eviction and the accounting of bytes, which is all that either loop consists of.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use rustix::io::Errno;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, timeout};

use crate::http::body::Body;
use crate::http::budget::InFlight;
use crate::http::listen::Listen;
use crate::http::progress::{Limits, MAX_SECONDS, Progress};
use crate::http::watched::Watched;
use crate::log;

/// Largest size of a request's head in bytes: its first line and all headers.
const MAX_HEAD: usize = 16 * 1024;
/// Number of bytes of requests that a connection buffers. A body arrives in portions of at most this size.
const MAX_BUFFER: usize = 16 * 1024;
/// Shortest interval between two log lines about connections that cannot be accepted.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Connections of one port, or of several ports that share a limit.
pub(crate) struct Connections {
    limits: Limits,
    in_flight: InFlight,
    /// Open connections in the order in which they were accepted.
    open: Vec<Open>,
    clock: Arc<AtomicU32>,
    started: Instant,
    logged: Option<Instant>,
}

/// An open connection.
struct Open {
    progress: Arc<Progress>,
    /// Address of the client. `None` if it is not known, or if addresses do not tell clients apart.
    address: Option<IpAddr>,
}

impl Connections {
    /// Creates an empty set of connections.
    pub(crate) fn new(limits: Limits, in_flight: &InFlight) -> Rc<RefCell<Connections>> {
        let (clock, started) = (Arc::new(AtomicU32::new(0)), Instant::now());
        let in_flight = in_flight.clone();
        Rc::new(RefCell::new(Connections { limits, in_flight, open: Vec::new(), clock, started, logged: None }))
    }

    fn tick(&self) {
        let seconds = u32::try_from(self.started.elapsed().as_secs()).unwrap_or(MAX_SECONDS);
        self.clock.store(seconds, Ordering::Relaxed);
    }

    /// Forgets connections that ended, and closes those that exceed a time limit.
    fn sweep(&mut self) {
        self.tick();
        self.open.retain(|Open { progress, .. }| {
            if progress.is_overdue(&self.limits) {
                log::debug!(
                    "closed a connection that was in phase {:?} for {} s",
                    progress.phase(),
                    progress.seconds()
                );
                progress.close();
            }
            !progress.has_ended()
        });
    }

    /// Evicts connections until another one can be accepted.
    fn make_room(&mut self) {
        if self.open.len() < self.limits.connections {
            return;
        }
        self.sweep();
        // Streams have a limit of their own.
        while self.open.iter().filter(|open| !open.progress.is_stream()).count() >= self.limits.connections {
            if !self.evict() {
                return;
            }
        }
    }

    /// Closes the least important connection. False if there is none to close.
    ///
    /// Where addresses tell clients apart, the one with the most connections loses one of its own, so that no client
    /// can take the places of others. Among the connections of this client, or of all clients, the one with the lowest
    /// [`Phase::eviction_rank`](crate::http::progress::Phase::eviction_rank) is closed, and among those, the one that has
    /// been in its phase for longest.
    fn evict(&mut self) -> bool {
        let mut shares: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for open in self.open.iter().filter(|open| !open.progress.is_stream()) {
            *shares.entry(open.address).or_default() += 1;
        }
        let candidates = self.open.iter().enumerate().filter_map(|(index, Open { progress, address })| {
            let phase = progress.phase();
            let rank = phase.eviction_rank()?;
            // A connection that never sent a whole request counts from its arrival, whatever it has sent since.
            let waited = if rank == 0 { 0 } else { progress.seconds() };
            Some((shares.get(address).copied(), Reverse(rank), waited, Reverse(index), phase))
        });
        let last = candidates.max_by_key(|(share, rank, waited, index, _)| (*share, *rank, *waited, *index));
        let Some((.., Reverse(index), phase)) = last else { return false };
        log::debug!("closed a connection in phase {phase:?} to make room");
        self.open.remove(index).progress.close();
        true
    }

    /// Logs that a connection could not be accepted. True if an eviction may have fixed the cause.
    fn not_accepted(&mut self, error: &io::Error) -> bool {
        let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].map(Errno::raw_os_error);
        let is_exhausted = error.raw_os_error().is_some_and(|error| exhausted.contains(&error));
        if self.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            self.logged = Some(Instant::now());
            let remedy = if is_exhausted { "; closing another one" } else { "" };
            log::warning!("cannot accept a connection: {error}{remedy}");
        }
        is_exhausted && self.evict()
    }

    fn admit<L, S>(&mut self, stream: L::Stream, address: Option<IpAddr>, service: impl FnOnce(Arc<Progress>) -> S)
    where
        L: Listen,
        S: Service<Request<Incoming>, Response = Response<Body>> + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.make_room();
        self.tick();
        let progress = Arc::new(Progress::new(&self.clock, &self.in_flight));
        let socket = Watched::new(stream, Arc::clone(&progress));
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_header_size(MAX_HEAD)
            .max_buf_size(MAX_BUFFER)
            .serve_connection(socket, service(Arc::clone(&progress)));
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                log::debug!("connection ended: {error}");
            }
        });
        progress.served_by(task.abort_handle());
        self.open.push(Open { progress, address: address.filter(|_| self.limits.by_address) });
    }
}

/// Serves a port until `stop` changes, and then until the answers in progress are sent or the drain time has passed.
pub(crate) async fn serve<L, S>(
    listener: L,
    connections: Rc<RefCell<Connections>>,
    service: impl Fn(Arc<Progress>) -> S,
    mut stop: watch::Receiver<bool>,
) where
    L: Listen,
    S: Service<Request<Incoming>, Response = Response<Body>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let drain = connections.borrow().limits.drain;
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = listener.next() => match accepted {
                Ok((stream, address)) => {
                    connections.borrow_mut().admit::<L, S>(stream, address, &service);
                    // Otherwise a burst of new connections could evict this one before its request is read.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    let may_go_better = connections.borrow_mut().not_accepted(&error);
                    if may_go_better {
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            },
            _ = seconds.tick() => connections.borrow_mut().sweep(),
            _ = stop.changed() => break,
        }
    }
    let deadline = Instant::now() + drain;
    // The kernel has accepted these connections, and would reset them with the listener.
    while Instant::now() < deadline
        && let Ok(Ok((stream, address))) = timeout(Duration::ZERO, listener.next()).await
    {
        connections.borrow_mut().admit::<L, S>(stream, address, &service);
        tokio::task::yield_now().await;
    }
    drop(listener);
    loop {
        // Before the first check, so that requests that have arrived are read.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let is_drained = {
            let open = &mut connections.borrow_mut().open;
            open.retain(|Open { progress, .. }| {
                if progress.is_idle() {
                    progress.close();
                }
                !progress.has_ended()
            });
            open.is_empty()
        };
        if is_drained || Instant::now() >= deadline {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::mpsc;

    use super::*;
    use crate::http::answer::{Answer, ContentType};
    use crate::http::progress::Phase;

    #[tokio::test]
    async fn stream_client_that_does_not_read_is_closed() {
        let path = std::env::temp_dir().join(format!("remora-unread-{}", std::process::id()));
        let listener = crate::http::listen::Socket::bind(&path).unwrap();
        let (sender, events) = mpsc::channel(1);
        let events = std::sync::Mutex::new(Some(events));
        let service = move |progress: Arc<Progress>| {
            let events = events.lock().unwrap().take().unwrap();
            let answer = std::sync::Mutex::new(Some(Body::events(events)));
            service_fn(move |request: Request<Incoming>| {
                let body = answer.lock().unwrap().take().unwrap();
                let mut answer = Answer::new(http::StatusCode::OK, ContentType::Events, body);
                answer.track(&progress);
                let headers = request.into_parts().0.headers;
                std::future::ready(Ok::<_, Infallible>(answer.into_response(headers, false)))
            })
        };
        let limits = Limits { send: Duration::from_secs(1), ..Limits::of(8, Duration::from_secs(10)) };
        let (_stop, stopped) = watch::channel(false);
        let serving = serve(listener, Connections::new(limits, &InFlight::of_data()), service, stopped);
        let talking = async {
            let mut silent = tokio::net::UnixStream::connect(&path).await.unwrap();
            silent.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            // The client reads nothing: sending succeeds until the socket's buffer is full, and ends when the
            // connection is closed.
            while sender.send(Bytes::from_static(&[b'x'; 1024])).await.is_ok() {}
            drop(silent);
        };
        tokio::select! {
            () = serving => panic!("the server ended by itself"),
            closed = tokio::time::timeout(Duration::from_secs(60), talking) => closed.expect("the connection is still open"),
        }
        std::fs::remove_file(&path).unwrap_or_default();
    }

    #[tokio::test]
    async fn connection_that_waits_in_the_backlog_is_answered_at_the_end() {
        const CLIENTS: usize = 32;
        let listener = crate::http::listen::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
            clients.push(client);
        }
        let service = |progress: Arc<Progress>| {
            service_fn(move |request: Request<Incoming>| {
                let mut answer =
                    Answer::new(http::StatusCode::OK, ContentType::Json, Body::prepared(Bytes::from_static(b"{}")));
                answer.track(&progress);
                let headers = request.into_parts().0.headers;
                std::future::ready(Ok::<_, Infallible>(answer.into_response(headers, false)))
            })
        };
        let (stop, stopped) = watch::channel(false);
        stop.send(true).unwrap();
        let limits = Limits::of(CLIENTS, Duration::from_secs(10));
        serve(listener, Connections::new(limits, &InFlight::of_data()), service, stopped).await;
        for client in &mut clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer:?}");
        }
    }

    /// A port whose clients connect faster than the server accepts.
    struct Flood;

    impl Listen for Flood {
        type Stream = tokio::net::UnixStream;

        async fn next(&self) -> io::Result<(Self::Stream, Option<IpAddr>)> {
            Ok((tokio::net::UnixStream::pair()?.0, None))
        }
    }

    #[tokio::test]
    async fn flood_of_connections_does_not_keep_the_server_from_its_end() {
        let (stop, stopped) = watch::channel(false);
        stop.send(true).unwrap();
        let limits = Limits { drain: Duration::from_millis(50), ..Limits::of(8, Duration::from_secs(10)) };
        let service = |_| service_fn(|_| std::future::pending::<Result<Response<Body>, Infallible>>());
        let serving = serve(Flood, Connections::new(limits, &InFlight::of_data()), service, stopped);
        tokio::time::timeout(Duration::from_secs(60), serving).await.expect("the server is still accepting");
    }

    /// Creates connections of these addresses in these phases, each for some seconds, in the order of their arrival.
    fn connections(open: &[(u8, Phase, u32)]) -> Connections {
        let limits = Limits::of(open.len(), Duration::from_secs(10));
        let connections = Connections::new(limits, &InFlight::of_data());
        let mut connections = Rc::into_inner(connections).unwrap().into_inner();
        for (address, phase, seconds) in open {
            connections.clock.store(1000 - seconds, Ordering::Relaxed);
            let progress = Progress::new(&connections.clock, &connections.in_flight);
            progress.enter(*phase);
            connections.open.push(Open { progress: Arc::new(progress), address: Some([10, 0, 0, *address].into()) });
        }
        connections.clock.store(1000, Ordering::Relaxed);
        connections
    }

    #[test]
    fn least_important_connection_is_evicted_first() {
        use Phase::{Answering, First, Fresh, Idle, Receiving, Streaming};
        for (open, order) in [
            // First the connections that never sent a whole request, in the order of arrival; then by phase, and by its
            // duration.
            (
                vec![
                    (1, Streaming, 900),
                    (1, Answering, 9),
                    (1, Idle, 5),
                    (1, Idle, 800),
                    (1, Receiving, 3),
                    (1, Receiving, 4),
                    (1, First, 1),
                    (1, Fresh, 7),
                    (1, First, 2),
                    (1, Answering, 8),
                ],
                vec![6, 7, 8, 5, 4, 3, 2, 1, 9],
            ),
            // The address with the most connections loses one of its own, whatever the phases of others.
            (
                vec![(1, Fresh, 9), (2, Idle, 1), (2, Idle, 2), (2, Answering, 3), (3, Receiving, 9), (3, Idle, 9)],
                vec![2, 4, 1, 0, 5, 3],
            ),
        ] {
            let mut connections = connections(&open);
            let mut left: Vec<usize> = (0..open.len()).collect();
            for expected in order {
                let before: Vec<_> = connections.open.iter().map(|open| Arc::clone(&open.progress)).collect();
                assert!(connections.evict());
                let exists = |progress| connections.open.iter().any(|open| Arc::ptr_eq(&open.progress, progress));
                let gone = before.iter().position(|progress| !exists(progress)).unwrap();
                assert_eq!(left.remove(gone), expected, "{open:?}");
            }
            assert!(!connections.evict(), "streams stay");
        }
    }
}
