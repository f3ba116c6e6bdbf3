//! The assignment key: a short name for the flags that somebody got.
//!
//! Who got the same flags has the same key, whoever they are, so that a cache of pages can vary on it instead of on users.
//! It is a hash over the flags as they were just written: they stand in the document's order, and say nothing of the
//! identity. It is no secret and no proof, and collisions can only be made by those who make the flags; what it has to be
//! is fast, because every answer gets one.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use bytes::BytesMut;
use http::{HeaderName, HeaderValue};

/// The header that it comes in.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-remora-assignment");

/// Digits of pi, for want of better ones.
const SEEDS: [u64; 4] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];

/// How much is written to before there is more room asked for: many keys.
const ROOM: usize = 16 * 1024;

thread_local! {
    static KEYS: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// The key of some flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assignment(u64);

impl Assignment {
    /// Of flags as they were written.
    pub(crate) fn of(flags: &[u8]) -> Assignment {
        let [mut one, mut two, three, four] = SEEDS;
        let (pairs, rest) = flags.as_chunks::<32>();
        for pair in pairs {
            let [a, b, c, d] = words(pair);
            // Two at a time, as neither waits for the other.
            one = mix(a ^ three, b ^ one);
            two = mix(c ^ four, d ^ two);
        }
        let mut last = [0; 32];
        if let Some(place) = last.get_mut(..rest.len()) {
            place.copy_from_slice(rest);
        }
        let [a, b, c, d] = words(&last);
        one = mix(a ^ three, b ^ one);
        two = mix(c ^ four, d ^ two);
        Assignment(mix(mix(one, two ^ three), flags.len() as u64 ^ four))
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

fn words(bytes: &[u8; 32]) -> [u64; 4] {
    let (words, _) = bytes.as_chunks::<8>();
    let mut numbers = [0; 4];
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = u64::from_le_bytes(*word);
    }
    numbers
}

/// Both halves of a product.
fn mix(one: u64, two: u64) -> u64 {
    let product = u128::from(one) * u128::from(two);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_byte_counts_and_so_does_the_length() {
        let text: Vec<u8> = (0..200u8).collect();
        let mut seen = HashSet::new();
        for length in 0..text.len() {
            assert!(seen.insert(Assignment::of(&text[..length]).0), "{length}");
        }
        assert!(seen.insert(Assignment::of(&[0; 31]).0) && seen.insert(Assignment::of(&[0; 32]).0));
        for place in 0..text.len() {
            for bit in 0..8 {
                let mut other = text.clone();
                other[place] ^= 1 << bit;
                assert!(seen.insert(Assignment::of(&other).0), "bit {bit} of byte {place}");
            }
        }
        assert_eq!(Assignment::of(&text), Assignment::of(&text.clone()));
    }

    #[test]
    fn stretches_in_another_order_are_something_else() {
        let (a, b) = ([b'a'; 32], [b'b'; 32]);
        assert_ne!(Assignment::of(&[a, b].concat()), Assignment::of(&[b, a].concat()));
        assert_ne!(Assignment::of(&[a, a].concat()), Assignment::of(&[b, b].concat()));
    }

    #[test]
    fn headers_have_sixteen_digits() {
        for number in [0, 1, u64::MAX] {
            let header = Assignment(number).header().unwrap();
            assert_eq!(header.to_str().unwrap(), format!("{number:016x}"));
        }
    }
}
