//! The hashes: Flagsmith's percentage, the keyed hash of secrets and identifiers, and the checksum.

use std::hash::Hasher as _;

use crate::md5::{Batch, Digest, LANES, Md5};
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

/// Flagsmith's hashed percentage of a list of two ids, at least 0 and below 100. The second may come in pieces.
///
/// The ids are joined by a comma and hashed with MD5; the digest, an unsigned big-endian number, modulo 9999, over 9998,
/// times 100, all in `f64`. The one residue that gives exactly 100 is hashed again with the whole list once more.
pub(crate) fn percentage(first: &[u8], second: &[&[u8]]) -> f64 {
    let mut md5 = Md5::new();
    write_list(&mut md5, first, second);
    below_one_hundred(md5.finish()).unwrap_or_else(|| percentage_again(first, second))
}

#[cold]
fn percentage_again(first: &[u8], second: &[&[u8]]) -> f64 {
    for repetitions in 2_u32.. {
        let mut md5 = Md5::new();
        for repetition in 0..repetitions {
            if repetition > 0 {
                md5.write(b",");
            }
            write_list(&mut md5, first, second);
        }
        if let Some(percentage) = below_one_hundred(md5.finish()) {
            return percentage;
        }
    }
    0.0 // Not reached: 2^32 residues of 9998 in a row.
}

fn write_list(md5: &mut Md5, first: &[u8], second: &[&[u8]]) {
    md5.write(first);
    md5.write(b",");
    second.iter().for_each(|piece| md5.write(piece));
}

fn below_one_hundred(digest: Digest) -> Option<f64> {
    let residue = residue(digest);
    (residue != 9998).then(|| f64::from(residue) / 9998.0 * 100.0)
}

/// Percentages that are asked for by `T`, a few of which are hashed together.
pub(crate) struct Percentages<T> {
    batch: Batch,
    asked: [Option<T>; LANES],
}

impl<T: Copy> Percentages<T> {
    pub(crate) fn new() -> Self {
        Self { batch: Batch::new(), asked: [None; LANES] }
    }

    /// Asks for one more; `tell` is told of those that are known.
    pub(crate) fn ask(&mut self, by: T, first: &[u8], second: &[&[u8]; 3], tell: &mut impl FnMut(T, f64)) {
        let [a, b, c] = *second;
        let lane = self.batch.len();
        if !self.batch.add(&[first, b",", a, b, c]) {
            tell(by, percentage(first, second)); // it is long
            return;
        }
        if let Some(place) = self.asked.get_mut(lane) {
            *place = Some(by);
        }
        if lane + 1 == LANES {
            self.tell(tell);
        }
    }

    /// Tells of all that are not told yet.
    pub(crate) fn tell(&mut self, tell: &mut impl FnMut(T, f64)) {
        let count = self.batch.len();
        if let (1, [Some(by), ..]) = (count, self.asked) {
            tell(by, self.known(0, None));
        } else if count > 1 {
            for (lane, (by, digest)) in self.asked.into_iter().zip(self.batch.digests()).enumerate().take(count) {
                if let Some(by) = by {
                    tell(by, self.known(lane, Some(digest)));
                }
            }
        }
        self.batch.clear();
    }

    fn known(&self, lane: usize, digest: Option<Digest>) -> f64 {
        let text = self.batch.text(lane);
        let comma = text.iter().position(|byte| *byte == b',').unwrap_or(text.len());
        let (first, second) = text.split_at(comma);
        let second = second.get(1..).unwrap_or_default();
        digest.and_then(below_one_hundred).unwrap_or_else(|| percentage(first, &[second]))
    }
}

/// The digest as a number, modulo 9999, by halves: a 128-bit division is slow.
fn residue(digest: Digest) -> u16 {
    const HIGH: u64 = u64::MAX % 9999 + 1; // 2^64 mod 9999
    let number = u128::from_be_bytes(digest);
    let (high, low) = ((number >> 64) as u64, number as u64);
    ((high % 9999 * HIGH + low % 9999) % 9999) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentage_is_below_one_hundred_by_hashing_again() {
        // The first residue of these ids is 9998.
        assert_eq!(percentage(b"1", &[b"env_", b"u32291"]), 64.652_930_586_117_22);
    }

    #[test]
    fn percentages_that_are_asked_for_together_are_those_that_are_asked_for_alone() {
        let long = [b'x'; 150];
        // The second has to be hashed again, and long ones do not wait for others.
        let keys: [&[u8]; 6] = [b"", b"env_u32291", b"env_somebody,else", &long, &long[..60], &long[..117]];
        for count in 0..30 {
            let asked: Vec<(usize, &[u8])> = (0..count).map(|number| (number, keys[number * 7 % keys.len()])).collect();
            let mut told = vec![f64::NAN; count];
            let mut tell = |number: usize, percentage| told[number] = percentage;
            let mut percentages = Percentages::new();
            for (number, key) in &asked {
                let (start, end) = key.split_at(key.len() / 3);
                percentages.ask(*number, b"1", &[start, b"", end], &mut tell);
            }
            percentages.tell(&mut tell);
            let alone: Vec<f64> = asked.iter().map(|(_, key)| percentage(b"1", &[key])).collect();
            assert_eq!(told, alone);
        }
    }

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

    #[test]
    fn residue_equals_the_plain_modulo() {
        for n in [
            0_u128,
            1,
            9998,
            9999,
            u128::from(u64::MAX),
            u128::from(u64::MAX) + 1,
            u128::MAX,
            0x1234_5678_9abc_def0_0fed_cba9_8765_4321,
        ] {
            assert_eq!(u128::from(residue(n.to_be_bytes())), n % 9999);
        }
    }
}
