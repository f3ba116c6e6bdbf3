//! Buffers for answers that are built, and the pool that keeps them between answers.

use std::cell::RefCell;

use crate::http::budget::Reservation;
use crate::http::progress::Progress;

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
pub(crate) struct Buffer(Vec<u8>, Option<Reservation>);

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
    pub(super) fn count(&mut self, progress: &Progress) {
        if self.0.capacity() > SMALL {
            self.1 = Some(progress.reserve_answer(self.0.capacity()));
        }
    }

    /// Notes that the client has fetched a part of the content.
    pub(super) fn touch(&mut self) {
        if let Some(reservation) = &mut self.1 {
            reservation.touch();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_reused_unless_it_grew_beyond_the_limit() {
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
