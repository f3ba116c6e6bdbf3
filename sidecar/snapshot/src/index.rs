//! Which segments are left, by what is known of the values of single slots: one look-up a slot, whatever the number of
//! conditions.

use std::cmp::Ordering;

use crate::condition::{hash_of, prefix};
use crate::evaluation::Evaluation;
use crate::layout::{BLOCK, Column, Mark, Span, Table};
use crate::semver::{standing, unpack};
use crate::subject::{Stretch, Subject, Value};
use crate::view::View;

impl Evaluation<'_> {
    /// The segments of a block to which the subject may belong, a bit each. Those whose program accepts at once it
    /// belongs to.
    pub(crate) fn candidates(&self, subject: &mut Subject, block: usize) -> u64 {
        if let Some(kept) = subject.candidates.get(block).copied().flatten() {
            return kept;
        }
        let left = self.look_up(subject, block);
        if subject.candidates.len() <= block {
            subject.candidates.resize(self.view.blocks.len(), None);
        }
        if let Some(place) = subject.candidates.get_mut(block) {
            *place = Some(left);
        }
        left
    }

    fn look_up(&self, subject: &mut Subject, block: usize) -> u64 {
        let view = &self.view;
        let Some(block) = u32::try_from(block).ok().and_then(|block| view.blocks.get(block)) else { return 0 };
        let columns = view.columns.range(block.columns.start, block.columns.length);
        columns.iter().fold(block.all, |left, column| if left == 0 { 0 } else { left & of_value(view, subject, &column) })
    }
}

/// The block of a segment, and its bit there.
pub(crate) fn place_of(segment: u32) -> (usize, u64) {
    (segment as usize / BLOCK, 1 << (segment as usize % BLOCK))
}

#[inline(always)]
fn of_value(view: &View<'_>, subject: &mut Subject, column: &Column) -> u64 {
    let slot = column.slot as u16; // the reader checks that the slot exists
    let value = subject.value(slot);
    match value {
        Value::Null => column.unset,
        Value::Bool(false) => column.no,
        Value::Bool(true) => column.yes,
        Value::Float(float) if float.is_nan() => column.unordered,
        Value::Float(float) => scale(view, column.below_floats, column.floats, |point| {
            f64::from_bits(point).partial_cmp(&float).unwrap_or(Ordering::Greater)
        }),
        Value::Integer(integer) => {
            scale(view, column.below_integers, column.integers, |point| point.cast_signed().cmp(&integer))
                & listed(view, subject, column, value)
        }
        Value::BigInteger(digits) => {
            // Beyond everything that is compared with.
            let standing = if subject.bytes(digits).starts_with(b"-") { Ordering::Greater } else { Ordering::Less };
            scale(view, column.below_integers, column.integers, |_| standing) & listed(view, subject, column, value)
        }
        Value::Text(text) => {
            let bytes = subject.bytes(text);
            let left = scale(view, column.below_texts, column.texts, |point| {
                view.bytes(Span::from_word(point)).cmp(bytes)
            });
            left & version(view, subject, column, text) & listed(view, subject, column, value)
        }
    }
}

/// What is left with a value, by how the points stand to it.
#[inline(always)]
fn scale(view: &View<'_>, below: u64, marks: Span, standing: impl Fn(u64) -> Ordering) -> u64 {
    let marks: Table<'_, Mark, 24> = view.marks.range(marks.start, marks.length);
    let not_above = marks.partition_point(|mark| standing(mark.point) != Ordering::Greater);
    match not_above.checked_sub(1).and_then(|last| marks.get(last)) {
        None => below,
        Some(mark) if standing(mark.point) == Ordering::Equal => mark.at,
        Some(mark) => mark.above,
    }
}

fn version(view: &View<'_>, subject: &Subject, column: &Column, text: Stretch) -> u64 {
    if column.versions.length == 0 {
        return column.below_versions;
    }
    match standing(subject.bytes(text)) {
        Some(version) => {
            scale(view, column.below_versions, column.versions, |point| unpack(point).cmp(&version))
        }
        None => column.unversioned,
    }
}

fn listed(view: &View<'_>, subject: &mut Subject, column: &Column, value: Value) -> u64 {
    let members = view.listed.range(column.listed.start, column.listed.length);
    if members.len() == 0 {
        return column.unlisted;
    }
    let wanted = hash_of(view, subject, column.slot as u16, value, true);
    let place = members.partition_point(|member| prefix(&member.hash) < prefix(&wanted));
    let rest = members.range(place, column.listed.length.saturating_sub(place));
    let mut equal = rest.iter().take_while(|member| prefix(&member.hash) == prefix(&wanted));
    equal.find(|member| member.hash == wanted).map_or(column.unlisted, |member| member.at)
}
