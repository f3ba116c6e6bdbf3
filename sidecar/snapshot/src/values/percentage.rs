//! Percentages: Flagsmith's hash of a few ids, which gives the place of an identity in a split or for a percentage
//! rule.

use crate::values::md5::{Batch, Digest, Head, LANES, Md5, Tail};

/// Returns Flagsmith's hashed percentage of a list of ids, at least 0 and below 100. The ids are separated by commas,
/// and the list may come in any pieces.
///
/// The percentage is the MD5 digest as an unsigned big-endian number, modulo 9999, over 9998, times 100, all in `f64`.
/// The one residue that gives exactly 100 is hashed again, with the whole list repeated once more.
#[must_use]
pub fn percentage(list: &[&[u8]]) -> f64 {
    for repetitions in 1_u32.. {
        let mut md5 = Md5::new();
        for repetition in 0..repetitions {
            if repetition > 0 {
                md5.write(b",");
            }
            list.iter().for_each(|piece| md5.write(piece));
        }
        if let Some(percentage) = below_one_hundred(md5.finish()) {
            return percentage;
        }
    }
    0.0 // Not reached: 2^32 residues of 9998 in a row.
}

/// A percentage with the hash behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Hash {
    /// Text that is hashed: the seed, a comma, and the ids. It is repeated if the hash of a single one has no percentage.
    pub text: String,
    /// MD5 digest of the text, in hexadecimal digits.
    pub md5: String,
    /// Percentage that follows from the digest, at least 0 and below 100.
    pub percentage: f64,
}

impl Hash {
    /// Hashes a list of ids, which may come in any pieces.
    #[must_use]
    pub fn of(list: &[&[u8]]) -> Self {
        let once: Vec<u8> = list.concat();
        let mut bytes = once.clone();
        loop {
            let mut md5 = Md5::new();
            md5.write(&bytes);
            let digest = md5.finish();
            if let Some(percentage) = below_one_hundred(digest) {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                return Self { text, md5: format!("{:032x}", u128::from_be_bytes(digest)), percentage };
            }
            bytes.push(b',');
            bytes.extend_from_slice(&once);
        }
    }
}

/// Place of an identity in an undecided split: in no variant, so the split gives its control value.
pub(crate) const UNDECIDED: f64 = f64::INFINITY;

fn below_one_hundred(digest: Digest) -> Option<f64> {
    let residue = residue(digest);
    (residue != 9998).then(|| f64::from(residue) / 9998.0 * 100.0)
}

/// Percentages requested with a key of type `T`. Several are hashed together.
pub(crate) struct Percentages<T> {
    texts: Box<HashBuffers>,
    requested: [Option<T>; LANES],
    /// Source of the last request.
    last: Option<IdSource>,
}

/// Buffers of the batch hashing: a few kilobytes, reused by later requests.
#[derive(Debug)]
pub(crate) struct HashBuffers {
    batch: Batch,
    /// The common end of the hashed texts: the ids of the last source.
    tail: Tail,
}

/// Source of the hashed ids. Consecutive requests with the same source read the ids once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdSource {
    /// The identity's key.
    Identity,
    /// The value of a slot.
    Slot(u32),
}

impl<T: Copy> Percentages<T> {
    /// Creates an empty collection of requests in the given buffers.
    pub(crate) fn new(room: Option<Box<HashBuffers>>) -> Self {
        let texts = room.unwrap_or_else(|| Box::new(HashBuffers { batch: Batch::new(), tail: Tail::new() }));
        Self { texts, requested: [None; LANES], last: None }
    }

    /// Requests the percentage of a seed, a comma and the ids, which may come in any pieces. Passes percentages that
    /// are known to `report`. Long texts are not hashed together with others.
    pub(crate) fn request(
        &mut self,
        by: T,
        seed: Head<'_>,
        source: IdSource,
        ids: [&[u8]; 3],
        report: &mut impl FnMut(T, f64),
    ) {
        let HashBuffers { batch, tail } = &mut *self.texts;
        if self.last != Some(source) {
            self.last = Some(source);
            tail.set(ids);
        }
        let lane = batch.len();
        if !batch.add(seed, tail) {
            let [a, b, c] = ids;
            report(by, percentage(&[seed.bytes(), b",", a, b, c]));
            return;
        }
        if let Some(place) = self.requested.get_mut(lane) {
            *place = Some(by);
        }
        if lane + 1 == LANES {
            self.report_pending(report);
        }
    }

    /// Passes all pending percentages to `report`, and returns the buffers.
    pub(crate) fn finish(mut self, report: &mut impl FnMut(T, f64)) -> Box<HashBuffers> {
        self.report_pending(report);
        self.texts
    }

    fn report_pending(&mut self, report: &mut impl FnMut(T, f64)) {
        let batch = &mut self.texts.batch;
        let count = batch.len();
        if count > 1 {
            batch.hash();
        }
        for (lane, by) in self.requested.iter().enumerate().take(count) {
            // A single text is as fast without the batch.
            let together = (count > 1).then(|| batch.digest(lane)).flatten().and_then(below_one_hundred);
            if let Some(by) = by {
                report(*by, together.unwrap_or_else(|| percentage(&[batch.text(lane)])));
            }
        }
        batch.clear();
    }
}

/// Returns the digest as a number modulo 9999. It is computed by halves, because a 128-bit division is slow.
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
    fn percentage_of_residue_9998_is_hashed_again() {
        // The first residue of these ids is 9998.
        assert_eq!(percentage(&[b"1,env_", b"u32291"]), 64.652_930_586_117_22);
    }

    #[test]
    fn hash_names_text_and_digest_of_percentage() {
        let once = Hash::of(&[b"a", b"bc"]);
        assert_eq!((once.text.as_str(), once.md5.as_str()), ("abc", "900150983cd24fb0d6963f7d28e17f72"));
        assert_eq!(once.percentage, percentage(&[b"abc"]));
        let again = Hash::of(&[b"1,env_", b"u32291"]);
        assert_eq!(again.text, "1,env_u32291,1,env_u32291");
        assert_eq!(again.percentage, percentage(&[b"1,env_", b"u32291"]));
    }

    #[test]
    fn percentages_in_batches_equal_single_percentages() {
        let long = [b'x'; 150];
        // The second is hashed again, and long ones do not wait for others.
        let keys: [&[u8]; 6] = [b"", b"env_u32291", b"env_somebody,else", &long, &long[..60], &long[..117]];
        for count in 0..30 {
            let requested: Vec<(usize, &[u8])> =
                (0..count).map(|number| (number, keys[number * 7 % keys.len()])).collect();
            let mut reported = vec![f64::NAN; count * 2];
            let mut report = |number: usize, percentage| reported[number] = percentage;
            let mut percentages = Percentages::new(None);
            for (number, key) in &requested {
                let (start, end) = key.split_at(key.len() / 3);
                let source = IdSource::Slot((*number * 7 % keys.len()) as u32);
                percentages.request(*number, Head::of(b"1", 1), source, [start, b"", end], &mut report);
                percentages.request(count + *number, Head::of(b"22", 2), source, [start, b"", end], &mut report);
            }
            percentages.finish(&mut report);
            let alone = |seed: &'static [u8]| requested.iter().map(move |(_, key)| percentage(&[seed, key]));
            assert_eq!(reported, alone(b"1,").chain(alone(b"22,")).collect::<Vec<_>>());
        }
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
