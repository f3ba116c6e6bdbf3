//! The writer of the segment index: for each slot, the candidates per value. It uses the same comparisons as programs,
//! and applies them to the values and the intervals between the values that conditions compare with.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::WriteError;
use super::blob::{Blob, offset};
use super::combined_dfa::{Combined, Work};
use super::free_rows::FreeRows;
use super::predicates::{ComparedValue, Computation, Computed, Lookup, Members, Pattern, Predicate, ValueTest};
use super::slot_predicates::{ALL, ORDERED, SlotPredicates};
use super::sweep::Sweep;
use crate::format::{
    layout::{
        AcceptSet, AttributeIndex, BLOCK, Breakpoint, CombinedDfa, ExactMatch, ModuloRule, Operator, PatternPredicate,
        PercentageRule, SegmentBlock,
    },
    model::Rule,
};
use crate::segments::condition::{UNORDERED, accepts, relation_of};
use crate::values::{
    hash::{MemberKey, NO_MEMBER, bucket_of, numbers},
    python_bool,
    rows::{Row, Span},
};

/// The tables of the index, as stored.
#[derive(Default)]
pub(super) struct Index {
    pub(super) blocks: Vec<u8>,
    pub(super) attribute_indexes: Vec<u8>,
    pub(super) modulo_rules: Vec<u8>,
    pub(super) percentage_rules: Vec<u8>,
    pub(super) breakpoints: Vec<u8>,
    pub(super) exact_matches: Vec<u8>,
    pub(super) combined_dfas: Vec<u8>,
    pub(super) accept_sets: Vec<u8>,
    pub(super) pattern_predicates: Vec<u8>,
}

/// Maximum number of steps for combining the patterns of all slots, which take less than a second. Patterns of later
/// slots stay in programs.
const MAX_DFA_WORK: u64 = 1 << 26;

/// Maximum size in bytes of the combined patterns of all slots: half of an object. Other patterns stay in programs.
const MAX_DFA_BYTES: usize = 512 << 10;

/// Rules for which the index has no room, with the row of their segment.
pub(super) type Returned = Vec<(usize, Rule)>;

/// The requirements of one segment on single slots.
pub(super) struct SegmentPredicates<'a> {
    /// Seed of the segment's percentages.
    pub(super) seed: &'a str,
    /// True if the segment has no rules, so that no identity matches it.
    pub(super) is_empty: bool,
    pub(super) predicates: Vec<Predicate<'a>>,
    pub(super) computed: Vec<Computed>,
}

/// Builds the index of all segments, in their order, and appends automata to `programs`.
pub(super) fn write(
    segments: &[SegmentPredicates<'_>],
    blob: &mut Blob,
    programs: &mut Vec<u8>,
) -> Result<(Index, Returned), WriteError> {
    let mut index = Index::default();
    let mut returned = Returned::new();
    let work = Work::new(MAX_DFA_WORK);
    for (first, block) in segments.chunks(BLOCK).enumerate() {
        let mut by_property: BTreeMap<usize, SlotPredicates<'_>> = BTreeMap::new();
        let mut all = 0;
        let (modulo_rules, percentage_rules) = (index.modulo_rules.len(), index.percentage_rules.len());
        for (number, segment) in block.iter().enumerate().filter(|(_, segment)| !segment.is_empty) {
            let bit = 1 << number;
            all |= bit;
            for predicate in &segment.predicates {
                by_property.entry(predicate.property).or_default().push(bit, predicate);
            }
            for computed in &segment.computed {
                index.compute(bit, segment.seed, computed, blob)?;
            }
        }
        let rows = |from: usize, to: usize, size: usize| {
            Ok::<_, WriteError>(Span { start: offset(from / size)?, length: offset((to - from) / size)? })
        };
        let (modulo_rules, percentage_rules) = (
            rows(modulo_rules, index.modulo_rules.len(), ModuloRule::SIZE)?,
            rows(percentage_rules, index.percentage_rules.len(), PercentageRule::SIZE)?,
        );
        let attribute_indexes = Span {
            start: offset(index.attribute_indexes.len() / AttributeIndex::SIZE)?,
            length: offset(by_property.len())?,
        };
        for (property, mut predicates) in by_property {
            let room = MAX_DFA_BYTES.saturating_sub(programs.len() + index.accept_sets.len());
            let (joined, removed) = predicates.join(room, &work);
            returned
                .extend(removed.into_iter().map(|(bit, rule)| (first * BLOCK + bit.trailing_zeros() as usize, rule)));
            let combined_dfa = index.combined_dfa(&predicates, joined, programs)?;
            let attribute_index =
                AttributeIndex { combined_dfa, ..index.attribute_index(property, &predicates, blob)? };
            index.attribute_indexes.extend_from_slice(&attribute_index.encode());
        }
        index
            .blocks
            .extend_from_slice(&SegmentBlock { all, attribute_indexes, modulo_rules, percentage_rules }.encode());
    }
    Ok((index, returned))
}

/// Returns the number of rows of a hash table for this number of members. At least a quarter is free, so that probing
/// is short.
fn room(members: usize) -> usize {
    if members == 0 { 0 } else { (members + members.div_ceil(3)).next_power_of_two() }
}

impl Index {
    fn compute(&mut self, segment: u64, seed: &str, computed: &Computed, blob: &mut Blob) -> Result<(), WriteError> {
        let (slot, negated) = (offset(computed.property)?, u32::from(computed.negated));
        match computed.of {
            Computation::Modulo { divisor, remainder } => {
                self.modulo_rules
                    .extend(ModuloRule { divisor, remainder, segment_bit: segment, slot, negated }.encode());
            }
            Computation::Percentage { threshold } => {
                let seed = blob.intern(seed.as_bytes())?;
                self.percentage_rules
                    .extend(PercentageRule { threshold, seed, segment_bit: segment, slot, negated }.encode());
            }
        }
        Ok(())
    }

    fn attribute_index(
        &mut self,
        property: usize,
        predicates: &SlotPredicates<'_>,
        blob: &mut Blob,
    ) -> Result<AttributeIndex, WriteError> {
        let boolean = |value: bool| {
            predicates.candidates_compared(ORDERED, |compared| Some(relation_of(value.cmp(&compared.boolean))))
                & predicates.candidates_printed(python_bool(value).as_bytes())
        };
        let (below_texts, texts) = self.scale(
            (predicates, &[Lookup::Texts]),
            |compared| Some(compared.text),
            |_| &[],
            |a, b| a.as_bytes().cmp(b.as_bytes()),
            |text| Ok(blob.intern(text.as_bytes())?.to_word()),
        )?;
        let (below_versions, versions) = self.scale(
            (predicates, &[Lookup::Versions]),
            |compared| compared.version,
            |_| &[],
            Ord::cmp,
            |version| Ok(*version),
        )?;
        let (below_integers, integers) = self.scale(
            (predicates, ORDERED),
            |compared| compared.integer,
            |members| &members.integers,
            Ord::cmp,
            |integer| Ok(integer.cast_unsigned()),
        )?;
        let (below_floats, floats) = self.scale(
            (predicates, ORDERED),
            |compared| compared.float,
            |_| &[],
            |a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal), // NaN is excluded before
            |float| Ok(float.to_bits()),
        )?;
        let (unmatched, exact_matches) = self.sets(predicates)?;
        Ok(AttributeIndex {
            unset: predicates.candidates(ALL, |test| matches!(test, ValueTest::Set(false))),
            no: boolean(false),
            yes: boolean(true),
            unordered: predicates.candidates_compared(ORDERED, |compared| compared.float.map(|_| UNORDERED)),
            unversioned: predicates.candidates_compared(&[Lookup::Versions], |_| None),
            below_texts,
            texts,
            below_versions,
            versions,
            below_integers,
            integers,
            below_floats,
            floats,
            unmatched,
            exact_matches,
            slot: offset(property)?,
            combined_dfa: 0,
        })
    }

    /// Writes the breakpoints of one type of values, and returns the candidates below the first.
    fn scale<'a, T: Copy>(
        &mut self,
        (predicates, lookups): (&SlotPredicates<'a>, &[Lookup]),
        place: impl Fn(&ComparedValue<'a>) -> Option<T>,
        members: impl Fn(&Members) -> &[T],
        order: impl Fn(&T, &T) -> Ordering,
        mut stored: impl FnMut(&T) -> Result<u64, WriteError>,
    ) -> Result<(u64, Span), WriteError> {
        let mut points: Vec<T> = Vec::new();
        for test in predicates.tests(lookups) {
            match test {
                ValueTest::Compare(_, compared) => points.extend(place(compared)),
                ValueTest::In(set) => points.extend(members(set)),
                ValueTest::Set(_) | ValueTest::Has(_) | ValueTest::Lacks(_) => {}
            }
        }
        points.sort_by(&order);
        points.dedup_by(|a, b| order(a, b) == Ordering::Equal);
        let before = |of: &T| points.partition_point(|other| order(other, of) == Ordering::Less);
        // Position of a value: 0 below the first point, 1 at it, 2 above it, 3 at the next.
        let mut sweep = Sweep::new(predicates, lookups, |test, turns| match test {
            ValueTest::Set(set) => *set,
            ValueTest::Compare(operator, compared) => place(compared).is_some_and(|point| {
                let holds = |ordering| accepts(*operator as u8, relation_of(ordering));
                let (less, equal, greater) = (holds(Ordering::Less), holds(Ordering::Equal), holds(Ordering::Greater));
                let at = 2 * before(&point) + 1;
                turns.turn(at, less, equal);
                turns.turn(at + 1, equal, greater);
                less
            }),
            ValueTest::In(set) => {
                for member in members(set) {
                    let at = 2 * before(member) + 1;
                    turns.turn(at, false, true);
                    turns.turn(at + 1, true, false);
                }
                false
            }
            ValueTest::Has(_) | ValueTest::Lacks(_) => false,
        });
        let below = sweep.candidates;
        let breakpoints =
            Span { start: offset(self.breakpoints.len() / Breakpoint::SIZE)?, length: offset(points.len())? };
        for (number, point) in points.iter().enumerate() {
            let at = sweep.advance(2 * number + 1);
            let above = sweep.advance(2 * number + 2);
            self.breakpoints.extend_from_slice(&Breakpoint { point: stored(point)?, at, above }.encode());
        }
        Ok((below, breakpoints))
    }

    /// Writes the exact matches of texts, and returns the candidates for all other texts.
    fn sets(&mut self, predicates: &SlotPredicates<'_>) -> Result<(u64, Span), WriteError> {
        // Tests of this look-up are equalities, so the order of another text does not matter.
        let other = |operator: Operator| accepts(operator as u8, relation_of(Ordering::Greater));
        let mut sweep = Sweep::new(predicates, &[Lookup::Sets], |test, turns| match test {
            ValueTest::Set(set) => *set,
            ValueTest::Compare(operator, compared) => {
                let equal = accepts(*operator as u8, relation_of(Ordering::Equal));
                turns.turn(compared.key, other(*operator), equal);
                other(*operator)
            }
            ValueTest::In(set) => {
                set.member_keys.iter().for_each(|key| turns.turn(*key, false, true));
                false
            }
            ValueTest::Has(_) | ValueTest::Lacks(_) => false,
        });
        let unmatched = sweep.candidates;
        // Texts without a change of candidates have a row as well.
        let mut members: Vec<MemberKey> = Vec::new();
        for test in predicates.tests(&[Lookup::Sets]) {
            match test {
                ValueTest::Compare(_, compared) => members.push(compared.key),
                ValueTest::In(set) => members.extend(&set.member_keys),
                ValueTest::Set(_) | ValueTest::Has(_) | ValueTest::Lacks(_) => {}
            }
        }
        members.sort_unstable();
        members.dedup();
        let mut rows = vec![ExactMatch { key: NO_MEMBER, at: unmatched }; room(members.len())];
        let mut free = FreeRows::new(rows.len());
        for key in &members {
            let row = free.take(bucket_of(numbers(key)) as usize);
            if let Some(row) = rows.get_mut(row) {
                *row = ExactMatch { key: *key, at: sweep.at(*key) };
            }
        }
        let span = Span { start: offset(self.exact_matches.len() / ExactMatch::SIZE)?, length: offset(rows.len())? };
        self.exact_matches.extend(rows.iter().flat_map(ExactMatch::encode));
        Ok((unmatched, span))
    }

    /// Writes the combined patterns of one slot, and returns their row plus 1, or 0.
    fn combined_dfa(
        &mut self,
        predicates: &SlotPredicates<'_>,
        joined: Option<Combined>,
        programs: &mut Vec<u8>,
    ) -> Result<u32, WriteError> {
        let Some(Combined { program, accept_sets }) = joined else { return Ok(0) };
        let patterns = predicates.patterns();
        let bit =
            |pattern: &Pattern<'_>| patterns.iter().position(|other| other == pattern).map_or(0, |place| 1 << place);
        let bits = |of: &dyn Fn(&Pattern<'_>) -> bool| {
            patterns.iter().filter(|pattern| of(pattern)).fold(0, |bits, pattern| bits | bit(pattern))
        };
        let pattern_predicates: Vec<PatternPredicate> = predicates
            .of(&[Lookup::Patterns])
            .map(|(segment, predicate)| {
                let (mut found, mut lacking) = (0, 0);
                for test in &predicate.tests {
                    match test {
                        ValueTest::Has(pattern) => found |= bit(pattern),
                        ValueTest::Lacks(pattern) => lacking |= bit(pattern),
                        ValueTest::Set(_) | ValueTest::Compare(..) | ValueTest::In(_) => {}
                    }
                }
                PatternPredicate { found, lacking, segment_bit: segment, negated: u64::from(predicate.negated) }
            })
            .collect();
        let row = CombinedDfa {
            program: Span { start: offset(programs.len())?, length: offset(program.len())? },
            accept_sets: Span {
                start: offset(self.accept_sets.len() / AcceptSet::SIZE)?,
                length: offset(accept_sets.len())?,
            },
            pattern_predicates: Span {
                start: offset(self.pattern_predicates.len() / PatternPredicate::SIZE)?,
                length: offset(pattern_predicates.len())?,
            },
            automata: bits(&|pattern| matches!(pattern, Pattern::Automaton(_))),
        };
        programs.extend_from_slice(&program);
        self.accept_sets.extend(accept_sets.iter().flat_map(AcceptSet::encode));
        self.pattern_predicates.extend(pattern_predicates.iter().flat_map(PatternPredicate::encode));
        self.combined_dfas.extend_from_slice(&row.encode());
        offset(self.combined_dfas.len() / CombinedDfa::SIZE)
    }
}
