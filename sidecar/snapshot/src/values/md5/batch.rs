//! Batch hashing of short texts: a processor computes with eight numbers as fast as with one. The available instructions
//! are detected at run time.

use fearless_simd::{Level, Simd, SimdBase as _, SimdFrom as _, dispatch, u32x4, u32x8};

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

/// Size of two blocks in bytes.
const ROOM: usize = 128;

/// Maximum length of a text in bytes: a byte with one bit and a length of eight bytes follow it.
const LONGEST: usize = ROOM - 9;

/// Maximum length in bytes of a text that fits into the first block.
const FIRST: usize = 64 - 9;

/// The common end of several texts, and MD5's padding without the length.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: [u8; ROOM],
    length: usize,
}

impl Tail {
    /// Creates an empty tail.
    pub(crate) fn new() -> Self {
        Self { bytes: [0; ROOM], length: 0 }
    }

    /// Sets the tail to a comma and these pieces. If they are too long, no text can have this tail.
    pub(crate) fn set(&mut self, pieces: [&[u8]; 3]) {
        (self.bytes, self.length) = ([0; ROOM], ROOM);
        let [comma, rest @ ..] = &mut self.bytes;
        *comma = b',';
        let mut rest = rest.as_mut_slice();
        for piece in pieces {
            if piece.is_empty() {
                continue; // often two of three are empty: faster than an empty copy
            }
            let Some((place, behind)) = rest.split_at_mut_checked(piece.len()) else { return };
            place.copy_from_slice(piece);
            rest = behind;
        }
        if let [end, behind @ ..] = rest {
            *end = 0x80;
            self.length = ROOM - 1 - behind.len();
        }
    }
}

/// The start of a text: the first bytes of a longer byte range, so that short heads are copied in one move.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Head<'a> {
    run: &'a [u8],
    length: usize,
}

impl<'a> Head<'a> {
    /// Creates the head of at most `length` bytes of `run`.
    pub(crate) fn of(run: &'a [u8], length: usize) -> Self {
        Self { run, length: length.min(run.len()) }
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        self.run.get(..self.length).unwrap_or_default()
    }
}

/// Maximum length in bytes of heads that are copied in one move; surplus bytes are overwritten.
const SHORT: usize = 16;

/// A text, with room for the surplus of moves. Aligned like the largest SIMD registers, so that each read touches one
/// cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Text([u8; 2 * ROOM]);

/// Texts to hash.
#[derive(Debug)]
pub(crate) struct Batch {
    texts: [Text; LANES],
    lengths: [usize; LANES],
    states: States,
    count: usize,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self { texts: [Text([0; 2 * ROOM]); LANES], lengths: [0; LANES], states: [[[0; LANES]; 4]; 2], count: 0 }
    }

    /// Adds a text. Returns false if it is too long, or if the batch is full.
    #[inline(always)]
    pub(crate) fn add(&mut self, head: Head<'_>, tail: &Tail) -> bool {
        let (Some(Text(text)), Some(place)) = (self.texts.get_mut(self.count), self.lengths.get_mut(self.count)) else {
            return false;
        };
        let length = head.length.saturating_add(tail.length);
        if length > LONGEST {
            return false;
        }
        match (text.first_chunk_mut::<SHORT>(), head.run.first_chunk()) {
            (Some(start), Some(chunk)) if head.length <= SHORT => *start = *chunk,
            _ => text.iter_mut().zip(head.bytes()).for_each(|(place, byte)| *place = *byte),
        }
        if let Some(end) = text.get_mut(head.length..).and_then(|end| end.first_chunk_mut()) {
            *end = tail.bytes;
        }
        // The number of bits ends the last block.
        let last = usize::from(length > FIRST);
        if let Some(bits) = text.as_chunks_mut::<64>().0.get_mut(last).and_then(|block| block.last_chunk_mut::<8>()) {
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

    /// Returns an added text.
    pub(crate) fn text(&self, lane: usize) -> &[u8] {
        let (Some(Text(text)), Some(length)) = (self.texts.get(lane), self.lengths.get(lane)) else { return &[] };
        text.get(..*length).unwrap_or_default()
    }

    /// Hashes the texts.
    pub(crate) fn hash(&mut self) {
        let Self { texts, states, lengths, count } = self;
        let lengths = lengths.get(..*count).unwrap_or_default();
        let blocks = 1 + usize::from(lengths.iter().any(|length| *length > FIRST));
        dispatch!(Level::new(), simd => mix_all(simd, texts, blocks, states));
    }

    /// Returns the digest of a text, after [`Self::hash`].
    pub(crate) fn digest(&self, lane: usize) -> Option<Digest> {
        let [first, second] = &self.states;
        let [a, b, c, d] = if *self.lengths.get(lane)? > FIRST { second } else { first };
        Some(bytes([*a.get(lane)?, *b.get(lane)?, *c.get(lane)?, *d.get(lane)?]))
    }
}

/// The states of all texts after the first block and after the second.
type States = [[[u32; LANES]; 4]; 2];

/// Computes the states of the texts after `blocks` blocks. The blocks are a loop, so that the code of the steps is in the
/// processor's cache for the second block.
#[inline(always)]
fn mix_all<S: Simd>(simd: S, texts: &[Text; LANES], blocks: usize, states: &mut States) {
    let (mut state, mut words) = (START.map(|word| u32x8::splat(simd, word)), [u32x8::splat(simd, 0); 16]);
    for (block, after) in states.iter_mut().enumerate().take(blocks) {
        for (number, words) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *words = words_of_all(simd, texts, block * 4 + number);
        }
        state = mix(state, &words);
        *after = state.map(<[u32; LANES]>::from);
    }
}

/// Reads four words of all texts. Each four texts are transposed separately, so that no word crosses the middle of a
/// register, which takes the longest.
#[inline(always)]
fn words_of_all<S: Simd>(simd: S, texts: &[Text; LANES], number: usize) -> [u32x8<S>; 4] {
    let mut words = [u32x8::splat(simd, 0); 4];
    let [left, right] = texts.as_chunks::<4>().0 else { return words };
    let [left, right] = [left, right].map(|texts| words_of_four(simd, texts, number));
    for ((word, left), right) in words.iter_mut().zip(left).zip(right) {
        *word = simd.combine_u32x4(left, right);
    }
    words
}

/// Reads four words of four texts.
#[inline(always)]
fn words_of_four<S: Simd>(simd: S, texts: &[Text; 4], number: usize) -> [u32x4<S>; 4] {
    let mut rows = [u32x4::splat(simd, 0); 4];
    for (row, text) in rows.iter_mut().zip(texts) {
        *row = u32x4::simd_from(simd, words_of(text, number));
    }
    for _ in 0..rows.len().ilog2() {
        let [a, b, c, d] = rows;
        let ([a, b], [c, d]) = (simd.interleave_u32x4(a, c).into(), simd.interleave_u32x4(b, d).into());
        rows = [a, b, c, d];
    }
    rows
}

/// Reads four words of a text at position `number`, counted in groups of four.
#[inline(always)]
fn words_of(Text(text): &Text, number: usize) -> [u32; 4] {
    // The words always exist. The remainder lets the compiler remove the bounds checks.
    let first = number * 4 % (2 * ROOM / 4);
    let words = text.as_chunks::<4>().0.get(first..).and_then(|words| words.first_chunk::<4>());
    words.copied().unwrap_or([[0; 4]; 4]).map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_of_texts_has_digests_of_single_texts() {
        let ids: Vec<u8> = (0..LONGEST as u8).collect();
        let (mut batch, mut last) = (Batch::new(), Tail::new());
        for length in 1..=LONGEST {
            // Batches of other lengths, reused, and not always full.
            let some = [length, LONGEST + 1 - length, length / 2, FIRST + length % 3, 1, length / 3, LONGEST, 2];
            let lengths = [some, some.map(|length| LONGEST - length)].concat();
            let lengths: Vec<usize> = lengths.iter().map(|length| *length.max(&1)).take(1 + length % LANES).collect();
            let mut texts = Vec::new();
            batch.clear();
            for length in &lengths {
                let (head, tail) = ids[..length - 1].split_at(length / 3);
                let (start, end) = tail.split_at(tail.len() / 2);
                last.set([start, b"", end]);
                // Other bytes follow the head.
                let run = [head, b"0123456789abcdefghij"].concat();
                let run = if length % 3 == 0 { head } else { &run };
                assert!(batch.add(Head::of(run, head.len()), &last));
                texts.push([head, b",", tail].concat());
            }
            assert_eq!(batch.len(), lengths.len());
            batch.hash();
            for (lane, text) in texts.iter().enumerate() {
                assert_eq!(batch.text(lane), text);
                assert_eq!(batch.digest(lane), Some(::md5::compute(text).0), "{} bytes", text.len());
            }
        }
    }

    #[test]
    fn batch_refuses_long_texts_and_texts_beyond_its_lanes() {
        let (mut batch, mut last) = (Batch::new(), Tail::new());
        let mut takes = |head: &[u8], [a, b]: [&[u8]; 2]| {
            last.set([a, b, b""]);
            batch.add(Head::of(head, head.len()), &last)
        };
        for too_long in [LONGEST, ROOM - 1, ROOM, ROOM + 1, 1000] {
            let text = vec![b'x'; too_long];
            let (head, tail) = text.split_at(too_long / 2);
            assert!(!takes(head, [tail, b""]), "{too_long}");
            assert!(!takes(b"", [head, tail]), "{too_long}");
            assert!(!takes(&text, [b"", b""]), "{too_long}");
        }
        assert!((0..LANES).all(|_| takes(b"x", [b"y", b""])));
        assert!(!takes(b"x", [b"y", b""]));
        assert_eq!((batch.len(), batch.text(7)), (LANES, &b"x,y"[..]));
    }

    #[test]
    fn batch_on_any_instruction_set_has_same_digests() {
        let mut texts = Batch::new().texts;
        for (number, byte) in texts.iter_mut().flat_map(|Text(text)| text).enumerate() {
            *byte = (number * 151 % 251) as u8;
        }
        let level = Level::new();
        let hashed = |level| {
            let mut states = [[[0; LANES]; 4]; 2];
            dispatch!(level, simd => mix_all(simd, &texts, 2, &mut states));
            states
        };
        let best = hashed(level);
        #[cfg(target_arch = "x86_64")]
        for level in
            [level.as_avx2().map(Level::Avx2), level.as_sse4_2().map(Level::Sse4_2), level.as_sse2().map(Level::Sse2)]
        {
            let Some(level) = level else { continue };
            assert_eq!(hashed(level), best, "{level:?}");
        }
        assert_ne!(best[0], best[1]);
    }
}
