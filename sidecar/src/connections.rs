//! Connections: accepted up to a limit, watched while they are open, drained at the end.
//!
//! A timer per request would cost every request of the many for the few that are slow. So each
//! connection only notes what it is doing since when, and once a second somebody looks at all of them.

use std::cmp::Reverse;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use crate::body::{Body, Buffer};
use crate::listen::{Gather, Listen};
use crate::log;

/// The head of a request: its first line and all headers.
const MAX_HEAD: usize = 16 * 1024;
/// What a connection buffers at most. A body comes through in portions of this.
const MAX_BUFFER: usize = 64 * 1024;
/// A head and what follows it are joined as far as they are this short together: to copy so much takes less time than the
/// system needs to gather another piece.
const JOINED: usize = 2 * 1024;
/// Answers have fewer pieces behind the first ones; where one has more, none are joined.
const GATHERED: usize = 4;

/// What connections may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How many there may be.
    pub(crate) connections: usize,
    /// How long one may be open without a request. Longer than clients keep theirs: who closes first
    /// must be the client, or it writes into a closed connection.
    pub(crate) idle: Duration,
    /// How long a request may take to arrive.
    pub(crate) receive: Duration,
    /// How long an answer may take to be fetched.
    pub(crate) send: Duration,
    /// How long the last answers may take when the process ends.
    pub(crate) drain: Duration,
}

impl Limits {
    /// Of a port with room for so many connections.
    pub(crate) fn of(connections: usize) -> Limits {
        Limits {
            connections,
            idle: Duration::from_secs(30 * 60),
            receive: Duration::from_secs(10),
            send: Duration::from_secs(30),
            drain: Duration::from_millis(800),
        }
    }
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for a request.
    Idle,
    /// A request is arriving.
    Receiving,
    /// An answer is leaving.
    Answering,
    /// Events leave when they come.
    Streaming,
    /// An event is leaving.
    Telling,
}

/// How many bits a phase takes.
const PHASE_BITS: u32 = 3;

/// What a connection is doing, and since when: the phase in the lower three bits, seconds above them.
#[derive(Debug)]
pub(crate) struct Progress {
    word: AtomicU32,
    clock: Arc<AtomicU32>,
}

/// How a connection stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u32);

impl Progress {
    fn new(clock: &Arc<AtomicU32>) -> Progress {
        let progress = Progress { word: AtomicU32::new(0), clock: Arc::clone(clock) };
        progress.enter(Phase::Idle);
        progress
    }

    fn enter(&self, phase: Phase) {
        self.word.store(self.clock.load(Ordering::Relaxed) << PHASE_BITS | phase as u32, Ordering::Relaxed);
    }

    fn phase(&self) -> Phase {
        match self.word.load(Ordering::Relaxed) & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Idle,
            1 => Phase::Receiving,
            2 => Phase::Answering,
            3 => Phase::Streaming,
            _ => Phase::Telling,
        }
    }

    fn seconds(&self) -> u32 {
        let now = self.clock.load(Ordering::Relaxed);
        now.saturating_sub(self.word.load(Ordering::Relaxed) >> PHASE_BITS)
    }

    /// A request is arriving; the first word of it counts.
    pub(crate) fn receiving(&self) {
        if self.phase() == Phase::Idle {
            self.enter(Phase::Receiving);
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
    fn flushed(&self) {
        match self.phase() {
            Phase::Answering => self.enter(Phase::Idle),
            Phase::Telling => self.enter(Phase::Streaming),
            Phase::Idle | Phase::Receiving | Phase::Streaming => {}
        }
    }

    /// Whether it is somebody's who listens.
    fn is_stream(&self) -> bool {
        matches!(self.phase(), Phase::Streaming | Phase::Telling)
    }

    fn is_overdue(&self, limits: &Limits) -> bool {
        let limit = match self.phase() {
            Phase::Idle => limits.idle,
            Phase::Receiving => limits.receive,
            Phase::Answering | Phase::Telling => limits.send,
            // How many there may be is bounded; each comes to its end by itself.
            Phase::Streaming => return false,
        };
        u64::from(self.seconds()) > limit.as_secs()
    }
}

/// A socket that notes what happens on it.
struct Watched<S> {
    stream: TokioIo<S>,
    progress: Arc<Progress>,
}

impl<S: AsyncRead + Unpin> Read for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = read {
            self.progress.receiving();
        }
        read
    }
}

impl<S: AsyncWrite + Gather + Unpin> Write for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut joined = Buffer::take();
        let rest = join(pieces, joined.bytes());
        if rest.is_empty() {
            return self.stream.inner().poll_gather(cx, &[io::IoSlice::new(joined.as_ref())]);
        }
        let mut room = [io::IoSlice::new(joined.as_ref()); GATHERED];
        let fewer = match room.get_mut(..=rest.len()) {
            Some([_, others @ ..]) if rest.len() + 1 < pieces.len() => {
                others.copy_from_slice(rest);
                room.get(..=rest.len()).unwrap_or(pieces)
            }
            _ => pieces,
        };
        self.stream.inner().poll_gather(cx, fewer)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Asked for when everything that was buffered has been written.
        self.progress.flushed();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Joins the first pieces as far as they are short, and returns the rest.
fn join<'p, 'b>(pieces: &'p [io::IoSlice<'b>], joined: &mut Vec<u8>) -> &'p [io::IoSlice<'b>] {
    let mut rest = pieces;
    while let [piece, others @ ..] = rest
        && joined.len().saturating_add(piece.len()) <= JOINED
    {
        joined.extend_from_slice(piece);
        rest = others;
    }
    rest
}

/// The connections of one port.
struct Connections {
    limits: Limits,
    open: Vec<(Arc<Progress>, AbortHandle)>,
    clock: Arc<AtomicU32>,
    started: Instant,
}

impl Connections {
    fn tick(&self) {
        let seconds = u32::try_from(self.started.elapsed().as_secs()).unwrap_or(u32::MAX >> PHASE_BITS);
        self.clock.store(seconds, Ordering::Relaxed);
    }

    /// Forgets those that ended, and ends those that take too long.
    fn sweep(&mut self) {
        self.tick();
        self.open.retain(|(progress, task)| {
            if progress.is_overdue(&self.limits) {
                log::debug!("a connection was closed: {:?} for {} s", progress.phase(), progress.seconds());
                task.abort();
            }
            !task.is_finished()
        });
    }

    /// Makes room for one more: if need be, by closing the one that has been idle for longest.
    fn make_room(&mut self) -> bool {
        if self.has_room() {
            return true;
        }
        self.sweep();
        if self.has_room() {
            return true;
        }
        let idle = self.open.iter().enumerate().filter(|(_, (progress, _))| progress.phase() == Phase::Idle);
        // Of equally long ones the first: they are in the order in which they came.
        let longest = idle.min_by_key(|(_, (progress, _))| Reverse(progress.seconds())).map(|(index, _)| index);
        if let Some(index) = longest {
            let (_, task) = self.open.remove(index);
            task.abort();
        }
        longest.is_some()
    }

    /// Streams have a limit of their own.
    fn has_room(&self) -> bool {
        let counts = |(progress, _): &&(Arc<Progress>, AbortHandle)| !progress.is_stream();
        self.open.len() < self.limits.connections || self.open.iter().filter(counts).count() < self.limits.connections
    }

    fn admit<L, S>(&mut self, stream: L::Stream, service: impl FnOnce(Arc<Progress>) -> S)
    where
        L: Listen,
        S: Service<Request<Incoming>, Response = Response<Body>> + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if !self.make_room() {
            L::refuse(&stream, b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            log::warning!("a connection was refused: there are {} already, none of them idle", self.open.len());
            return;
        }
        self.tick();
        let progress = Arc::new(Progress::new(&self.clock));
        let socket = Watched { stream: TokioIo::new(stream), progress: Arc::clone(&progress) };
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_header_size(MAX_HEAD)
            .max_buf_size(MAX_BUFFER)
            .serve_connection(socket, service(Arc::clone(&progress)));
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                log::debug!("a connection ended: {error}");
            }
        });
        self.open.push((progress, task.abort_handle()));
    }
}

/// Serves a port until `stop` changes, and then for as long as answers take to be sent.
pub(crate) async fn serve<L, S>(
    listener: L,
    limits: Limits,
    service: impl Fn(Arc<Progress>) -> S,
    mut stop: watch::Receiver<bool>,
) where
    L: Listen,
    S: Service<Request<Incoming>, Response = Response<Body>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let clock = Arc::new(AtomicU32::new(0));
    let mut connections = Connections { limits, open: Vec::new(), clock, started: Instant::now() };
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = listener.next() => match accepted {
                Ok(stream) => connections.admit::<L, S>(stream, &service),
                Err(error) => {
                    // Out of descriptors, most likely: what is open goes on, and some of it ends.
                    log::warning!("a connection could not be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            _ = seconds.tick() => connections.sweep(),
            _ = stop.changed() => break,
        }
    }
    drop(listener);
    let deadline = Instant::now() + limits.drain;
    loop {
        connections.open.retain(|(progress, task)| {
            if progress.phase() == Phase::Idle {
                task.abort();
            }
            !task.is_finished()
        });
        if connections.open.is_empty() || Instant::now() >= deadline {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use hyper::service::service_fn;
    use tokio::io::AsyncWriteExt as _;
    use tokio::sync::mpsc;

    use super::*;
    use crate::answer::{Answer, Kind};

    #[tokio::test]
    async fn who_does_not_take_what_it_is_told_is_let_go() {
        let path = std::env::temp_dir().join(format!("remora-unread-{}", std::process::id()));
        let listener = crate::listen::Socket::bind(&path).unwrap();
        let (teller, events) = mpsc::channel(1);
        let events = std::sync::Mutex::new(Some(events));
        let service = move |progress: Arc<Progress>| {
            let events = events.lock().unwrap().take().unwrap();
            let answer = std::sync::Mutex::new(Some(Body::events(events)));
            service_fn(move |request: Request<Incoming>| {
                let body = answer.lock().unwrap().take().unwrap();
                let mut answer = Answer::new(http::StatusCode::OK, Kind::Events, body);
                answer.note(&progress);
                let headers = request.into_parts().0.headers;
                std::future::ready(Ok::<_, Infallible>(answer.into_response(headers, false)))
            })
        };
        let limits = Limits { send: Duration::from_secs(1), ..Limits::of(8) };
        let (_stop, stopped) = watch::channel(false);
        let serving = serve(listener, limits, service, stopped);
        let talking = async {
            let mut silent = tokio::net::UnixStream::connect(&path).await.unwrap();
            silent.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            // As long as somebody takes it: the socket's buffer, and then nobody.
            while teller.send(Bytes::from_static(&[b'x'; 1024])).await.is_ok() {}
            drop(silent);
        };
        tokio::select! {
            () = serving => panic!("nobody told it to stop"),
            told = tokio::time::timeout(Duration::from_secs(60), talking) => told.expect("it is still told"),
        }
        std::fs::remove_file(&path).unwrap_or_default();
    }

    #[test]
    fn pieces_are_joined_as_far_as_they_are_short() {
        let text = [b'x'; JOINED + 1];
        let lengths = |lengths: &[usize]| {
            let pieces: Vec<_> = lengths.iter().map(|length| io::IoSlice::new(&text[..*length])).collect();
            let mut joined = Vec::new();
            let rest = join(&pieces, &mut joined);
            (joined.len(), rest.iter().map(|piece| piece.len()).collect::<Vec<_>>())
        };
        assert_eq!(lengths(&[]), (0, vec![]));
        assert_eq!(lengths(&[2, 0, 3]), (5, vec![]));
        assert_eq!(lengths(&[JOINED - 1, 1, 0, 1]), (JOINED, vec![1]));
        assert_eq!(lengths(&[JOINED, 1]), (JOINED, vec![1]));
        assert_eq!(lengths(&[3, JOINED, 1]), (3, vec![JOINED, 1]));
        assert_eq!(lengths(&[JOINED + 1, 1]), (0, vec![JOINED + 1, 1]));
    }

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
    fn it_is_clients_who_close_what_they_do_not_use() {
        for (client, kept) in KEPT {
            assert!(Limits::of(1).idle > kept, "{client} may write into a connection that is being closed");
        }
    }

    #[test]
    fn a_connection_is_overdue_by_what_it_is_doing() {
        let clock = Arc::new(AtomicU32::new(100));
        let limits = Limits::of(1);
        let progress = Progress::new(&clock);
        let overdue_after = |seconds: u32| {
            let start = clock.load(Ordering::Relaxed);
            clock.store(start + seconds, Ordering::Relaxed);
            let overdue = progress.is_overdue(&limits);
            clock.store(start, Ordering::Relaxed);
            overdue
        };
        assert!(!overdue_after(1800) && overdue_after(1801));
        progress.receiving();
        assert!(!overdue_after(10) && overdue_after(11));
        clock.store(105, Ordering::Relaxed);
        progress.receiving();
        assert!(!overdue_after(5) && overdue_after(6), "dripping does not help");
        progress.flushed();
        assert!(overdue_after(6), "a flush before the answer is not its end");
        progress.answering();
        assert!(!overdue_after(30) && overdue_after(31));
        progress.flushed();
        assert!(!overdue_after(1800) && overdue_after(1801));
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
