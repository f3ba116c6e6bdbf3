//! A few short texts that are hashed together: processors compute with eight numbers as fast as with one. Which of their
//! instructions there are is looked up where it runs.

use fearless_simd::{Level, Simd, SimdBase, SimdFrom, dispatch, u32x8};

use super::{Digest, LANES, START, Word, bytes, mix};

impl<S: Simd> Word for u32x8<S> {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn plus_constant(self, constant: u32) -> Self {
        self + constant
    }
    #[inline(always)]
    fn rotated(self, by: u32) -> Self {
        self << by | self >> (u32::BITS - by)
    }
}

/// What two blocks have room for.
const ROOM: usize = 128;

/// The longest text: behind it come a bit and its length.
const LONGEST: usize = ROOM - 9;

/// How many bytes the first block has room for.
const FIRST: usize = 64 - 9;

/// What several texts end with, and what MD5 has behind it but for the length.
pub(crate) struct Tail {
    bytes: [u8; ROOM],
    length: usize,
}

impl Tail {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { bytes: [0; ROOM], length: 0 }
    }

    /// Becomes pieces. If they are too long, it fits behind nothing.
    pub(crate) fn set(&mut self, pieces: &[&[u8]]) {
        self.length = ROOM;
        let mut rest = self.bytes.as_mut_slice();
        for piece in pieces.iter().copied().chain([[0x80].as_slice()]) {
            let Some((place, behind)) = rest.split_at_mut_checked(piece.len()) else { return };
            place.copy_from_slice(piece);
            rest = behind;
        }
        rest.fill(0);
        self.length = ROOM - 1 - rest.len();
    }
}

/// Texts to be hashed.
pub(crate) struct Batch {
    blocks: [[u8; ROOM]; LANES],
    lengths: [usize; LANES],
    count: usize,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self { blocks: [[0; ROOM]; LANES], lengths: [0; LANES], count: 0 }
    }

    /// Adds a text, if it is not too long and there is room.
    pub(crate) fn add(&mut self, head: &[u8], tail: &Tail) -> bool {
        let (Some(block), Some(place)) = (self.blocks.get_mut(self.count), self.lengths.get_mut(self.count)) else {
            return false;
        };
        let length = head.len().saturating_add(tail.length);
        let (Some((start, end)), true) = (block.split_at_mut_checked(head.len()), length <= LONGEST) else {
            return false;
        };
        start.copy_from_slice(head);
        end.copy_from_slice(tail.bytes.get(..end.len()).unwrap_or_default());
        // The number of bits ends the last block.
        let last = usize::from(length > FIRST);
        if let Some(bits) = block.as_chunks_mut::<64>().0.get_mut(last).and_then(|block| block.last_chunk_mut::<8>()) {
            *bits = (length as u64 * 8).to_le_bytes();
        }
        *place = length;
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
        let long = self.lengths.map(|length| length > FIRST);
        let blocks = if long.contains(&true) { 2 } else { 1 };
        let [mut first, second] = dispatch!(Level::new(), simd => states(simd, &self.blocks, blocks));
        for ((first, second), long) in first.iter_mut().zip(second).zip(long) {
            *first = if long { second } else { *first };
        }
        first.map(bytes)
    }
}

/// The states of all texts after the first block and after this many. A loop: its steps are in the processor's cache when
/// they come to the second block.
#[inline(always)]
fn states<S: Simd>(simd: S, texts: &[[u8; ROOM]; LANES], blocks: usize) -> [[[u32; 4]; LANES]; 2] {
    let mut state = START.map(|word| u32x8::splat(simd, word));
    let mut states = [[[0; 4]; LANES]; 2];
    for (block, after) in states.iter_mut().enumerate().take(blocks) {
        state = mix(state, &words(simd, texts, block));
        *after = of_each(state);
    }
    states
}

/// A state of all texts, by text.
#[inline(always)]
fn of_each<S: Simd>(state: [u32x8<S>; 4]) -> [[u32; 4]; LANES] {
    let [a, b, c, d] = state.map(<[u32; LANES]>::from);
    let mut states = [[0; 4]; LANES];
    for ((((state, a), b), c), d) in states.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        *state = [a, b, c, d];
    }
    states
}

/// The words of the first or second block of all texts.
#[inline(always)]
fn words<S: Simd>(simd: S, texts: &[[u8; ROOM]; LANES], block: usize) -> [u32x8<S>; 16] {
    let [a, b, c, d, e, f, g, h] = half_of_words(simd, texts, block * 2);
    let [i, j, k, l, m, n, o, p] = half_of_words(simd, texts, block * 2 + 1);
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}

/// The words of one half of a block, of which there are as many as texts: rows become columns.
#[inline(always)]
fn half_of_words<S: Simd>(simd: S, texts: &[[u8; ROOM]; LANES], half: usize) -> [u32x8<S>; LANES] {
    let mut rows = texts.each_ref().map(|text| {
        let bytes = text.as_chunks::<{ 4 * LANES }>().0.get(half).copied().unwrap_or([0; 4 * LANES]);
        let mut words = [0; LANES];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        u32x8::simd_from(simd, words)
    });
    for _ in 0..LANES.ilog2() {
        let [a, b, c, d, e, f, g, h] = rows;
        let low = |left, right| simd.zip_low_u32x8(left, right);
        let high = |left, right| simd.zip_high_u32x8(left, right);
        rows = [low(a, e), high(a, e), low(b, f), high(b, f), low(c, g), high(c, g), low(d, h), high(d, h)];
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn together_they_have_the_digests_that_each_has_alone() {
        let text: Vec<u8> = (0..LONGEST as u8).collect();
        let (mut batch, mut last) = (Batch::new(), Tail::new());
        for length in 0..LONGEST {
            // Of other lengths, used again, and not always full.
            let lengths = [length, LONGEST - length, length / 2, FIRST + length % 3, 0, length / 3, LONGEST, 1];
            let lengths = &lengths[..1 + length % LANES];
            batch.clear();
            for length in lengths {
                let (head, tail) = text[..*length].split_at(length / 3);
                let (start, end) = tail.split_at(tail.len() / 2);
                last.set(&[start, b"", end]);
                assert!(batch.add(head, &last));
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
        let (mut batch, mut last) = (Batch::new(), Tail::new());
        let mut takes = |head: &[u8], tail: &[&[u8]]| {
            last.set(tail);
            batch.add(head, &last)
        };
        for too_long in [LONGEST + 1, ROOM - 1, ROOM, ROOM + 1, 1000] {
            let text = vec![b'x'; too_long];
            let (head, tail) = text.split_at(too_long / 2);
            assert!(!takes(head, &[tail]), "{too_long}");
            assert!(!takes(b"", &[head, tail]), "{too_long}");
            assert!(!takes(&text, &[]), "{too_long}");
        }
        assert!((0..LANES).all(|_| takes(b"x", &[b"y"])));
        assert!(!takes(b"x", &[b"y"]));
        assert_eq!((batch.len(), batch.text(7)), (LANES, &b"xy"[..]));
    }

    #[test]
    fn whatever_the_processor_has_the_digests_are_the_same() {
        let mut texts = [[0; ROOM]; LANES];
        for (number, byte) in texts.as_flattened_mut().iter_mut().enumerate() {
            *byte = (number * 151 % 251) as u8;
        }
        let level = Level::new();
        let best = dispatch!(level, simd => states(simd, &texts, 2));
        #[cfg(target_arch = "x86_64")]
        for level in
            [level.as_avx2().map(Level::Avx2), level.as_sse4_2().map(Level::Sse4_2), level.as_sse2().map(Level::Sse2)]
        {
            let Some(level) = level else { continue };
            assert_eq!(dispatch!(level, simd => states(simd, &texts, 2)), best, "{level:?}");
        }
        assert_ne!(best[0], best[1]);
    }
}
