//! The rows of the index of segments.

use super::{Fields, Pen};
use crate::values::rows::{Row, Span};

/// How many segments a block of the index has, and of how many features in a row a claim is: the bits of a word.
pub(crate) const BLOCK: usize = u64::BITS as usize;

row!(
    /// The index of so many segments, one bit each, the first one lowest.
    Block, 32, {
        /// Those that there are, and that have rules.
        all: u64,
        /// Its rows in `Columns`,
        columns: span,
        /// in `Moduli`,
        moduli: span,
        /// and in `Shares`.
        shares: span,
    }
);
row!(
    /// What the value of one slot says of the segments of a block. Each word has the segments that are left with such a
    /// value; each span the rows in `Marks` where that changes, and the word before it is what holds below the first.
    Column, 128, {
        slot: u32,
        /// One more than the row in `Joints`; zero: no patterns are asked for.
        joint: u32,
        /// There is no value.
        unset: u64,
        /// It is `false`.
        no: u64,
        /// It is `true`.
        yes: u64,
        /// It is not a number.
        unordered: u64,
        /// It is a text that is no version.
        unversioned: u64,
        below_texts: u64,
        texts: span,
        below_versions: u64,
        versions: span,
        below_integers: u64,
        integers: span,
        below_floats: u64,
        floats: span,
        /// It is in none of the sets.
        unlisted: u64,
        /// A hash table in `Listed`.
        listed: span,
    }
);
row!(
    /// A segment asks for a remainder.
    Modulus, 32, {
        divisor: f64,
        remainder: f64,
        /// The segment's bit.
        segment: u64,
        slot: u32,
        /// 1: it wants another one.
        negated: u32,
    }
);
row!(
    /// A segment asks for a share of all identities, or of what a slot may hold. Sorted by segment.
    Share, 32, {
        /// The percentage is at most this.
        threshold: f64,
        /// What is hashed before the value.
        seed: span,
        /// The segment's bit.
        segment: u64,
        slot: u32,
        /// 1: it wants the others.
        negated: u32,
    }
);
row!(
    /// Patterns that are looked for together, a bit each.
    Joint, 32, {
        /// An automaton in `Programs`, whose matching states are those in which something is found.
        program: span,
        /// Its rows in `Finds`, one a state.
        finds: span,
        /// Its rows in `Wants`.
        wants: span,
        /// The patterns that are looked for in numbers, too.
        automata: u64,
    }
);
row!(
    /// What is found in a text when a state is reached,
    Find, 16, {
        here: u64,
        /// and when the text ends in it.
        at_end: u64,
    }
);
row!(
    /// What a segment wants of the patterns: any of some to be found, or any of others not to be.
    Want, 32, {
        found: u64,
        lacking: u64,
        /// The segment's bit.
        segment: u64,
        /// 1: neither of it.
        negated: u64,
    }
);
row!(
    /// A value at which segments come or go.
    Mark, 24, {
        /// A text (span), a version ([`crate::values::semver::Packed`]), an `i64` or an `f64`.
        point: u64,
        /// The segments that are left at this value,
        at: u64,
        /// and between it and the next one.
        above: u64,
    }
);
row!(
    /// A member of sets, or a free row of a column's hash table ([`crate::values::hash::NO_TOKEN`]).
    Listed, 20, { token: hash96, at: u64 }
);
