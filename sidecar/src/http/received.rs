//! The part of a request's body that has been received.

use bytes::Bytes;
use http_body::SizeHint;
use memmap2::MmapMut;

use crate::http::budget::Reservation;

/// Largest size of a body in bytes.
pub(crate) const MAX_BODY: usize = 1024 * 1024;
/// Size in bytes up to which a body is received without a reservation in the budget.
const SMALL: usize = 4 * 1024;
/// Size in bytes up to which a body is collected on the heap.
const MAX_COLLECTED: usize = 64 * 1024;

/// A body, and its reservation in the budget of bytes in flight.
#[derive(Default)]
pub(crate) struct Received {
    content: Content,
    /// The reservation. `None` while the body is small.
    reservation: Option<Reservation>,
    /// Number of bytes that are reserved.
    reserved: usize,
}

/// Storage of a body. Most bodies arrive in one portion, and are not copied.
#[derive(Default)]
enum Content {
    #[default]
    Nothing,
    /// One portion, in the connection's buffer.
    Once(Bytes),
    /// Several portions, copied into memory of their own. A buffer of the pool for answers could have a hundred times
    /// the size of the body, and a client decides how long the body takes.
    Collected(Vec<u8>),
    /// A body larger than [`MAX_COLLECTED`], and its length. The memory of its own mapping returns to the system after
    /// the request; that of the heap would not.
    Large(MmapMut, usize),
}

impl Received {
    /// Returns the bytes that have been received.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Nothing => &[],
            Content::Once(bytes) => bytes,
            Content::Collected(bytes) => bytes,
            Content::Large(memory, length) => memory.get(..*length).unwrap_or_default(),
        }
    }

    /// True if the body needs a reservation before more of it is received.
    pub(crate) fn needs_reservation(&self) -> bool {
        self.reservation.is_none() && self.bytes().len() > SMALL
    }

    /// Returns the length of the whole body if the rest has this size, at most [`MAX_BODY`].
    pub(crate) fn expected(&self, rest: &SizeHint) -> usize {
        let rest = rest.exact().and_then(|rest| usize::try_from(rest).ok()).unwrap_or(MAX_BODY);
        self.bytes().len().saturating_add(rest).min(MAX_BODY)
    }

    /// Sets the reservation, of `bytes` bytes.
    pub(crate) fn reserve(&mut self, reservation: Reservation, bytes: usize) {
        (self.reservation, self.reserved) = (Some(reservation), bytes);
    }

    /// Notes that the whole body has been received.
    pub(crate) fn complete(&mut self) {
        if let Some(reservation) = &mut self.reservation {
            reservation.complete();
        }
    }

    /// Copies the body out of the connection's buffer, because the rest may take long to arrive.
    pub(crate) fn keep(&mut self) {
        if let Content::Once(bytes) = &self.content {
            self.content = Content::Collected(bytes.to_vec());
        }
    }

    /// Adds a portion. The caller limits the whole body to [`MAX_BODY`].
    ///
    /// # Errors
    /// The system has no memory left.
    pub(crate) fn add(&mut self, bytes: Bytes) -> std::io::Result<()> {
        if let Content::Nothing = self.content {
            self.content = Content::Once(bytes);
            return Ok(());
        }
        self.keep();
        if let Some(reservation) = &mut self.reservation {
            reservation.touch();
        }
        match &mut self.content {
            Content::Collected(collected) if self.reserved <= MAX_COLLECTED => {
                // The budget counts the reserved bytes, and the capacity must not exceed them.
                collected.reserve_exact(self.reserved.saturating_sub(collected.len()));
                collected.extend_from_slice(&bytes);
            }
            Content::Collected(collected) => {
                let mut memory = MmapMut::map_anon(MAX_BODY)?;
                let length = put(&mut memory, 0, collected);
                let length = put(&mut memory, length, &bytes);
                self.content = Content::Large(memory, length);
            }
            Content::Large(memory, length) => *length = put(memory, *length, &bytes),
            Content::Nothing | Content::Once(_) => {}
        }
        Ok(())
    }
}

/// Copies bytes to an offset, and returns the offset behind them.
fn put(memory: &mut MmapMut, at: usize, bytes: &[u8]) -> usize {
    let end = at + bytes.len();
    if let Some(place) = memory.get_mut(at..end) {
        place.copy_from_slice(bytes);
    }
    end
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::{BodyExt as _, Full};

    use super::*;
    use crate::http::body::Buffer;

    #[test]
    fn body_in_portions_leaves_large_buffers_to_answers() {
        let large = 200_000;
        let mut answer = Buffer::take();
        answer.bytes().reserve_exact(large);
        drop(answer);
        let mut stalled = Received::default();
        stalled.add(Bytes::from_static(b"{")).unwrap();
        stalled.keep();
        assert_eq!(stalled.bytes(), b"{");
        assert!(Buffer::take().bytes().capacity() >= large);
    }

    #[tokio::test]
    async fn received_portion_is_expected_once() {
        let portions = [Bytes::from_static(&[b'x'; 5_000]), Bytes::from_static(&[b'y'; 3_000])];
        let [first, second] = portions.map(Full::new);
        let mut received = Received::default();
        let mut body = std::pin::pin!(first);
        assert_eq!(received.expected(&body.size_hint()), 5_000);
        received.add(body.frame().await.unwrap().unwrap().into_data().unwrap()).unwrap();
        assert!(received.needs_reservation());
        assert_eq!(received.expected(&body.size_hint()), 5_000);
        assert_eq!(received.expected(&second.size_hint()), 8_000);
        assert_eq!(received.expected(&SizeHint::new()), MAX_BODY);
    }
}
