//! A request's body, as far as it has come.

use bytes::Bytes;
use memmap2::MmapMut;

use crate::body::{Buffer, KEPT_BYTES};
use crate::budget::Hold;

/// The largest body that is read.
pub(crate) const MAX_BODY: usize = 1024 * 1024;
/// Bytes of a body that are received whatever others do.
const SMALL: usize = 4 * 1024;

/// A body, and the place that it has among the bytes in flight.
#[derive(Default)]
pub(crate) struct Received {
    content: Content,
    /// None while there is little of it.
    hold: Option<Hold>,
    /// Number of bytes that the place is for.
    expected: usize,
}

/// What came of a body. Usually it comes at once, and then it stays where it is.
#[derive(Default)]
enum Content {
    #[default]
    Nothing,
    /// One portion, in the connection's buffer.
    Once(Bytes),
    /// Several portions, put together.
    Collected(Buffer),
    /// More than a buffer keeps. Memory of its own goes back to the system as soon as the request has been answered; from a
    /// heap it would not.
    Large(MmapMut, usize),
}

impl Received {
    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Nothing => &[],
            Content::Once(bytes) => bytes,
            Content::Collected(buffer) => buffer.as_ref(),
            Content::Large(memory, length) => memory.get(..*length).unwrap_or_default(),
        }
    }

    /// True if it needs a place before any more of it is received.
    pub(crate) fn needs_hold(&self) -> bool {
        self.hold.is_none() && self.bytes().len() > SMALL
    }

    /// Gives it a place for so many bytes.
    pub(crate) fn hold(&mut self, hold: Hold, expected: usize) {
        (self.hold, self.expected) = (Some(hold), expected);
    }

    /// Frees the connection's buffer: the rest may be long in coming.
    pub(crate) fn keep(&mut self) {
        if let Content::Once(bytes) = &self.content {
            let mut buffer = Buffer::take();
            buffer.bytes().extend_from_slice(bytes);
            self.content = Content::Collected(buffer);
        }
    }

    /// Adds a portion. The caller keeps the whole to [`MAX_BODY`].
    ///
    /// # Errors
    /// If the system has no memory left.
    pub(crate) fn add(&mut self, bytes: Bytes) -> std::io::Result<()> {
        if let Content::Nothing = self.content {
            self.content = Content::Once(bytes);
            return Ok(());
        }
        self.keep();
        if let Some(hold) = &mut self.hold {
            hold.touch();
        }
        match &mut self.content {
            Content::Collected(buffer) if self.expected <= KEPT_BYTES => {
                buffer.bytes().extend_from_slice(&bytes);
            }
            Content::Collected(buffer) => {
                let mut memory = MmapMut::map_anon(MAX_BODY)?;
                let length = put(&mut memory, 0, buffer.as_ref());
                let length = put(&mut memory, length, &bytes);
                self.content = Content::Large(memory, length);
            }
            Content::Large(memory, length) => *length = put(memory, *length, &bytes),
            Content::Nothing | Content::Once(_) => {}
        }
        Ok(())
    }
}

/// Puts bytes at a place, and returns where they end.
fn put(memory: &mut MmapMut, at: usize, bytes: &[u8]) -> usize {
    let end = at + bytes.len();
    if let Some(place) = memory.get_mut(at..end) {
        place.copy_from_slice(bytes);
    }
    end
}
