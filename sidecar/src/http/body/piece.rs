//! Pieces of a body, which are sent from where they are stored.

use std::ops::Range;

use bytes::{Buf, Bytes};

use super::buffer::Buffer;
use crate::volume::Region;

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
            Piece::Built(buffer, sent) => buffer.as_ref().get(*sent..).unwrap_or_default(),
            Piece::Prepared(bytes) => bytes,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Piece::Constant(bytes) => *bytes = bytes.get(count..).unwrap_or_default(),
            Piece::Mapped(_, range) => range.start = range.end.min(range.start.saturating_add(count)),
            Piece::Built(buffer, sent) => {
                *sent = sent.saturating_add(count);
                if *sent < buffer.as_ref().len() {
                    buffer.touch();
                }
            }
            Piece::Prepared(bytes) => bytes.advance(count.min(bytes.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piece_is_sent_whole_in_portions_of_any_size() {
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
}
