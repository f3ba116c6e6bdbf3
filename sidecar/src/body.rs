//! Bodies of answers: borrowed bytes, or a buffer that is reused.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc;

use crate::budget::Hold;
use crate::document::Delivery;
use crate::map::Region;
use crate::progress::Progress;

/// Number of buffers that are kept for later answers, and largest capacity of a kept buffer in bytes. Their product
/// bounds the memory that a burst of large answers leaves behind.
const KEPT_BUFFERS: usize = 8;
pub(crate) const KEPT_BYTES: usize = 64 * 1024;

/// Size in bytes up to which an answer does not count among the bytes in flight. Most answers are smaller and are sent
/// at once.
const SMALL: usize = 4 * 1024;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer for an answer that is built. It returns to its thread's pool when the answer has been sent.
#[derive(Debug)]
pub(crate) struct Buffer(Vec<u8>, Option<Hold>);

impl Buffer {
    /// Takes an empty buffer from the pool, or allocates one.
    pub(crate) fn take() -> Buffer {
        let kept = BUFFERS.try_with(|buffers| buffers.try_borrow_mut().ok()?.pop());
        Buffer(kept.ok().flatten().unwrap_or_default(), None)
    }

    /// The content.
    pub(crate) fn as_ref(&self) -> &[u8] {
        &self.0
    }

    /// The content, to append to.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Counts the buffer's memory among the bytes in flight until it is sent.
    fn count(&mut self, progress: &Progress) {
        if self.0.capacity() > SMALL {
            self.1 = Some(progress.hold_answer(self.0.capacity()));
        }
    }

    /// Notes that the client has fetched a part of the content.
    fn touch(&mut self) {
        if let Some(hold) = &mut self.1 {
            hold.touch();
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        if bytes.capacity() == 0 || bytes.capacity() > KEPT_BYTES {
            return;
        }
        bytes.clear();
        // When the thread ends, its pool may already be gone.
        let _ = BUFFERS.try_with(|buffers| {
            if let Ok(mut buffers) = buffers.try_borrow_mut()
                && buffers.len() < KEPT_BUFFERS
            {
                buffers.push(bytes);
            }
        });
    }
}

/// Bytes of an answer, by where they are stored.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes in the binary.
    Constant(&'static [u8]),
    /// Bytes in a file of a snapshot. The file stays mapped until they are sent.
    Mapped(Region, Range<usize>),
    /// Bytes that were built for this answer, and the number of them that are sent.
    Built(Buffer, usize),
    /// Bytes that were built once for many answers.
    Prepared(Bytes),
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        match self {
            Piece::Mapped(_, range) => range.len(),
            other => other.chunk().len(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Piece::Constant(bytes) => bytes,
            Piece::Mapped(region, range) => region.as_ref().get(range.clone()).unwrap_or_default(),
            Piece::Built(buffer, sent) => buffer.0.get(*sent..).unwrap_or_default(),
            Piece::Prepared(bytes) => bytes,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Piece::Constant(bytes) => *bytes = bytes.get(count..).unwrap_or_default(),
            Piece::Mapped(_, range) => range.start = range.end.min(range.start.saturating_add(count)),
            Piece::Built(buffer, sent) => {
                *sent = sent.saturating_add(count);
                if *sent < buffer.0.len() {
                    buffer.touch();
                }
            }
            Piece::Prepared(bytes) => bytes.advance(count.min(bytes.len())),
        }
    }
}

/// The body of an answer: one piece, several pieces in a row, or a stream of events.
#[derive(Debug)]
pub(crate) struct Body(Source);

#[derive(Debug)]
enum Source {
    Whole(Piece),
    Document(Box<Delivery>),
    Events(Listener),
}

/// The receiving end of an event stream, owned by a connection.
#[derive(Debug)]
pub(crate) struct Listener {
    events: mpsc::Receiver<Bytes>,
    progress: Option<Arc<Progress>>,
}

impl Listener {
    fn attend(&mut self, progress: &Arc<Progress>) {
        progress.streaming();
        self.progress = Some(Arc::clone(progress));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let event = ready!(self.events.poll_recv(cx));
        if let Some(progress) = &self.progress {
            if event.is_some() { progress.telling() } else { progress.answering() }
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
        Body(Source::Events(Listener { events, progress: None }))
    }

    /// Creates a body that sends the environment's document.
    pub(crate) fn document(delivery: Delivery) -> Body {
        Body(Source::Document(Box::new(delivery)))
    }

    const fn whole(piece: Piece) -> Body {
        Body(Source::Whole(piece))
    }

    /// Sets the connection that sends the body. A body that takes longer to send notes its progress there.
    pub(crate) fn attend(&mut self, progress: &Arc<Progress>) {
        match &mut self.0 {
            Source::Whole(Piece::Built(buffer, _)) => buffer.count(progress),
            Source::Whole(_) => {}
            Source::Document(delivery) => delivery.attend(progress),
            Source::Events(listener) => listener.attend(progress),
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
            Source::Document(delivery) => ready!(delivery.poll(cx)),
            Source::Events(listener) => ready!(listener.poll(cx)),
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Whole(piece) => !piece.has_remaining(),
            Source::Document(delivery) => delivery.remaining() == 0,
            Source::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Whole(piece) => SizeHint::with_exact(piece.remaining() as u64),
            Source::Document(delivery) => SizeHint::with_exact(delivery.remaining()),
            Source::Events(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_sent_in_any_portions() {
        let mut buffer = Buffer::take();
        buffer.bytes().extend_from_slice(b"abcdef");
        for mut piece in
            [Piece::Constant(b"abcdef"), Piece::Built(buffer, 0), Piece::Prepared(Bytes::from_static(b"abcdef"))]
        {
            let mut sent = Vec::new();
            for portion in [1, 0, 3, 2] {
                sent.extend_from_slice(&piece.chunk()[..portion]);
                piece.advance(portion);
                assert_eq!(piece.remaining(), 6 - sent.len());
            }
            assert_eq!(sent, b"abcdef");
            piece.advance(9);
            assert_eq!(piece.chunk(), b"");
        }
    }

    #[test]
    fn buffers_are_used_again_unless_they_grew_large() {
        let mut one = Buffer::take();
        one.bytes().reserve_exact(1000);
        let address = one.bytes().as_ptr();
        drop(one);
        let mut two = Buffer::take();
        assert_eq!(two.bytes().as_ptr(), address);
        assert!(two.bytes().is_empty());
        two.bytes().reserve_exact(KEPT_BYTES + 1);
        drop(two);
        assert_eq!(Buffer::take().bytes().capacity(), 0);
    }
}
