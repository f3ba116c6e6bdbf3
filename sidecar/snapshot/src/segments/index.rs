//! The segment index: computes the candidates of a block with one look-up per slot, independent of the number of
//! conditions.

use std::cell::Cell;
use std::cmp::Ordering;

use super::condition::{READINGS, member_key_of, modulo, text_of};
use super::{Scratch, Segments};
use crate::budget::{BYTES_A_STEP, LOOK_UPS, Undecided};
use crate::context::{EvaluationContext, StrRange, Value};
use crate::format::{
    layout::{AttributeIndex, Breakpoint, PercentageRule},
    view::View,
};
use crate::regex::automaton;
use crate::values::{
    hash::{NO_MEMBER, bucket_of, numbers},
    percentage::{IdSource, Percentages},
    rows::{Row as _, Span, Table},
    semver::{self, Version, unpack},
};

impl Segments<'_> {
    /// Returns the candidates of a block, one bit each, before percentage rules. A candidate without percentage rules
    /// and without a residual program is a match.
    pub(super) fn candidates(&self, context: &EvaluationContext, scratch: &mut Scratch, block: usize) -> u64 {
        if let Some(kept) = scratch.candidates.get(block).copied().flatten() {
            return kept;
        }
        let candidates = self.look_up(context, scratch, block);
        if scratch.candidates.len() <= block {
            scratch.candidates.resize(self.view.blocks().len(), None);
        }
        if let Some(place) = scratch.candidates.get_mut(block) {
            *place = Some(candidates);
        }
        candidates
    }

    fn look_up(&self, context: &EvaluationContext, scratch: &mut Scratch, block: usize) -> u64 {
        let Segments { view, budget, .. } = self;
        let Some(block) = u32::try_from(block).ok().and_then(|block| view.blocks().get(block)) else { return 0 };
        let indexes = view.attribute_indexes().range(block.attribute_indexes.start, block.attribute_indexes.length);
        let modulo_rules = view.modulo_rules().range(block.modulo_rules.start, block.modulo_rules.length);
        // The reader checks that blocks share no rows. Work beyond the check of an unset slot, or of the bit of a rule,
        // is charged separately.
        if !budget.spend(1 + indexes.len() / UNSET_SLOTS_A_STEP + modulo_rules.len() / RULES_A_STEP) {
            budget.note(Undecided::Others);
            return 0; // no segment of the block is decided
        }
        let mut candidates = block.all;
        for index in indexes.each_stored() {
            candidates &= of_value(self, context, scratch, index);
            if candidates == 0 {
                break;
            }
        }
        for rule in modulo_rules.iter() {
            if candidates & rule.segment_bit != 0 {
                let value = context.value(rule.slot as u16);
                if !budget.scan(context.length_of(value)) {
                    break;
                }
                if !rule.keeps(modulo(budget, context, rule.divisor, rule.remainder, value)) {
                    candidates &= !rule.segment_bit;
                }
            }
        }
        if !budget.spend(0) {
            budget.note(Undecided::Others);
            return 0; // no segment of the block is decided
        }
        candidates
    }

    /// Applies the percentage rules of consecutive blocks to their candidates, one word per block from `first` on, and
    /// leaves the remaining ones.
    pub(super) fn keep_by_percentage(
        &self,
        context: &EvaluationContext,
        scratch: &mut Scratch,
        first: usize,
        candidates: &mut [u64],
    ) {
        let Segments { view, budget, .. } = self;
        if view.percentage_rules().len() == 0 {
            return;
        }
        let kept = Cell::from_mut(candidates).as_slice_of_cells();
        let remove = |kept: &Cell<u64>, segment: u64| kept.set(kept.get() & !segment);
        let mut report = |(kept, stored): (&Cell<u64>, &[u8; PercentageRule::SIZE]), percentage: f64| {
            let rule = PercentageRule::decode(stored);
            if !rule.keeps(percentage) {
                remove(kept, rule.segment_bit);
            }
        };
        let mut percentages = Percentages::new(scratch.hashing.take());
        for (block, kept) in (first..).zip(kept) {
            let Some(block) = u32::try_from(block).ok().and_then(|block| view.blocks().get(block)) else { break };
            let rules = view.percentage_rules().range(block.percentage_rules.start, block.percentage_rules.length);
            if rules.len() == 0 {
                continue;
            }
            if !budget.spend(1 + rules.len() / RULES_A_STEP) {
                budget.note(Undecided::Others);
                kept.set(0); // no segment of the block is decided
                continue;
            }
            for stored in rules.each_stored() {
                let rule = PercentageRule::decode(stored);
                if rule.segment_bit & kept.get() == 0 {
                    continue;
                }
                let value = context.value(rule.slot as u16);
                if !budget.hash(rule.seed, context.length_of(value)) {
                    budget.note(Undecided::Others);
                    remove(kept, rule.segment_bit);
                    continue;
                }
                if value == Value::Null {
                    report((kept, stored), f64::INFINITY); // an unset slot has no percentage
                    continue;
                }
                let text = text_of(context, value, &mut scratch.printed);
                let (seed, ids) = (view.head(rule.seed), [text.as_bytes(), b"", b""]);
                percentages.request((kept, stored), seed, IdSource::Slot(rule.slot), ids, &mut report);
            }
        }
        scratch.hashing = Some(percentages.finish(&mut report));
    }
}

/// Number of attribute indexes with unset slots per charged step.
const UNSET_SLOTS_A_STEP: usize = 4;

/// Number of modulo or percentage rules of segments that are no candidates per charged step.
const RULES_A_STEP: usize = 8;

/// Number of `PatternPredicates` rows per charged step.
const PREDICATES_A_STEP: usize = 8;

/// Number of occupied rows of a hash table per charged step.
const PROBES_A_STEP: u32 = 16;

/// Returns the candidates of an attribute index for its slot's value. Most slots are unset in most requests.
#[inline(always)]
pub(super) fn of_value(
    segments: &Segments<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    stored: &[u8; AttributeIndex::SIZE],
) -> u64 {
    let slot = AttributeIndex::decode(stored).slot as u16; // the reader checks that the slot exists
    if context.is_unset(slot) {
        return AttributeIndex::decode(stored).unset;
    }
    match context.value(slot) {
        Value::Text(text) => of_text(segments, context, scratch, stored, slot, text),
        _ => of_other(segments, context, scratch, stored, slot),
    }
}

/// Returns the candidates for a value that is no text. The row is decoded late, so that only the needed fields are
/// read.
#[inline(never)]
fn of_other(
    segments: &Segments<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    stored: &[u8; AttributeIndex::SIZE],
    slot: u16,
) -> u64 {
    let index = || AttributeIndex::decode(stored);
    match context.value(slot) {
        Value::Null => index().unset,
        Value::False => index().no,
        Value::True => index().yes,
        _ if !segments.budget.scan(LOOK_UPS) => 0,
        value @ Value::Float(float) => {
            let (index, float) = (index(), float.get());
            let by_order = if float.is_nan() {
                index.unordered
            } else {
                scale(&segments.view, index.below_floats, index.floats, |point| {
                    f64::from_bits(point).partial_cmp(&float).unwrap_or(Ordering::Greater)
                })
            };
            by_order & by_patterns(segments, context, scratch, index.combined_dfa, value)
        }
        value @ Value::Integer(integer) => {
            let index = index();
            scale(&segments.view, index.below_integers, index.integers, |point| point.cast_signed().cmp(&integer))
                & by_patterns(segments, context, scratch, index.combined_dfa, value)
        }
        value @ Value::BigInteger(digits) => {
            let index = index();
            // A big integer is beyond every breakpoint.
            let standing = if context.bytes(digits).starts_with(b"-") { Ordering::Greater } else { Ordering::Less };
            scale(&segments.view, index.below_integers, index.integers, |_| standing)
                & by_patterns(segments, context, scratch, index.combined_dfa, value)
        }
        Value::Text(_) => 0, // handled by `of_text`
    }
}

/// Returns the candidates for a text.
#[inline(never)]
fn of_text(
    segments: &Segments<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    stored: &[u8; AttributeIndex::SIZE],
    slot: u16,
    text: StrRange,
) -> u64 {
    let (index, bytes) = (AttributeIndex::decode(stored), context.bytes(text));
    if !segments.budget.scan(LOOK_UPS + bytes.len()) {
        return 0;
    }
    let by_order = scale(&segments.view, index.below_texts, index.texts, |point| {
        segments.view.bytes(Span::from_word(point)).cmp(bytes)
    });
    let by_version = match index.versions.length {
        0 => index.below_versions,
        _ => of_version(segments, stored, bytes),
    };
    let value = Value::Text(text);
    by_order
        & by_version
        & by_exact_match(segments, context, scratch, index.unmatched, index.exact_matches, slot, value)
        & by_patterns(segments, context, scratch, index.combined_dfa, value)
}

/// Returns the candidates for a text by its order as a version.
#[inline(never)]
fn of_version(segments: &Segments<'_>, stored: &[u8; AttributeIndex::SIZE], text: &[u8]) -> u64 {
    if !segments.budget.scan(READINGS * text.len()) {
        return 0;
    }
    let index = AttributeIndex::decode(stored);
    match Version::parse(text) {
        Some(version) => {
            let version = semver::position(&version);
            scale(&segments.view, index.below_versions, index.versions, |point| unpack(point).cmp(&version))
        }
        None => index.unversioned,
    }
}

/// Returns the candidates for a value by binary search among breakpoints. `standing` compares a breakpoint to the
/// value.
#[inline(always)]
fn scale(view: &View<'_>, below: u64, breakpoints: Span, standing: impl Fn(u64) -> Ordering) -> u64 {
    if breakpoints.length == 0 {
        return below;
    }
    let breakpoints: Table<'_, Breakpoint, 24> = view.breakpoints().range(breakpoints.start, breakpoints.length);
    let not_above = breakpoints.partition_point(|breakpoint| standing(breakpoint.point) != Ordering::Greater);
    match not_above.checked_sub(1).and_then(|last| breakpoints.get(last)) {
        None => below,
        Some(breakpoint) if standing(breakpoint.point) == Ordering::Equal => breakpoint.at,
        Some(breakpoint) => breakpoint.above,
    }
}

/// Returns the candidates for a text by exact match: a hash table whose free rows hold the candidates of all other
/// texts.
#[inline(always)]
fn by_exact_match(
    segments: &Segments<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    unmatched: u64,
    members: Span,
    slot: u16,
    value: Value,
) -> u64 {
    let Some(last) = members.length.checked_sub(1) else { return unmatched };
    let wanted = member_key_of(&segments.view, context, scratch, slot, value, true);
    let members = segments.view.exact_matches().range(members.start, members.length);
    let start = bucket_of(wanted);
    for step in 0..=last {
        if step % PROBES_A_STEP == PROBES_A_STEP - 1 && !segments.budget.spend(1) {
            return 0;
        }
        let Some(member) = members.get(start.wrapping_add(step) & last) else { break };
        let found = numbers(&member.key);
        if found == wanted || found == numbers(&NO_MEMBER) {
            return member.at;
        }
    }
    unmatched // not reached: the reader has checked that a row is free
}

/// Returns the candidates for a value by the patterns found in it.
#[inline(always)]
fn by_patterns(
    segments: &Segments<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    row_plus_one: u32,
    value: Value,
) -> u64 {
    row_plus_one.checked_sub(1).map_or(u64::MAX, |row| search_patterns(segments, context, scratch, row, value))
}

#[inline(never)]
fn search_patterns(
    segments: &Segments<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    row: u32,
    value: Value,
) -> u64 {
    let Segments { view, budget, .. } = segments;
    let Some(dfa) = view.combined_dfas().get(row) else { return 0 };
    let is_text = matches!(value, Value::Text(_));
    if !budget
        .scan(context.length_of(value) + dfa.pattern_predicates.length as usize / PREDICATES_A_STEP * BYTES_A_STEP)
    {
        return 0;
    }
    let program = dfa.program.of(view.programs());
    let accept_sets = view.accept_sets().range(dfa.accept_sets.start, dfa.accept_sets.length);
    let find = |state: u32| accept_sets.get(state).unwrap_or_default();
    let text = text_of(context, value, &mut scratch.printed);
    let mut found = 0;
    let last = automaton::walk(program, text.as_bytes(), |state| found |= find(state).here);
    found |= last.map_or(0, |last| find(last).at_end);
    if !is_text {
        found &= dfa.automata;
    }
    let pattern_predicates =
        view.pattern_predicates().range(dfa.pattern_predicates.start, dfa.pattern_predicates.length);
    pattern_predicates.iter().fold(u64::MAX, |left, predicate| {
        let holds = predicate.found & found != 0 || is_text && predicate.lacking & !found != 0;
        if holds == (predicate.negated == 0) { left } else { left & !predicate.segment_bit }
    })
}
