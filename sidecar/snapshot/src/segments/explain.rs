//! Explanations of segments: each requirement of a segment on one attribute, the value of the attribute, and the
//! result.
//!
//! A snapshot stores requirements compiled. `accepted` reads the requirements of the segment index back from the
//! candidates of their values; the other conditions are instructions of the segment's program. The results come from
//! the functions that an evaluation calls. No evaluation calls this module.

mod accepted;
mod instruction;

use accepted::Accepted;

use super::{Flags, Scratch, Segments, condition, index};
use crate::context::{EvaluationContext, Value};
use crate::format::layout::{ACCEPT, AttributeIndex, BLOCK, SegmentBlock};
use crate::values::{hash::MemberKey, json, percentage::Hash, rows::Row as _};

/// A requirement or a condition of a segment, and its result for a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// Name of the attribute: a trait, or a path such as `$.identity.identifier`.
    pub attribute: String,
    /// Value of the attribute as JSON. `None` if it is not set.
    pub value: Option<String>,
    /// The comparison in words, such as `must be at least 18`.
    pub comparison: String,
    /// True if the comparison holds.
    pub holds: bool,
    /// The hash behind a percentage.
    pub hash: Option<Hash>,
}

/// The requirements of a segment, compared with a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// True if the segment has no rules, so that no identity matches it.
    pub is_empty: bool,
    /// True if the segment needs an identity and the request has none.
    pub is_out_of_scope: bool,
    /// Requirements that must all hold.
    pub requirements: Vec<Check>,
    /// Conditions of the other rules, in the order in which they were evaluated. The rules combine their results.
    pub conditions: Vec<Check>,
    /// Number of conditions whose result was not needed.
    pub skipped: usize,
    /// Result of the other rules. `None` if there are none.
    pub accepted: Option<bool>,
    /// True if the result depends on a flag that reads itself. Such a segment does not match.
    pub is_cyclic: bool,
}

impl Trace {
    /// Returns true if the segment matches by these results.
    #[must_use]
    pub fn is_match(&self) -> bool {
        let holds = self.requirements.iter().all(|check| check.holds) && self.accepted != Some(false);
        holds && !self.is_empty && !self.is_out_of_scope && !self.is_cyclic
    }
}

impl Segments<'_> {
    /// Compares a segment's requirements with the context. `None` if there is no such segment.
    pub(crate) fn explain(
        &self,
        context: &mut EvaluationContext,
        scratch: &mut Scratch,
        flags: &mut impl Flags,
        number: u32,
    ) -> Option<Trace> {
        let segment = self.view.segments().get(number)?;
        let block = self.view.blocks().get(number / BLOCK as u32)?;
        let bit = 1 << (number as usize % BLOCK);
        let mut trace =
            Trace { is_empty: block.all & bit == 0, is_out_of_scope: !self.applies(&segment), ..Trace::default() };
        if trace.is_empty {
            return Some(trace);
        }
        self.by_value(context, scratch, &block, bit, &mut trace.requirements);
        self.by_modulo(context, &block, bit, &mut trace.requirements);
        self.by_percentage(context, scratch, &block, bit, &mut trace.requirements);
        let cuts = flags.cuts();
        self.by_program(context, scratch, flags, segment.entry, &mut trace);
        trace.is_cyclic = flags.cuts() != cuts;
        Some(trace)
    }

    /// Adds the requirements of the attribute indexes.
    fn by_value(
        &self,
        context: &EvaluationContext,
        scratch: &mut Scratch,
        block: &SegmentBlock,
        bit: u64,
        checks: &mut Vec<Check>,
    ) {
        let indexes =
            self.view.attribute_indexes().range(block.attribute_indexes.start, block.attribute_indexes.length);
        for stored in indexes.each_stored() {
            let row = AttributeIndex::decode(stored);
            let accepted = Accepted { view: &self.view, index: &row, bit };
            if accepted.is_everything() {
                continue;
            }
            let value = context.value(row.slot as u16);
            let holds = index::of_value(self, context, scratch, stored) & bit != 0;
            let shown = shown(context, value);
            let key = self.member_key(context, scratch, value);
            let comparison = accepted.describe(value, key.zip(shown.as_deref()));
            checks.push(Check { attribute: self.attribute(row.slot), value: shown, comparison, holds, hash: None });
        }
    }

    fn by_modulo(&self, context: &EvaluationContext, block: &SegmentBlock, bit: u64, checks: &mut Vec<Check>) {
        let rules = self.view.modulo_rules().range(block.modulo_rules.start, block.modulo_rules.length);
        for rule in rules.iter().filter(|rule| rule.segment_bit & bit != 0) {
            let value = context.value(rule.slot as u16);
            let is_remainder = condition::modulo(self.budget, context, rule.divisor, rule.remainder, value);
            let not = if rule.negated == 0 { "" } else { "not " };
            checks.push(Check {
                attribute: self.attribute(rule.slot),
                value: shown(context, value),
                comparison: format!("must {not}have the remainder {} for the divisor {}", rule.remainder, rule.divisor),
                holds: rule.keeps(is_remainder),
                hash: None,
            });
        }
    }

    fn by_percentage(
        &self,
        context: &EvaluationContext,
        scratch: &mut Scratch,
        block: &SegmentBlock,
        bit: u64,
        checks: &mut Vec<Check>,
    ) {
        let rules = self.view.percentage_rules().range(block.percentage_rules.start, block.percentage_rules.length);
        for rule in rules.iter().filter(|rule| rule.segment_bit & bit != 0) {
            let value = context.value(rule.slot as u16);
            let hash = (value != Value::Null).then(|| {
                let text = condition::text_of(context, value, &mut scratch.printed);
                Hash::of(&[self.view.bytes(rule.seed), b",", text.as_bytes()])
            });
            let bound = if rule.negated == 0 { "at most" } else { "above" };
            checks.push(Check {
                attribute: self.attribute(rule.slot),
                value: shown(context, value),
                comparison: format!("must have a percentage of {bound} {}", rule.threshold),
                holds: rule.keeps(hash.as_ref().map_or(f64::INFINITY, |hash| hash.percentage)),
                hash,
            });
        }
    }

    /// Runs the segment's residual program, and notes each instruction.
    fn by_program(
        &self,
        context: &mut EvaluationContext,
        scratch: &mut Scratch,
        flags: &mut impl Flags,
        entry: u32,
        trace: &mut Trace,
    ) {
        if entry == ACCEPT {
            return;
        }
        let conditions = &mut trace.conditions;
        let accepted = self.run(context, scratch, flags, entry, |context, scratch, instruction, value, holds| {
            let key = self.member_key(context, scratch, value);
            let shown = shown(context, value);
            conditions.push(Check {
                attribute: self.attribute(u32::from(instruction.slot)),
                comparison: instruction::describe(&self.view, instruction, key.zip(shown.as_deref())),
                value: shown,
                holds,
                hash: instruction::seed(&self.view, instruction).filter(|_| value != Value::Null).map(|seed| {
                    let text = condition::text_of(context, value, &mut scratch.printed);
                    Hash::of(&[seed, b",", text.as_bytes()])
                }),
            });
        });
        trace.accepted = Some(accepted);
        trace.skipped = instruction::count(&self.view, entry).saturating_sub(trace.conditions.len());
    }

    fn attribute(&self, slot: u32) -> String {
        self.view.slots().get(slot).map_or_else(String::new, |slot| self.view.text(slot.name).to_owned())
    }

    /// Returns the key of the value in sets. A set stores long texts as keys only.
    fn member_key(&self, context: &EvaluationContext, scratch: &mut Scratch, value: Value) -> Option<MemberKey> {
        let text = condition::text_of(context, value, &mut scratch.printed);
        (value != Value::Null).then(|| self.view.fingerprint.member_key(text.as_bytes()))
    }
}

/// Returns a value as JSON.
fn shown(context: &EvaluationContext, value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::True => Some("true".to_owned()),
        Value::False => Some("false".to_owned()),
        Value::Text(text) => Some(quoted(context.text(text))),
        Value::Integer(_) | Value::BigInteger(_) | Value::Float(_) => {
            Some(condition::text_of(context, value, &mut String::new()).to_owned())
        }
    }
}

fn quoted(text: &str) -> String {
    let mut json = String::new();
    json::write_string(text, &mut json);
    json
}

/// Maximum number of values that a comparison lists.
const LISTED: usize = 8;

/// Joins the first of `count` values, and counts the others. Values that are not listed are not described: a set may have
/// 100,000.
fn listed(values: impl Iterator<Item = String>, count: usize, last: &str) -> String {
    let mut first: Vec<String> = values.take(LISTED).collect();
    let end = match count.saturating_sub(first.len()) {
        0 => first.pop().unwrap_or_default(),
        more => format!("{more} more"),
    };
    if first.is_empty() { end } else { format!("{} {last} {end}", first.join(", ")) }
}

/// Returns a member of a set as JSON. Long members are stored as hashes, so that only the request's own value is known.
fn member(key: &MemberKey, own: Option<(MemberKey, &str)>) -> String {
    let [length, bytes @ ..] = key;
    match bytes.get(..usize::from(*length)).map(std::str::from_utf8) {
        Some(Ok(text)) => quoted(text),
        _ => match own {
            Some((of_value, shown)) if of_value == *key => shown.to_owned(),
            _ => "a text of more than 11 bytes, stored as a hash".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_values_are_described() {
        let mut described = 0;
        let values = (0..50_000).map(|number| {
            described += 1;
            number.to_string()
        });
        assert_eq!(listed(values, 50_000, "or"), "0, 1, 2, 3, 4, 5, 6, 7 or 49992 more");
        assert_eq!(described, LISTED);
    }

    #[test]
    fn last_value_follows_the_conjunction() {
        let of = |count: usize| listed((0..count).map(|number| number.to_string()), count, "or");
        assert_eq!([0, 1, 2, 3].map(of), ["", "0", "0 or 1", "0, 1 or 2"]);
        assert_eq!((of(8), of(9)), ("0, 1, 2, 3, 4, 5, 6 or 7".into(), "0, 1, 2, 3, 4, 5, 6, 7 or 1 more".into()));
    }
}
