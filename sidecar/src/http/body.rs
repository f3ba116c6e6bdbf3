//! Bodies of answers: one piece, or portions that are produced while the body is sent.

mod buffer;
mod piece;

use std::convert::Infallible;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc;

use crate::http::progress::Progress;
use crate::volume::Region;
pub(crate) use buffer::Buffer;
pub(crate) use piece::Piece;

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Body(Source);

#[derive(Debug)]
enum Source {
    Whole(Piece),
    Portions(Box<dyn Portions>),
}

/// A body that is produced while it is sent.
pub(crate) trait Portions: Debug + Send {
    /// Sets the connection that sends the body.
    fn track(&mut self, progress: &Arc<Progress>);

    /// Number of bytes that remain to be sent, if it is known.
    fn remaining(&self) -> Option<u64>;

    /// Polls for the next bytes to send. `None` at the end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>>;
}

/// The receiving end of an event stream, owned by a connection.
#[derive(Debug)]
struct Listener {
    events: mpsc::Receiver<Bytes>,
    progress: Option<Arc<Progress>>,
}

impl Portions for Listener {
    fn track(&mut self, progress: &Arc<Progress>) {
        progress.streaming();
        self.progress = Some(Arc::clone(progress));
    }

    fn remaining(&self) -> Option<u64> {
        None
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let event = ready!(self.events.poll_recv(cx));
        if let Some(progress) = &self.progress {
            if event.is_some() { progress.sending_event() } else { progress.answering() }
        }
        Poll::Ready(event.map(Piece::Prepared))
    }
}

impl Body {
    /// A body without bytes.
    pub(crate) const EMPTY: Body = Body::constant(b"");

    /// Creates a body from bytes in the binary.
    pub(crate) const fn constant(bytes: &'static [u8]) -> Body {
        Body::whole(Piece::Constant(bytes))
    }

    /// Creates a body from a buffer.
    pub(crate) fn built(buffer: Buffer) -> Body {
        Body::whole(Piece::Built(buffer, 0))
    }

    /// Creates a body from bytes that many answers share.
    pub(crate) fn prepared(bytes: Bytes) -> Body {
        Body::whole(Piece::Prepared(bytes))
    }

    /// Creates a body that sends each event when it arrives.
    pub(crate) fn events(events: mpsc::Receiver<Bytes>) -> Body {
        Body::portions(Box::new(Listener { events, progress: None }))
    }

    /// Creates a body that is produced while it is sent.
    pub(crate) fn portions(portions: Box<dyn Portions>) -> Body {
        Body(Source::Portions(portions))
    }

    const fn whole(piece: Piece) -> Body {
        Body(Source::Whole(piece))
    }

    /// Sets the connection that sends the body. A body that takes longer to send notes its progress there.
    pub(crate) fn track(&mut self, progress: &Arc<Progress>) {
        match &mut self.0 {
            Source::Whole(Piece::Built(buffer, _)) => buffer.count(progress),
            Source::Whole(_) => {}
            Source::Portions(portions) => portions.track(progress),
        }
    }

    /// Creates a body from `part`. If `part` lies within `region`, as it should, nothing is copied.
    pub(crate) fn part(region: &Region, part: &[u8]) -> Body {
        let whole = region.as_ref();
        let range = part.as_ptr().addr().checked_sub(whole.as_ptr().addr()).and_then(|start| {
            let range = start..start.checked_add(part.len())?;
            (range.end <= whole.len()).then_some(range)
        });
        if let Some(range) = range {
            return Body::whole(Piece::Mapped(region.clone(), range));
        }
        let mut buffer = Buffer::take();
        buffer.bytes().extend_from_slice(part);
        Body::built(buffer)
    }
}

impl http_body::Body for Body {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, Infallible>>> {
        let piece = match &mut self.get_mut().0 {
            Source::Whole(piece) => Some(std::mem::replace(piece, Piece::Constant(b""))).filter(Buf::has_remaining),
            Source::Portions(portions) => ready!(portions.poll(cx)),
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Whole(piece) => !piece.has_remaining(),
            Source::Portions(portions) => portions.remaining() == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Whole(piece) => SizeHint::with_exact(piece.remaining() as u64),
            Source::Portions(portions) => portions.remaining().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
