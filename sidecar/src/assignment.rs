//! The assignment key: a short name for the flags that somebody got.
//!
//! Who got the same flags has the same key, whoever they are, so that a cache of pages can vary on it instead of on users.
//! It is a sum over hashes of the flags' states and values, which were taken when the snapshot was compiled; it says
//! nothing of the identity. It is no secret and no proof, and collisions can only be made by those who make the flags.

use std::cell::RefCell;

use bytes::BytesMut;
use http::{HeaderName, HeaderValue};

/// The header that it comes in.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-remora-assignment");

/// How much is written to before there is more room asked for: many keys.
const ROOM: usize = 16 * 1024;

/// How many keys are kept as headers.
const KEPT: usize = 64;

thread_local! {
    static HEADERS: RefCell<Headers> = RefCell::new(Headers::default());
}

/// Where headers are made of keys.
#[derive(Default)]
struct Headers {
    /// Used again when its parts were sent.
    room: BytesMut,
    /// Many have the same flags as others before them: by the last bits of the key.
    kept: Vec<Place>,
}

/// A header that is kept, and who was here last of those who have another.
#[derive(Default)]
struct Place {
    kept: Option<(Assignment, HeaderValue)>,
    last: Option<Assignment>,
}

impl Headers {
    fn of(&mut self, assignment: Assignment) -> Option<HeaderValue> {
        if self.kept.is_empty() {
            self.kept.resize_with(KEPT, Place::default);
        }
        let place = self.kept.get_mut(assignment.0 as usize % KEPT)?;
        match &place.kept {
            Some((kept, header)) if *kept == assignment => {
                place.last = None;
                return Some(header.clone());
            }
            // Who comes twice in a row is kept, in memory of its own: a part of the room would keep all of it.
            _ if place.last == Some(assignment) => {
                let header = HeaderValue::from_bytes(&assignment.digits()).ok()?;
                *place = Place { kept: Some((assignment, header.clone())), last: None };
                return Some(header);
            }
            _ => place.last = Some(assignment),
        }
        if self.room.capacity() < 16 {
            self.room.reserve(ROOM);
        }
        self.room.extend_from_slice(&assignment.digits());
        HeaderValue::from_maybe_shared(self.room.split().freeze()).ok()
    }
}

/// The key of some flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assignment(u64);

impl Assignment {
    /// Of the digest that came with the flags.
    pub(crate) fn of(digest: u64) -> Assignment {
        Assignment(digest)
    }

    /// As a header. Nothing is allocated, but for those that are kept.
    pub(crate) fn header(self) -> Option<HeaderValue> {
        HEADERS.try_with(|headers| headers.try_borrow_mut().ok()?.of(self)).ok().flatten()
    }

    /// As it is written: sixteen hexadecimal digits.
    pub(crate) fn digits(self) -> [u8; 16] {
        let mut digits = [0; 16];
        for (pair, byte) in digits.as_chunks_mut().0.iter_mut().zip(self.0.to_be_bytes()) {
            *pair = [byte >> 4, byte & 15].map(|digit| if digit < 10 { b'0' + digit } else { b'a' - 10 + digit });
        }
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_sixteen_digits() {
        // New ones, those that were there, and those of which several have one place.
        let few = [0, 1, 1, 1, 0x0123_4567_89ab_cdef, u64::MAX, 1, 65, 65, 65, 1, 129, 65, 1, 1];
        for number in few.into_iter().chain((0..2000).map(|number| number * number % 130)) {
            let header = Assignment(number).header().unwrap();
            assert_eq!(header.to_str().unwrap(), format!("{number:016x}"));
        }
    }
}
