//! A few short texts that are hashed together: processors compute with four numbers as fast as with one.

use wide::u32x4;

use super::{Digest, LANES, START, Word, bytes, mix, sum};

/// One number of each text.
type Lanes = u32x4;

impl Word for Lanes {
    #[inline(always)]
    fn of(constant: u32) -> Self {
        Self::splat(constant)
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn rotated(self, by: u32) -> Self {
        self << by | self >> (u32::BITS - by)
    }
}

/// The longest text: what two blocks have room for.
const LONGEST: usize = 128 - 9;

/// Texts to be hashed.
pub(crate) struct Batch {
    blocks: [[u8; 128]; LANES],
    lengths: [usize; LANES],
    count: usize,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self { blocks: [[0; 128]; LANES], lengths: [0; LANES], count: 0 }
    }

    /// Adds a text that comes in pieces, if it is not too long and there is room.
    pub(crate) fn add(&mut self, pieces: &[&[u8]]) -> bool {
        let (Some(block), Some(length)) = (self.blocks.get_mut(self.count), self.lengths.get_mut(self.count)) else {
            return false;
        };
        let total = pieces.iter().fold(0_usize, |total, piece| total.saturating_add(piece.len()));
        if total > LONGEST {
            return false;
        }
        let mut rest = block.as_mut_slice();
        for piece in pieces {
            let Some((place, behind)) = rest.split_at_mut_checked(piece.len()) else { return false };
            place.copy_from_slice(piece);
            rest = behind;
        }
        if let Some((end, rest)) = rest.split_first_mut() {
            *end = 0x80;
            rest.fill(0);
        }
        // The number of bits ends the last block.
        let last = if total < 56 { 56..64 } else { 120..128 };
        if let Some(place) = block.get_mut(last) {
            place.copy_from_slice(&(total as u64 * 8).to_le_bytes());
        }
        *length = total;
        self.count += 1;
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// A text that was added.
    pub(crate) fn text(&self, lane: usize) -> &[u8] {
        let (Some(block), Some(length)) = (self.blocks.get(lane), self.lengths.get(lane)) else { return &[] };
        block.get(..*length).unwrap_or_default()
    }

    /// The digests of the texts, in order. Those behind the last are of nothing.
    pub(crate) fn digests(&self) -> [Digest; LANES] {
        let start = START.map(Lanes::of);
        let one = sum(start, mix(start, &self.words(0)));
        let two = if self.lengths.iter().take(self.count).any(|length| *length >= 56) {
            sum(one, mix(one, &self.words(1)))
        } else {
            one
        };
        let transposed = |state: [Lanes; 4]| {
            let [[a0, a1, a2, a3], [b0, b1, b2, b3], [c0, c1, c2, c3], [d0, d1, d2, d3]] = state.map(Lanes::to_array);
            [[a0, b0, c0, d0], [a1, b1, c1, d1], [a2, b2, c2, d2], [a3, b3, c3, d3]]
        };
        let mut digests = transposed(one);
        for ((digest, two), length) in digests.iter_mut().zip(transposed(two)).zip(self.lengths) {
            if length >= 56 {
                *digest = two;
            }
        }
        digests.map(bytes)
    }

    /// The words of the first or second block of each text.
    #[inline(always)]
    fn words(&self, which: usize) -> [Lanes; 16] {
        let mut words = [Lanes::of(0); 16];
        let [a, b, c, d] = self.blocks.each_ref().map(|block| block.as_chunks::<64>().0.get(which));
        let (Some(a), Some(b), Some(c), Some(d)) = (a, b, c, d) else { return words };
        let [a, b, c, d] = [a, b, c, d].map(|block| block.as_chunks::<4>().0);
        for ((((word, a), b), c), d) in words.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *word = [*a, *b, *c, *d].map(u32::from_le_bytes).into();
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn together_they_have_the_digests_that_each_has_alone() {
        let text = [b'x'; LONGEST];
        let mut batch = Batch::new();
        for length in 0..LONGEST {
            // Of other lengths, used again, and not always full.
            let lengths = [length, LONGEST - length, length / 2, 55 + length % 3];
            let lengths = &lengths[..1 + length % LANES];
            batch.clear();
            for length in lengths {
                assert!(batch.add(&[&text[..length / 3], b"", &text[length / 3..*length]]));
            }
            assert_eq!(batch.len(), lengths.len());
            for (lane, (length, digest)) in lengths.iter().zip(batch.digests()).enumerate() {
                assert_eq!(batch.text(lane), &text[..*length]);
                assert_eq!(digest, ::md5::compute(&text[..*length]).0, "{length} bytes");
            }
        }
    }

    #[test]
    fn what_is_too_long_or_too_much_is_not_taken() {
        let mut batch = Batch::new();
        assert!(!batch.add(&[&[0; LONGEST], b"x"]) && batch.len() == 0);
        assert!((0..LANES).all(|_| batch.add(&[b"x"])));
        assert!(!batch.add(&[b"x"]));
    }
}
