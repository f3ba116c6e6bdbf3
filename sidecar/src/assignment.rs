//! The assignment key: a short name for the flags that somebody got.
//!
//! Who got the same flags has the same key, whoever they are, so that a cache of pages can vary on it instead of on users.
//! It is a sum over hashes of the flags' states and values, which were taken when the snapshot was compiled; it says
//! nothing of the identity. It is no secret and no proof, and collisions can only be made by those who make the flags.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use bytes::BytesMut;
use http::{HeaderName, HeaderValue};

/// The header that it comes in.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-remora-assignment");

/// How much is written to before there is more room asked for: many keys.
const ROOM: usize = 16 * 1024;

thread_local! {
    static KEYS: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// The key of some flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assignment(u64);

impl Assignment {
    /// Of the digest that came with the flags.
    pub(crate) fn of(digest: u64) -> Assignment {
        Assignment(digest)
    }

    /// As a header. Nothing is allocated: it is a part of a buffer that is used again when its parts were sent.
    pub(crate) fn header(self) -> Option<HeaderValue> {
        KEYS.try_with(|keys| {
            let mut keys = keys.try_borrow_mut().ok()?;
            if keys.capacity() < 16 {
                keys.reserve(ROOM);
            }
            write!(keys, "{self}").ok()?;
            HeaderValue::from_maybe_shared(keys.split().freeze()).ok()
        })
        .ok()
        .flatten()
    }
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_sixteen_digits() {
        for number in [0, 1, u64::MAX] {
            let header = Assignment(number).header().unwrap();
            assert_eq!(header.to_str().unwrap(), format!("{number:016x}"));
        }
    }
}
