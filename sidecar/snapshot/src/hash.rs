//! The hashes: Flagsmith's percentage, the keyed hash of secrets and identifiers, and the checksum.

use std::hash::Hasher as _;

use crate::md5::Md5;
use siphasher::sip128::{Hasher128 as _, SipHasher13, SipHasher24};

/// Says which environment a file belongs to, and is the key of its keyed hashes. It is derived from the environment's
/// client key, so a re-created resource for the same environment gives the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(pub(crate) [u8; 16]);

/// The keyed hash of an identifier or of an `IN` member: 96 bits, so that among 2^20 of them a collision is not to be
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

/// Flagsmith's hashed percentage of a list of ids, at least 0 and below 100.
///
/// The ids are joined by commas and hashed with MD5; the digest, an unsigned big-endian number, modulo 9999, over 9998,
/// times 100, all in `f64`. The one residue that gives exactly 100 is hashed again with the whole list once more.
/// Each id may come in pieces.
pub(crate) fn percentage(ids: &[&[&[u8]]]) -> f64 {
    for repetitions in 1_u32.. {
        let mut md5 = Md5::new();
        for repetition in 0..repetitions {
            for (position, id) in ids.iter().enumerate() {
                if repetition > 0 || position > 0 {
                    md5.write(b",");
                }
                for piece in *id {
                    md5.write(piece);
                }
            }
        }
        let residue = residue(md5.finish());
        if residue != 9998 {
            return f64::from(residue) / 9998.0 * 100.0;
        }
    }
    0.0 // Not reached: 2^32 residues of 9998 in a row.
}

/// The digest as a number, modulo 9999, by halves: a 128-bit division is slow.
fn residue(digest: [u8; 16]) -> u16 {
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
        assert_eq!(percentage(&[&[b"1"], &[b"env_", b"u32291"]]), 64.652_930_586_117_22);
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
