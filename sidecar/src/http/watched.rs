//! A connection's socket, which notes its progress, and writes the pieces of an answer in one call.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http::body::Buffer;
use crate::http::listen::Gather;
use crate::http::progress::Progress;

/// Size in bytes up to which a head and the pieces behind it are joined: copying so much is faster than another piece
/// in a vectored write.
const JOINED: usize = 2 * 1024;
/// Number of buffers in one write, the joined one included. Answers need no more; if one does, no pieces are joined.
const GATHERED: usize = 4;

/// A socket that notes its progress.
pub(crate) struct Watched<S> {
    stream: TokioIo<S>,
    progress: Arc<Progress>,
}

impl<S> Watched<S> {
    /// Wraps the socket of a connection.
    pub(crate) fn new(stream: S, progress: Arc<Progress>) -> Watched<S> {
        Watched { stream: TokioIo::new(stream), progress }
    }
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
        // Hyper flushes when everything that it buffered has been written.
        self.progress.flushed();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Joins the first pieces while they are short together, and returns the rest.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_leading_pieces_are_joined() {
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
}
