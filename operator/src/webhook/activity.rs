//! Whether a connection is in use, and how long it may do nothing.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::serve::Limits;

/// What a connection is doing.
pub(super) struct Activity {
    /// Whether bytes that come while no request is under way are the head of the next one.
    has_heads: bool,
    state: Mutex<State>,
}

struct State {
    under_way: usize,
    /// When the last request ended, or the connection began.
    quiet_since: Instant,
    /// When the first byte of the next head came.
    head_since: Option<Instant>,
}

impl Activity {
    pub(super) fn new(has_heads: bool) -> Activity {
        let state = State { under_way: 0, quiet_since: Instant::now(), head_since: None };
        Activity { has_heads, state: Mutex::new(state) }
    }

    /// When the connection has been doing nothing, or too little, for too long. It may get later meanwhile.
    pub(super) fn deadline(&self, limits: &Limits) -> Instant {
        let state = self.state();
        if state.under_way > 0 {
            // It has a time limit of its own, so look again after that.
            return Instant::now() + limits.request + Duration::from_millis(10);
        }
        let idle = state.quiet_since + limits.idle;
        let head = state.head_since.map(|since| since + limits.head);
        // Nobody tells when a head begins: so looking for one happens more often than it has to be found.
        head.map_or_else(|| idle.min(Instant::now() + limits.head / 2), |head| head.min(idle))
    }

    pub(super) fn is_busy(&self) -> bool {
        self.state().under_way > 0
    }

    /// In use until the guard is dropped: also when the caller goes away.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        let mut state = self.state();
        state.under_way += 1;
        state.head_since = None;
        Busy(Arc::clone(self))
    }

    fn read(&self) {
        let mut state = self.state();
        if self.has_heads && state.under_way == 0 {
            state.head_since.get_or_insert_with(Instant::now);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way.
pub(super) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.under_way -= 1;
        state.quiet_since = Instant::now();
    }
}

/// A stream that tells when bytes come.
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Watched<S> {
        Watched { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let watched = self.get_mut();
        let before = into.filled().len();
        let polled = Pin::new(&mut watched.stream).poll_read(context, into);
        if into.filled().len() > before {
            watched.activity.read();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
