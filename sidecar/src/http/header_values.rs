//! Values of short headers, without an allocation for each.

use std::cell::RefCell;

use bytes::BytesMut;
use http::HeaderValue;

/// Size in bytes of a block of values.
const BLOCK_BYTES: usize = 16 * 1024;

thread_local! {
    /// The block from which values are split off. Its memory is reused when they have been sent.
    static BLOCK: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// Returns a header value of these bytes. `None` if a header cannot have them.
pub(crate) fn short(bytes: &[u8]) -> Option<HeaderValue> {
    let split_off = |block: &RefCell<BytesMut>| {
        let mut block = block.try_borrow_mut().ok()?;
        if block.capacity() < bytes.len() {
            block.reserve(BLOCK_BYTES.max(bytes.len()));
        }
        block.extend_from_slice(bytes);
        HeaderValue::from_maybe_shared(block.split().freeze()).ok()
    };
    BLOCK.try_with(split_off).ok().flatten()
}
