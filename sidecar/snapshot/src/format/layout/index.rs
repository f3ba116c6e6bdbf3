//! The rows of the segment index.

use super::row::{Fields, RowWriter};
use crate::values::rows::{Row, Span};

/// Number of segments in a block of the index, and number of features that an override mask can cover: the bits of a word.
pub(crate) const BLOCK: usize = u64::BITS as usize;

row!(
    /// The index of [`BLOCK`] segments, one bit each. The first segment is the lowest bit.
    SegmentBlock, 32, {
        /// The segments that exist and have rules.
        all: u64,
        /// Rows in `AttributeIndexes`.
        attribute_indexes: range,
        /// Rows in `ModuloRules`.
        modulo_rules: range,
        /// Rows in `PercentageRules`.
        percentage_rules: range,
    }
);
row!(
    /// Attribute index: maps the value of one slot to the candidates of a block. Each word holds the candidates for one
    /// kind of value. Each span is a range of breakpoints in `Breakpoints`, and the word before it holds the candidates below
    /// the first.
    AttributeIndex, 128, {
        slot: u32,
        /// Row in `CombinedDfas` plus 1; zero: no patterns.
        combined_dfa: u32,
        /// Candidates if the slot has no value.
        unset: u64,
        /// Candidates if the value is `false`.
        no: u64,
        /// Candidates if the value is `true`.
        yes: u64,
        /// Candidates if the value is NaN.
        unordered: u64,
        /// Candidates if the value is a text that is no version.
        unversioned: u64,
        below_texts: u64,
        texts: range,
        below_versions: u64,
        versions: range,
        below_integers: u64,
        integers: range,
        below_floats: u64,
        floats: range,
        /// Candidates if the value is a text in none of the sets.
        unmatched: u64,
        /// A hash table in `ExactMatch`.
        exact_matches: range,
    }
);
row!(
    /// A modulo rule of a segment.
    ModuloRule, 32, {
        divisor: f64,
        remainder: f64,
        /// Bit of the segment.
        segment_bit: u64,
        slot: u32,
        /// 1 if the rule is negated: another remainder is required.
        negated: u32,
    }
);
row!(
    /// A percentage rule of a segment, over the identity's key or another slot. Sorted by segment.
    PercentageRule, 32, {
        /// Maximum percentage, inclusive.
        threshold: f64,
        /// Bytes that are hashed before the value.
        seed: span,
        /// Bit of the segment.
        segment_bit: u64,
        slot: u32,
        /// 1 if the rule is negated: percentages above the threshold match.
        negated: u32,
    }
);

impl ModuloRule {
    /// Returns true if a segment with this rule stays a candidate. `is_remainder`: the value has the rule's remainder.
    #[inline(always)]
    pub(crate) fn keeps(&self, is_remainder: bool) -> bool {
        is_remainder == (self.negated == 0)
    }
}

impl PercentageRule {
    /// Returns true if a segment with this rule stays a candidate. The percentage of an unset slot is infinite.
    #[inline(always)]
    pub(crate) fn keeps(&self, percentage: f64) -> bool {
        (percentage <= self.threshold) == (self.negated == 0)
    }
}

row!(
    /// Combined DFA of patterns, one bit per pattern.
    CombinedDfa, 32, {
        /// Automaton in `Programs`. Its matching states are the states in which a pattern is found.
        program: range,
        /// Rows in `AcceptSets`, one per state.
        accept_sets: range,
        /// Rows in `PatternPredicates`.
        pattern_predicates: range,
        /// The patterns that are also searched in numbers.
        automata: u64,
    }
);
row!(
    /// Accept set of a state: the patterns that are found when it is reached.
    AcceptSet, 16, {
        here: u64,
        /// The patterns that are found when the text ends in the state.
        at_end: u64,
    }
);
row!(
    /// Predicate of a segment on the patterns: any of `found` is found, or any of `lacking` is not found.
    PatternPredicate, 32, {
        found: u64,
        lacking: u64,
        /// Bit of the segment.
        segment_bit: u64,
        /// 1 if the predicate is negated.
        negated: u64,
    }
);
row!(
    /// Breakpoint: a value at which the candidates change.
    Breakpoint, 24, {
        /// A text (span), a version ([`crate::values::semver::Packed`]), an `i64` or an `f64`.
        point: u64,
        /// Candidates at this value.
        at: u64,
        /// Candidates between this value and the next breakpoint.
        above: u64,
    }
);
row!(
    /// A member of sets, or a free row of an attribute index's hash table ([`crate::values::hash::NO_MEMBER`]).
    ExactMatch, 20, { key: hash96, at: u64 }
);
