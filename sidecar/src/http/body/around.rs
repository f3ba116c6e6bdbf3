//! A spliced body: bytes that were built for one answer, around a shared part that is not copied.

use std::io::IoSlice;

use bytes::Buf;
use remora_snapshot::Shared;

use super::buffer::Buffer;
use crate::http::progress::Progress;

/// A buffer, and the shared part within it.
#[derive(Debug)]
pub(crate) struct Around {
    buffer: Buffer,
    /// Offset in the buffer at which the shared part belongs.
    place: usize,
    shared: Shared,
    /// Number of bytes that are sent.
    sent: usize,
    /// Number of bytes that remain.
    left: usize,
}

impl Around {
    pub(super) fn new(buffer: Buffer, place: usize, shared: Shared) -> Around {
        let left = buffer.as_ref().len() + shared.as_ref().len();
        Around { buffer, place, shared, sent: 0, left }
    }

    /// Counts the buffer's memory among the bytes in flight until all is sent. The shared part does not count.
    pub(super) fn count(&mut self, progress: &Progress) {
        self.buffer.count(progress);
    }

    fn parts(&self) -> [&[u8]; 3] {
        let (before, behind) = self.buffer.as_ref().split_at_checked(self.place).unwrap_or((self.buffer.as_ref(), &[]));
        [before, self.shared.as_ref(), behind]
    }

    /// Returns the parts that are not sent yet.
    fn rest(&self) -> impl Iterator<Item = &[u8]> {
        let mut sent = self.sent;
        self.parts().into_iter().filter_map(move |part| {
            let rest = part.get(sent..);
            sent = sent.saturating_sub(part.len());
            rest.filter(|rest| !rest.is_empty())
        })
    }
}

impl Buf for Around {
    fn remaining(&self) -> usize {
        self.left
    }

    fn chunk(&self) -> &[u8] {
        self.rest().next().unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, rest) in slices.iter_mut().zip(self.rest()) {
            *slice = IoSlice::new(rest);
            count += 1;
        }
        count
    }

    fn advance(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count);
        self.left = self.left.saturating_sub(count);
        if self.left > 0 {
            self.buffer.touch();
        }
    }
}
