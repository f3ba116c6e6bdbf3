//! The assignment key: a short name for the flags of an identity.
//!
//! Identities with the same flags have the same key, so that a cache of pages can vary on it instead of on users. The
//! key is a sum of hashes of the flags' states and values, which were computed when the snapshot was compiled; it
//! reveals nothing about the identity. It is neither a secret nor a proof, and only a person who writes flags can
//! construct collisions.

use std::cell::RefCell;

use http::{HeaderName, HeaderValue};

use crate::http::answer::Answer;
use crate::http::header_values;

/// Response header of the assignment key.
const HEADER: HeaderName = HeaderName::from_static("x-remora-assignment");

/// Number of keys whose headers are cached.
const SLOTS: usize = 64;

thread_local! {
    static HEADERS: RefCell<Headers> = RefCell::new(Headers::default());
}

/// Creates header values for keys.
#[derive(Default)]
struct Headers {
    /// Cached header values, by the lowest bits of the key. Many identities have the same flags.
    kept: Vec<Slot>,
}

/// A cached header value, and the key of the last request that needed another one in the same slot.
#[derive(Default)]
struct Slot {
    kept: Option<(Assignment, HeaderValue)>,
    last: Option<Assignment>,
}

impl Headers {
    fn of(&mut self, assignment: Assignment) -> Option<HeaderValue> {
        if self.kept.is_empty() {
            self.kept.resize_with(SLOTS, Slot::default);
        }
        let slot = self.kept.get_mut(assignment.0 as usize % SLOTS)?;
        match &slot.kept {
            Some((kept, header)) if *kept == assignment => {
                slot.last = None;
                return Some(header.clone());
            }
            // A key that is used twice in a row is cached, in an allocation of its own: a short value would keep its whole
            // block alive.
            _ if slot.last == Some(assignment) => {
                let header = HeaderValue::from_bytes(&assignment.digits()).ok()?;
                *slot = Slot { kept: Some((assignment, header.clone())), last: None };
                return Some(header);
            }
            _ => slot.last = Some(assignment),
        }
        header_values::short(&assignment.digits())
    }
}

/// Assignment key of a set of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Assignment(u64);

impl Assignment {
    /// Creates a key from the digest of the flags.
    pub(super) fn of(digest: u64) -> Assignment {
        Assignment(digest)
    }

    /// Adds the key's header to the answer with the flags.
    pub(super) fn mark(self, answer: Answer) -> Answer {
        match self.header() {
            Some(value) => answer.with(HEADER, value),
            None => answer,
        }
    }

    /// Returns the header value. Only caching a key allocates memory.
    fn header(self) -> Option<HeaderValue> {
        HEADERS.try_with(|headers| headers.try_borrow_mut().ok()?.of(self)).ok().flatten()
    }

    /// Returns the key as sixteen hexadecimal digits.
    pub(super) fn digits(self) -> [u8; 16] {
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
    fn assignment_header_has_sixteen_hexadecimal_digits() {
        // New keys, cached keys, and keys that share a slot.
        let few = [0, 1, 1, 1, 0x0123_4567_89ab_cdef, u64::MAX, 1, 65, 65, 65, 1, 129, 65, 1, 1];
        for number in few.into_iter().chain((0..2000).map(|number| number * number % 130)) {
            let header = Assignment(number).header().unwrap();
            assert_eq!(header.to_str().unwrap(), format!("{number:016x}"));
        }
    }
}
