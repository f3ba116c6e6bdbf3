//! MD5 (RFC 1321), on which Flagsmith's percentages are based. It protects no secrets here; compatibility requires it.

mod batch;

use std::ops::{BitAnd, BitOr, BitXor, Not};

pub(crate) use batch::{Batch, Head, Tail};

/// Maximum number of texts in a batch.
pub(crate) const LANES: usize = 8;

/// Rotation of each step in bits, by round and by step modulo four.
const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// Integer part of 2³² × |sin(step + 1)|, by round, in groups of four.
const SINES: [[[u32; 4]; 4]; 4] = [
    [
        [0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee],
        [0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501],
        [0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be],
        [0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821],
    ],
    [
        [0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa],
        [0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8],
        [0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed],
        [0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a],
    ],
    [
        [0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c],
        [0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70],
        [0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05],
        [0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665],
    ],
    [
        [0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039],
        [0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1],
        [0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1],
        [0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391],
    ],
];

/// Operand of a step: one number, or one number of each of several texts that are hashed together.
trait Word: Copy + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self> {
    fn plus(self, other: Self) -> Self;
    fn plus_constant(self, constant: u32) -> Self;
    fn rotated(self, by: u32) -> Self;
}

impl Word for u32 {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn plus_constant(self, constant: u32) -> Self {
        self.wrapping_add(constant)
    }
    #[inline(always)]
    fn rotated(self, by: u32) -> Self {
        self.rotate_left(by)
    }
}

/// Runs the sixteen steps of a round in groups of four, after which each variable has its original role again. Each
/// step depends on `b` of the previous one, so all other terms are added first. The groups are a loop because unrolled
/// rounds are far more code, and the other work of a request evicts much of it from the processor's first cache.
macro_rules! round {
    ($state:ident, $words:ident, $sines:ident, $round:literal, $function:ident, $stride:literal, $first:literal) => {{
        let [mut a, mut b, mut c, mut d] = $state;
        for (four, sines) in $sines[$round].iter().enumerate() {
            round!(@steps a b c d, four, $words, sines, $round, $function, $stride, $first, 0 1 2 3);
        }
        $state = [a, b, c, d];
    }};
    (@steps $a:ident $b:ident $c:ident $d:ident, $four:ident, $words:ident, $sines:ident, $round:literal, $function:ident, $stride:literal, $first:literal, $($step:literal)*) => {
        $(
            let known = $a.plus($words[($four * const { $stride * 4 % 16 } + const { ($stride * $step + $first) % 16 }) % 16]);
            let sum = $function(known.plus_constant($sines[$step]), $b, $c, $d);
            ($a, $d, $c, $b) = ($d, $c, $b, $b.plus(sum.rotated(const { SHIFTS[$round][$step] })));
        )*
    };
}

/// Adds the function of the first round to a sum. The four are functions because compilers do not inline larger
/// closures.
#[inline(always)]
fn first<W: Word>(sum: W, b: W, c: W, d: W) -> W {
    sum.plus(d ^ (b & (c ^ d)))
}

/// Adds the function of the second round to a sum. Its two halves have no bit in common.
#[inline(always)]
fn second<W: Word>(sum: W, b: W, c: W, d: W) -> W {
    sum.plus(c & !d).plus(b & d)
}

/// Adds the function of the third round to a sum.
#[inline(always)]
fn third<W: Word>(sum: W, b: W, c: W, d: W) -> W {
    sum.plus(b ^ (c ^ d))
}

/// Adds the function of the fourth round to a sum.
#[inline(always)]
fn fourth<W: Word>(sum: W, b: W, c: W, d: W) -> W {
    sum.plus(c ^ (b | !d))
}

/// Returns the state after a block.
#[inline(always)]
fn mix<W: Word>(before: [W; 4], words: &[W; 16]) -> [W; 4] {
    // Compilers add known constants last, when every step waits for the sum, and unroll loops of a known length.
    // `black_box` prevents both.
    let sines: [&[[u32; 4]]; 4] =
        std::hint::black_box(&SINES).each_ref().map(|round| std::hint::black_box(round.as_slice()));
    let mut state = before;
    round!(state, words, sines, 0, first, 1, 0);
    round!(state, words, sines, 1, second, 5, 1);
    round!(state, words, sines, 2, third, 3, 5);
    round!(state, words, sines, 3, fourth, 7, 0);
    let [[a, b, c, d], [e, f, g, h]] = [before, state];
    [a.plus(e), b.plus(f), c.plus(g), d.plus(h)]
}

/// The state before the first block.
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// An MD5 digest.
pub(crate) type Digest = [u8; 16];

/// Returns a state as a digest.
fn bytes(state: [u32; 4]) -> Digest {
    let mut digest = [0; 16];
    for (place, byte) in digest.iter_mut().zip(state.map(u32::to_le_bytes).as_flattened()) {
        *place = *byte;
    }
    digest
}

/// Streaming MD5 of a text that arrives in pieces.
pub(crate) struct Md5 {
    state: [u32; 4],
    block: [u8; 64],
    /// Length in bytes so far.
    length: u64,
}

impl Md5 {
    pub(crate) fn new() -> Self {
        Self { state: START, block: [0; 64], length: 0 }
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) {
        loop {
            let filled = self.length as usize % 64;
            let place = self.block.get_mut(filled..).unwrap_or_default();
            let count = place.len().min(bytes.len());
            let (now, later) = bytes.split_at_checked(count).unwrap_or((bytes, &[]));
            for (place, byte) in place.iter_mut().zip(now) {
                *place = *byte;
            }
            self.length += count as u64;
            bytes = later;
            if filled + count < 64 {
                return;
            }
            self.mix();
        }
    }

    pub(crate) fn finish(mut self) -> Digest {
        let bits = self.length.wrapping_mul(8);
        let filled = self.length as usize % 64;
        if let Some([first, rest @ ..]) = self.block.get_mut(filled..) {
            *first = 0x80;
            rest.fill(0);
        }
        if filled >= 56 {
            self.mix();
            self.block = [0; 64];
        }
        if let Some(place) = self.block.last_chunk_mut::<8>() {
            *place = bits.to_le_bytes();
        }
        self.mix();
        bytes(self.state)
    }

    /// Processes a full block.
    fn mix(&mut self) {
        let mut words = [0_u32; 16];
        for (word, bytes) in words.iter_mut().zip(self.block.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        self.state = mix(self.state, &words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the digest of a text that arrives in pieces of this size.
    fn digest(text: &[u8], piece: usize) -> String {
        let mut md5 = Md5::new();
        text.chunks(piece).for_each(|piece| md5.write(piece));
        md5.finish().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn md5_of_standard_texts_has_standard_digests() {
        // RFC 1321, A.5.
        for (text, expected) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(digest(text.as_bytes(), 80), expected, "{text:?}");
            assert_eq!(digest(text.as_bytes(), 7), expected, "{text:?} in pieces");
        }
    }

    #[test]
    fn md5_of_every_length_equals_other_implementation() {
        let text = [b'x'; 200];
        for length in 0..text.len() {
            let expected = format!("{:x}", ::md5::compute(&text[..length]));
            assert_eq!(digest(&text[..length], 61), expected, "{length} bytes");
        }
    }
}
