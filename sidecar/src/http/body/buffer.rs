//! Buffers for answers that are built, and the pool that keeps them between answers.

use std::cell::RefCell;

use crate::http::budget::Reservation;
use crate::http::progress::Progress;

/// Sum of the capacities in bytes of the buffers that are kept for later answers: the memory that a burst of large
/// answers leaves behind. A buffer that would exceed the sum is not kept. Without a kept buffer, an answer of 128 KiB costs
/// a new mapping and a page fault for each of its pages.
const KEPT_BYTES: usize = 512 * 1024;

/// Size in bytes up to which an answer does not count among the bytes in flight. Most answers are smaller and are sent
/// at once.
const SMALL: usize = 4 * 1024;

/// The buffers that a thread keeps.
struct Pool {
    buffers: Vec<Vec<u8>>,
    /// Sum of their capacities in bytes.
    bytes: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { buffers: Vec::new(), bytes: 0 }) };
}

impl Pool {
    /// Returns the buffer that was kept last, which is the one that is most likely in the processor's cache.
    fn take(&mut self) -> Option<Vec<u8>> {
        let buffer = self.buffers.pop()?;
        self.bytes = self.bytes.saturating_sub(buffer.capacity());
        Some(buffer)
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        let bytes = self.bytes.saturating_add(buffer.capacity());
        if buffer.capacity() == 0 {
            return;
        }
        if bytes <= KEPT_BYTES {
            self.buffers.push(buffer);
            self.bytes = bytes;
        } else {
            // glibc keeps memory up to the size of the largest mapping that was ever freed. A mapping that is shrunk
            // first goes back to the system, and the next large answer gets one of its own, too.
            buffer.shrink_to(SMALL);
        }
    }
}

/// A buffer for an answer that is built. It returns to its thread's pool when the answer has been sent.
#[derive(Debug)]
pub(crate) struct Buffer {
    content: Vec<u8>,
    /// The buffer's memory among the bytes in flight, if it counts there.
    reservation: Option<Reservation>,
}

impl Buffer {
    /// Takes an empty buffer from the pool, or allocates one.
    pub(crate) fn take() -> Buffer {
        let kept = POOL.try_with(|pool| pool.try_borrow_mut().ok()?.take());
        Buffer { content: kept.ok().flatten().unwrap_or_default(), reservation: None }
    }

    /// The content.
    pub(crate) fn as_ref(&self) -> &[u8] {
        &self.content
    }

    /// The content, to append to.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.content
    }

    /// Counts the buffer's memory among the bytes in flight until it is sent.
    pub(super) fn count(&mut self, progress: &Progress) {
        if self.content.capacity() > SMALL {
            self.reservation = Some(progress.reserve_answer(self.content.capacity()));
        }
    }

    /// Notes that the client has fetched a part of the content.
    pub(super) fn touch(&mut self) {
        if let Some(reservation) = &mut self.reservation {
            reservation.touch();
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.content);
        // When the thread ends, its pool may already be gone.
        let _ = POOL.try_with(|pool| {
            if let Ok(mut pool) = pool.try_borrow_mut() {
                pool.keep(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_capacity(bytes: usize) -> Buffer {
        let mut buffer = Buffer::take();
        buffer.bytes().reserve_exact(bytes);
        buffer
    }

    #[test]
    fn buffer_is_reused() {
        let mut one = of_capacity(200_000);
        one.bytes().push(1);
        let address = one.bytes().as_ptr();
        drop(one);
        let mut two = Buffer::take();
        assert_eq!(two.bytes().as_ptr(), address);
        assert!(two.bytes().is_empty());
    }

    #[test]
    fn buffers_beyond_the_sum_are_not_kept() {
        drop(of_capacity(KEPT_BYTES + 1));
        assert_eq!(Buffer::take().bytes().capacity(), 0);
        let buffers: Vec<Buffer> = (0..5).map(|_| of_capacity(KEPT_BYTES / 4)).collect();
        drop(buffers);
        let kept: Vec<Buffer> = (0..5).map(|_| Buffer::take()).collect();
        let capacities = kept.iter().map(|buffer| buffer.content.capacity());
        assert_eq!(capacities.filter(|capacity| *capacity > 0).count(), 4);
    }
}
