//! Activity of a connection, and the deadlines that follow from it.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::Limits;

/// Activity of a connection.
pub(super) struct Activity {
    state: Mutex<State>,
}

struct State {
    under_way: usize,
    /// Time at which the last request ended, or the connection started.
    quiet_since: Instant,
    /// Time of the first byte of the next head.
    head_since: Option<Instant>,
    /// Time since which the caller reads nothing of what is written.
    stuck_since: Option<Instant>,
}

impl Activity {
    pub(super) fn new() -> Activity {
        let state = State { under_way: 0, quiet_since: Instant::now(), head_since: None, stuck_since: None };
        Activity { state: Mutex::new(state) }
    }

    /// Returns the time at which the connection will have been idle or too slow for too long. The deadline may move
    /// later until then.
    pub(super) fn deadline(&self, limits: &Limits) -> Instant {
        let state = self.state.lock();
        if state.under_way > 0 {
            // A request has its own time limit, so the next check comes after that.
            return Instant::now() + limits.request + Duration::from_millis(10);
        }
        let idle = state.quiet_since + limits.idle;
        let head = state.head_since.map(|since| since + limits.head);
        let stuck = state.stuck_since.map(|since| since + limits.request);
        // No event reports that a head starts or that a caller stops reading, so the deadline is checked more often.
        let next_check = Instant::now() + limits.head.min(limits.request) / 2;
        [head, stuck].into_iter().flatten().min().unwrap_or(next_check).min(idle)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.state.lock().under_way > 0
    }

    /// Marks the connection as busy until the guard is dropped, also if the caller disconnects.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        let mut state = self.state.lock();
        state.under_way += 1;
        state.head_since = None;
        Busy(Arc::clone(self))
    }

    fn read(&self) {
        let mut state = self.state.lock();
        if state.under_way == 0 {
            state.head_since.get_or_insert_with(Instant::now);
        }
    }

    fn wrote<T>(&self, polled: &Poll<io::Result<T>>) {
        let mut state = self.state.lock();
        match polled {
            Poll::Ready(_) => state.stuck_since = None,
            Poll::Pending => {
                state.stuck_since.get_or_insert_with(Instant::now);
            }
        }
    }
}

/// Guard of a request under way.
pub(super) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.under_way -= 1;
        state.quiet_since = Instant::now();
    }
}

/// Stream that reports reads and writes to an [`Activity`].
pub(super) struct TrackedStream<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> TrackedStream<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> TrackedStream<S> {
        TrackedStream { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let tracked = self.get_mut();
        let before = into.filled().len();
        let polled = Pin::new(&mut tracked.stream).poll_read(context, into);
        if into.filled().len() > before {
            tracked.activity.read();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let tracked = self.get_mut();
        let polled = Pin::new(&mut tracked.stream).poll_write(context, bytes);
        tracked.activity.wrote(&polled);
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tracked = self.get_mut();
        let polled = Pin::new(&mut tracked.stream).poll_flush(context);
        tracked.activity.wrote(&polled);
        polled
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let tracked = self.get_mut();
        let polled = Pin::new(&mut tracked.stream).poll_write_vectored(context, slices);
        tracked.activity.wrote(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
