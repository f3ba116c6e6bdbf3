//! The hashes of the format: the keyed hash of secrets and identifiers, names, and the checksum.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13, SipHasher24};

/// Says which environment a file belongs to, and is the key of its keyed hashes. It is derived from the environment's
/// client key, so a re-created resource for the same environment gives the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(pub(crate) [u8; 16]);

/// The keyed hash of an identifier: 96 bits, so that among 2^20 of them a collision is not to be
/// expected (2^-57), and finding an identifier that collides with a given one takes about 2^76 tries.
pub(crate) type Hash96 = [u8; 12];

impl Fingerprint {
    /// The fingerprint of the environment with this client key.
    #[must_use]
    pub(crate) fn of(client_key: &str) -> Self {
        Self(SipHasher24::new_with_key(b"remora/snapshot1").hash(client_key.as_bytes()).as_bytes())
    }

    pub(crate) fn hash128(&self, bytes: &[u8]) -> [u8; 16] {
        SipHasher24::new_with_key(&self.0).hash(bytes).as_bytes()
    }

    pub(crate) fn hash96(&self, bytes: &[u8]) -> Hash96 {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = self.hash128(bytes);
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// The token of an `IN` member: what is short stands for itself, its length first; of what is longer it is the hash, with
    /// its highest bit set. So most requests hash nothing for their sets.
    pub(crate) fn token(&self, member: &[u8]) -> Token {
        let mut token = Token::default();
        let [length, place @ ..] = &mut token;
        match place.get_mut(..member.len()) {
            Some(place) => {
                place.copy_from_slice(member);
                *length = member.len() as u8; // at most eleven
            }
            None => {
                token = self.hash96(member);
                let [first, ..] = &mut token;
                *first |= 0x80;
            }
        }
        token
    }
}

/// What stands for a member of sets.
pub(crate) type Token = [u8; 12];

/// A token as numbers, which sort as its bytes do.
#[inline(always)]
pub(crate) fn numbers(token: &Token) -> (u64, u32) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *token;
    (u64::from_be_bytes([a, b, c, d, e, f, g, h]), u32::from_be_bytes([i, j, k, l]))
}

/// The checksum of a file's bytes after the checksum itself.
pub(crate) fn checksum(bytes: &[u8]) -> [u8; 16] {
    SipHasher13::new().hash(bytes).as_bytes()
}

/// What a flag is, in a number: 64 bits of a hash over its id, its state and its value. The sum over the flags of an
/// answer says which flags somebody has got, whoever they are; the differences to the defaults are added up on a request.
pub(crate) fn digest_of(feature: i64, enabled: bool, value: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(&feature.to_le_bytes());
    hasher.write(&[u8::from(enabled)]);
    hasher.write(value);
    hasher.finish128().h1
}

/// Where the linear probing for a name begins (FNV-1a, 32 bit). The tables are ours, so no key is needed.
pub(crate) fn bucket(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_members_stand_for_themselves_and_long_ones_for_nothing_short() {
        let fingerprint = Fingerprint::of("key");
        let texts = ["", "\0", "a", "a\0", "b", "DE", "\u{80}", "elevenbytes", "twelve bytes", "twelve bytet", "é"];
        let mut tokens: Vec<Token> = texts.iter().map(|text| fingerprint.token(text.as_bytes())).collect();
        assert_eq!(tokens[5], *b"\x02DE\0\0\0\0\0\0\0\0\0");
        tokens.extend((0..1000).map(|number| fingerprint.token(format!("somebody {number:04}").as_bytes())));
        assert!(tokens.iter().skip(texts.len()).all(|token| token[0] >= 0x80));
        let count = tokens.len();
        tokens.sort_unstable();
        assert!(tokens.is_sorted_by_key(numbers));
        tokens.dedup();
        assert_eq!(tokens.len(), count);
    }
}
