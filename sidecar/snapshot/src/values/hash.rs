//! The hashes of the format: keyed hashes of secrets and identifiers, keys of names and of members, and checksums.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13, SipHasher24};

/// Identifies the environment of a file, and is the key of its keyed hashes. It is derived from the environment's
/// client key, so that a re-created resource for the same environment gives the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(pub(crate) [u8; 16]);

/// Keyed hash of an identifier. It has 96 bits: a collision among 2^20 identifiers has a probability of 2^-57, and
/// finding an identifier that collides with a given one takes about 2^76 tries.
pub(crate) type Hash96 = [u8; 12];

impl Fingerprint {
    /// Returns the fingerprint of the environment with this client key.
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

    /// Returns the member key of an `IN` member. A short member is stored itself, after its length. The member key of a longer
    /// member is its hash with the highest bit set. Therefore most requests hash nothing for sets.
    pub(crate) fn member_key(&self, member: &[u8]) -> MemberKey {
        match short_member_key(member) {
            Some((upper, lower)) => {
                let ([a, b, c, d, e, f, g, h], [i, j, k, l]) = (upper.to_be_bytes(), lower.to_be_bytes());
                [a, b, c, d, e, f, g, h, i, j, k, l]
            }
            None => {
                let mut key = self.hash96(member);
                let [first, ..] = &mut key;
                *first |= 0x80;
                key
            }
        }
    }
}

/// The 12-byte key of a member of sets.
pub(crate) type MemberKey = [u8; 12];

/// Returns the first row that linear probing for a member key visits, modulo the table's size.
#[inline(always)]
pub(crate) fn bucket_of((upper, lower): (u64, u32)) -> u32 {
    fold(upper ^ MULTIPLIERS[0], u64::from(lower) ^ MULTIPLIERS[1]) as u32
}

/// Key of a free row. It equals no member's key: its first byte is neither a short length nor a long member's.
pub(crate) const NO_MEMBER: MemberKey = [0x7f; 12];

/// Returns the member key of a short member as numbers. `None` for a member of more than eleven bytes.
#[inline(always)]
pub(crate) fn short_member_key(member: &[u8]) -> Option<(u64, u32)> {
    let (upper, lower) = member.split_at_checked(7).unwrap_or((member, &[]));
    let missing = 4_usize.checked_sub(lower.len())?;
    let word = |bytes: &[u8]| bytes.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    let length = member.len() as u64;
    Some((length << 56 | word(upper) << (8 * (7 - upper.len())), (word(lower) << (8 * missing)) as u32))
}

/// Returns a member key as numbers, which sort like its bytes.
#[inline(always)]
pub(crate) fn numbers(key: &MemberKey) -> (u64, u32) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *key;
    (u64::from_be_bytes([a, b, c, d, e, f, g, h]), u32::from_be_bytes([i, j, k, l]))
}

/// Returns the checksum of a file's bytes after the checksum field.
pub(crate) fn checksum(bytes: &[u8]) -> [u8; 16] {
    SipHasher13::new().hash(bytes).as_bytes()
}

/// Returns the digest of a flag: 64 bits of a hash over its id, its state and its value. The sum of digests over an
/// answer identifies the flags that an identity got. Requests add up the differences to the defaults.
pub(crate) fn digest_of(feature: i64, enabled: bool, value: &[u8]) -> u64 {
    #[cfg(test)]
    crate::budget::work::add(value.len());
    let mut hasher = SipHasher13::new();
    hasher.write(&feature.to_le_bytes());
    hasher.write(&[u8::from(enabled)]);
    hasher.write(value);
    hasher.finish128().h1
}

/// Key of a name in hash tables. For a name of up to [`NameKey::WHOLE`] bytes the key contains the complete
/// name, so no bytes are compared. The operator writes the tables, so no secret key is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NameKey {
    pub(crate) length: u32,
    /// The first eight bytes of a short name, or the first four, or all of at most three; for a longer name, a hash of
    /// its words.
    pub(crate) first: u64,
    /// The last eight bytes, or the last four, or zero.
    pub(crate) last: u64,
}

impl NameKey {
    pub(crate) const WHOLE: usize = 16;

    #[inline(always)]
    pub(crate) fn of(name: &[u8]) -> Self {
        let length = name.len() as u32; // truncation is harmless: names beyond WHOLE are also compared by bytes
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let half = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
        let (first, last) = match (name.first_chunk(), name.last_chunk()) {
            (Some(first), Some(last)) if name.len() <= Self::WHOLE => (word(first), word(last)),
            (_, Some(last)) => {
                let words = name.as_chunks().0.iter().map(word);
                (words.fold(0, |hash, word| fold(hash ^ word, MULTIPLIERS[0])), word(last))
            }
            _ => match (name.first_chunk(), name.last_chunk()) {
                (Some(first), Some(last)) => (half(first), half(last)),
                _ => (name.iter().fold(0, |bytes, byte| bytes << 8 | u64::from(*byte)), 0),
            },
        };
        Self { length, first, last }
    }

    /// Returns the first row that linear probing for the name visits, modulo the table's size.
    #[inline(always)]
    pub(crate) fn bucket(self) -> u32 {
        fold(self.first ^ MULTIPLIERS[0], self.last ^ MULTIPLIERS[1] ^ u64::from(self.length)) as u32
    }
}

/// The fractional parts of the square roots of two and three, made odd.
const MULTIPLIERS: [u64; 2] = [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b];

/// Combines both halves of a product: each bit of the result depends on many bits of the factors.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn name_keys_of_different_names_differ() {
        let mut names: Vec<String> = (0..=40).map(|length| "x".repeat(length)).collect();
        for length in 1..=40 {
            for at in 0..length {
                let mut name = "x".repeat(length);
                name.replace_range(at..=at, "y");
                names.push(name);
            }
        }
        names.extend((0..1000).map(|number| format!("trait_{number:04}")));
        let name_keys: HashSet<NameKey> = names.iter().map(|name| NameKey::of(name.as_bytes())).collect();
        assert_eq!(name_keys.len(), names.len());
        let buckets: HashSet<u32> = name_keys.iter().map(|name_key| name_key.bucket() & 0xffff).collect();
        assert!(buckets.len() * 100 > name_keys.len() * 95, "{} of {}", buckets.len(), name_keys.len());
        assert_eq!(NameKey::of(b"abc"), NameKey { length: 3, first: 0x61_6263, last: 0 });
        assert_eq!(NameKey::of(b"abcde"), NameKey { length: 5, first: 0x6463_6261, last: 0x6564_6362 });
        assert_eq!(
            NameKey::of(b"abcdefghi"),
            NameKey { length: 9, first: 0x6867_6665_6463_6261, last: 0x6968_6766_6564_6362 }
        );
    }

    #[test]
    fn member_keys_of_short_and_long_texts_differ() {
        let fingerprint = Fingerprint::of("key");
        let texts = ["", "\0", "a", "a\0", "b", "DE", "\u{80}", "elevenbytes", "twelve bytes", "twelve bytet", "é"];
        let mut member_keys: Vec<MemberKey> =
            texts.iter().map(|text| fingerprint.member_key(text.as_bytes())).collect();
        assert_eq!(member_keys[5], *b"\x02DE\0\0\0\0\0\0\0\0\0");
        member_keys.extend((0..1000).map(|number| fingerprint.member_key(format!("somebody {number:04}").as_bytes())));
        assert!(member_keys.iter().skip(texts.len()).all(|key| key[0] >= 0x80));
        let count = member_keys.len();
        member_keys.sort_unstable();
        assert!(member_keys.is_sorted_by_key(numbers));
        member_keys.dedup();
        assert_eq!(member_keys.len(), count);
    }
}
