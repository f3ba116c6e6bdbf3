//! Pieces of a body, which are sent from where they are stored.

use std::io::IoSlice;
use std::ops::Range;

use bytes::{Buf, Bytes};

use super::around::Around;
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
    /// Bytes that were built for this answer, around a part that it shares with others.
    Around(Around),
    /// Bytes that were built once for many answers.
    Prepared(Bytes),
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        match self {
            Piece::Mapped(_, range) => range.len(),
            Piece::Around(around) => around.remaining(),
            other => other.chunk().len(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Piece::Constant(bytes) => bytes,
            Piece::Mapped(region, range) => region.as_ref().get(range.clone()).unwrap_or_default(),
            Piece::Built(buffer, sent) => buffer.as_ref().get(*sent..).unwrap_or_default(),
            Piece::Around(around) => around.chunk(),
            Piece::Prepared(bytes) => bytes,
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        if let Piece::Around(around) = self {
            return around.chunks_vectored(slices);
        }
        match slices.first_mut() {
            Some(slice) if self.has_remaining() => {
                *slice = IoSlice::new(self.chunk());
                1
            }
            _ => 0,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Piece::Around(around) => around.advance(count),
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
    fn what_is_shared_is_sent_in_its_place_in_any_portions() {
        let environment = crate::dialects::identities::tests::wide();
        let mut subject = remora_snapshot::Subject::default();
        environment.identify(&mut subject, "somebody");
        let mut whole = b"{".to_vec();
        environment.write_flags(&mut subject, remora_snapshot::Role::Client, &mut whole);
        whole.push(b'}');
        for portion in [1, 7, 100, 5000, usize::MAX] {
            let mut answer = || {
                let mut buffer = Buffer::take();
                buffer.bytes().push(b'{');
                let flags = environment.finish_with_flags(&mut subject, remora_snapshot::Role::Client, buffer.bytes());
                Some((buffer, flags.shared?))
            };
            let (buffer, (place, shared)) = std::iter::repeat_with(&mut answer).take(3).flatten().next().unwrap();
            let mut piece = Piece::Around(Around::new(buffer, place, shared));
            let mut sent = Vec::new();
            while piece.has_remaining() {
                let mut slices = [IoSlice::new(b""); 4];
                let count = piece.chunks_vectored(&mut slices);
                let gathered: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                assert_eq!(gathered.len(), piece.remaining());
                assert_eq!(&gathered[..piece.chunk().len()], piece.chunk());
                let now = portion.min(gathered.len());
                sent.extend_from_slice(&gathered[..now]);
                piece.advance(now);
            }
            assert_eq!(sent, whole, "in portions of {portion}");
        }
    }
}
