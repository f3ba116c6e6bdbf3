//! Body of an answer, which counts until the caller has read it.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

use super::slots::{Slot, Unread};

/// Largest size of a frame in bytes. hyper takes a frame once it has written most of those before, so only about as
/// many bytes are in its buffer when an answer counts no more.
const FRAME: usize = 16 << 10;

/// Body of an answer. Its bytes count as unread until hyper has taken the last of them.
struct Counted {
    bytes: Bytes,
    _unread: Unread,
}

/// Returns the same body. Its bytes count for the slot until the caller has read them.
///
/// # Errors
///
/// Fails if the body does.
pub(super) async fn counted(body: Body, slot: &Slot) -> Result<Body, axum::Error> {
    let bytes = body.collect().await?.to_bytes();
    let unread = slot.sending(bytes.len());
    Ok(Body::new(Counted { bytes, _unread: unread }))
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let counted = self.get_mut();
        let next = counted.bytes.split_to(FRAME.min(counted.bytes.len()));
        // A copy, because a part that hyper holds would keep all bytes in memory.
        Poll::Ready((!next.is_empty()).then(|| Ok(Frame::data(Bytes::copy_from_slice(&next)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
