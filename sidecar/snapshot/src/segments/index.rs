//! The segment index: computes the candidates of a block with one look-up per slot, independent of the number of
//! conditions.

use std::cmp::Ordering;

use super::condition::{READINGS, modulo, text_of, token_of};
use super::{Scratch, Segments};
use crate::budget::{BYTES_A_STEP, Undecided};
use crate::context::{EvaluationContext, StrRange, Value};
use crate::format::{
    layout::{Column, Mark, Share},
    view::View,
};
use crate::regex::automaton;
use crate::values::{
    hash::{NO_TOKEN, bucket_of, numbers},
    percentage::{Percentages, Whose},
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
        let columns = view.columns().range(block.columns.start, block.columns.length);
        let mut candidates = block.all;
        // Work beyond the check of an unset slot is charged separately.
        budget.spend(1 + columns.len() / UNSET_COLUMNS_A_STEP);
        for column in columns.each_stored() {
            candidates &= of_value(self, context, scratch, column);
            if candidates == 0 {
                break;
            }
        }
        for modulus in view.moduli().range(block.moduli.start, block.moduli.length).iter() {
            if candidates & modulus.segment != 0 {
                let value = context.value(modulus.slot as u16);
                if !budget.scan(context.length_of(value)) {
                    break;
                }
                if modulo(budget, context, modulus.divisor, modulus.remainder, value) == (modulus.negated != 0) {
                    candidates &= !modulus.segment;
                }
            }
        }
        if !budget.spend(0) {
            budget.note(Undecided::Others);
            return 0; // no segment of the block is decided
        }
        candidates
    }

    /// Applies the percentage rules of a block to its candidates, and returns the remaining ones.
    pub(super) fn keep_by_percentage(
        &self,
        context: &EvaluationContext,
        scratch: &mut Scratch,
        block: usize,
        candidates: u64,
    ) -> u64 {
        let Segments { view, budget, .. } = self;
        let Some(block) = u32::try_from(block).ok().and_then(|block| view.blocks().get(block)) else { return 0 };
        let shares = view.shares().range(block.shares.start, block.shares.length);
        if shares.len() == 0 {
            return candidates;
        }
        budget.spend(1 + shares.len() / SHARES_A_STEP);
        let (mut kept, mut undecided) = (candidates, 0);
        let mut tell = |stored: &[u8; Share::SIZE], percentage: f64| {
            let Share { threshold, segment, negated, .. } = Share::decode(stored);
            if (percentage <= threshold) == (negated != 0) {
                kept &= !segment;
            }
        };
        let mut percentages = Percentages::within(scratch.hashing.take());
        for stored in shares.each_stored() {
            let share = Share::decode(stored);
            if share.segment & candidates == 0 {
                continue;
            }
            let value = context.value(share.slot as u16);
            if !budget.hash(share.seed, context.length_of(value)) {
                undecided |= share.segment & candidates;
                continue;
            }
            if value == Value::Null {
                tell(stored, f64::INFINITY); // an unset slot has no percentage
                continue;
            }
            let text = text_of(context, value, &mut scratch.printed);
            let ids = [text.as_bytes(), b"", b""];
            percentages.ask(stored, view.head(share.seed), Whose::Slot(share.slot), ids, &mut tell);
        }
        scratch.hashing = Some(percentages.tell(&mut tell));
        if undecided != 0 {
            budget.note(Undecided::Others);
        }
        kept & !undecided
    }
}

/// Number of columns with unset slots per charged step.
const UNSET_COLUMNS_A_STEP: usize = 4;

/// Number of percentage rules of segments that are no candidates per charged step.
const SHARES_A_STEP: usize = 8;

/// Number of `Wants` rows per charged step.
const WANTS_A_STEP: usize = 8;

/// Number of occupied rows of a hash table per charged step.
const PROBES_A_STEP: u32 = 16;

/// Charge for the look-ups of one value, among the breakpoints of its type and in a hash table, in bytes that take as
/// long to scan.
const LOOK_UPS: usize = 32;

/// Returns the candidates of a column for its slot's value. Most slots are unset in most requests.
#[inline(always)]
fn of_value(
    segments: &Segments<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    stored: &[u8; Column::SIZE],
) -> u64 {
    let slot = Column::decode(stored).slot as u16; // the reader checks that the slot exists
    if context.is_unset(slot) {
        return Column::decode(stored).unset;
    }
    match context.value(slot) {
        Value::Text(text) => of_text(segments, context, scratch, stored, slot, text),
        _ => of_other(segments, context, scratch, stored, slot),
    }
}

/// Returns the candidates for a value that is no text. The column is decoded late, so that only the needed fields are
/// read.
#[inline(never)]
fn of_other(
    segments: &Segments<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    stored: &[u8; Column::SIZE],
    slot: u16,
) -> u64 {
    let column = || Column::decode(stored);
    match context.value(slot) {
        Value::Null => column().unset,
        Value::False => column().no,
        Value::True => column().yes,
        _ if !segments.budget.scan(LOOK_UPS) => 0,
        value @ Value::Float(float) => {
            let (column, float) = (column(), float.get());
            let by_order = if float.is_nan() {
                column.unordered
            } else {
                scale(&segments.view, column.below_floats, column.floats, |point| {
                    f64::from_bits(point).partial_cmp(&float).unwrap_or(Ordering::Greater)
                })
            };
            by_order & joint(segments, context, scratch, column.joint, value)
        }
        value @ Value::Integer(integer) => {
            let column = column();
            scale(&segments.view, column.below_integers, column.integers, |point| point.cast_signed().cmp(&integer))
                & joint(segments, context, scratch, column.joint, value)
        }
        value @ Value::BigInteger(digits) => {
            let column = column();
            // A big integer is beyond every breakpoint.
            let standing = if context.bytes(digits).starts_with(b"-") { Ordering::Greater } else { Ordering::Less };
            scale(&segments.view, column.below_integers, column.integers, |_| standing)
                & joint(segments, context, scratch, column.joint, value)
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
    stored: &[u8; Column::SIZE],
    slot: u16,
    text: StrRange,
) -> u64 {
    let (column, bytes) = (Column::decode(stored), context.bytes(text));
    if !segments.budget.scan(LOOK_UPS + bytes.len()) {
        return 0;
    }
    let by_order = scale(&segments.view, column.below_texts, column.texts, |point| {
        segments.view.bytes(Span::from_word(point)).cmp(bytes)
    });
    let by_version = match column.versions.length {
        0 => column.below_versions,
        _ => of_version(segments, stored, bytes),
    };
    let value = Value::Text(text);
    by_order
        & by_version
        & listed(segments, context, scratch, column.unlisted, column.listed, slot, value)
        & joint(segments, context, scratch, column.joint, value)
}

/// Returns the candidates for a text by its order as a version.
#[inline(never)]
fn of_version(segments: &Segments<'_>, stored: &[u8; Column::SIZE], text: &[u8]) -> u64 {
    if !segments.budget.scan(READINGS * text.len()) {
        return 0;
    }
    let column = Column::decode(stored);
    match Version::parse(text) {
        Some(version) => {
            let version = semver::position(&version);
            scale(&segments.view, column.below_versions, column.versions, |point| unpack(point).cmp(&version))
        }
        None => column.unversioned,
    }
}

/// Returns the candidates for a value by binary search among breakpoints. `standing` compares a breakpoint to the
/// value.
#[inline(always)]
fn scale(view: &View<'_>, below: u64, marks: Span, standing: impl Fn(u64) -> Ordering) -> u64 {
    if marks.length == 0 {
        return below;
    }
    let marks: Table<'_, Mark, 24> = view.marks().range(marks.start, marks.length);
    let not_above = marks.partition_point(|mark| standing(mark.point) != Ordering::Greater);
    match not_above.checked_sub(1).and_then(|last| marks.get(last)) {
        None => below,
        Some(mark) if standing(mark.point) == Ordering::Equal => mark.at,
        Some(mark) => mark.above,
    }
}

/// Returns the candidates for a text by exact match: a hash table whose free rows hold the candidates of all other
/// texts.
#[inline(always)]
fn listed(
    segments: &Segments<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    unlisted: u64,
    members: Span,
    slot: u16,
    value: Value,
) -> u64 {
    let Some(last) = members.length.checked_sub(1) else { return unlisted };
    let wanted = token_of(&segments.view, context, scratch, slot, value, true);
    let members = segments.view.listed().range(members.start, members.length);
    let start = bucket_of(wanted);
    for step in 0..=last {
        if step % PROBES_A_STEP == PROBES_A_STEP - 1 && !segments.budget.spend(1) {
            return 0;
        }
        let Some(member) = members.get(start.wrapping_add(step) & last) else { break };
        let found = numbers(&member.token);
        if found == wanted || found == numbers(&NO_TOKEN) {
            return member.at;
        }
    }
    unlisted // not reached: the reader has checked that a row is free
}

/// Returns the candidates for a value by the patterns found in it.
#[inline(always)]
fn joint(segments: &Segments<'_>, context: &EvaluationContext, scratch: &mut Scratch, joint: u32, value: Value) -> u64 {
    joint.checked_sub(1).map_or(u64::MAX, |row| wanted(segments, context, scratch, row, value))
}

#[inline(never)]
fn wanted(segments: &Segments<'_>, context: &EvaluationContext, scratch: &mut Scratch, row: u32, value: Value) -> u64 {
    let Segments { view, budget, .. } = segments;
    let Some(joint) = view.joints().get(row) else { return 0 };
    let is_text = matches!(value, Value::Text(_));
    if !budget.scan(context.length_of(value) + joint.wants.length as usize / WANTS_A_STEP * BYTES_A_STEP) {
        return 0;
    }
    let program = joint.program.of(view.programs());
    let finds = view.finds().range(joint.finds.start, joint.finds.length);
    let find = |state: u32| finds.get(state).unwrap_or_default();
    let text = text_of(context, value, &mut scratch.printed);
    let mut found = 0;
    let last = automaton::walk(program, text.as_bytes(), |state| found |= find(state).here);
    found |= last.map_or(0, |last| find(last).at_end);
    if !is_text {
        found &= joint.automata;
    }
    let wants = view.wants().range(joint.wants.start, joint.wants.length);
    wants.iter().fold(u64::MAX, |left, want| {
        let holds = want.found & found != 0 || is_text && want.lacking & !found != 0;
        if holds == (want.negated == 0) { left } else { left & !want.segment }
    })
}
