//! One condition: the operators for every type of the left side.
//!
//! The rules are the rules of Flagsmith's Python engine: the condition's value is cast to the type of the left side,
//! and a failed cast makes the condition false, whatever the operator. A condition for which Python raises an exception
//! is false, too.

use std::cmp::Ordering;

use super::{Scratch, Segments};
use crate::budget::StepBudget;
use crate::context::{EvaluationContext, Value};
use crate::format::{
    layout::{
        AUTOMATON, HAS_BIG_INTEGER, HAS_FLOAT, HAS_INTEGER, IS_SEMVER, IS_TRUE, Instruction, Member, Operator,
        READS_FLAG,
    },
    view::View,
};
use crate::regex::{
    automaton,
    backtrack::{self, SearchMemory},
};
use crate::values::{
    hash::{MemberKey, numbers, short_member_key},
    number::{Integer, write_float},
    percentage::percentage,
    python_bool,
    rows::{Row as _, Span, Table},
    semver::{self, Version},
};

/// A condition as stored. It is passed in this form and decoded where it is needed, so that the few fields that a
/// comparison reads stay in registers.
pub(crate) type Stored = [u8; 40];

/// Texts up to this length, in bytes, are compared within the step that is charged for each condition.
const SHORT: usize = 128;

/// Number of passes over a text that comparing versions or numbers is charged for.
pub(crate) const READINGS: usize = 4;

/// Returns true if the condition holds for the value. Comparisons are decided inline; operators that take longer are a
/// call.
///
/// The result counts only if the budget has steps left and was not interrupted, which [`Segments::accepts`] checks.
#[inline(always)]
pub(super) fn holds(
    segments: &Segments<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    stored: &Stored,
    value: Value,
) -> bool {
    let condition = Instruction::decode(stored);
    if value == Value::Null {
        return condition.operator == Operator::IsNotSet as u8;
    }
    if condition.operator >= Operator::IsSet as u8 {
        return condition.operator == Operator::IsSet as u8;
    }
    let accepted = accepted(condition.operator);
    if accepted == 0 {
        return search(segments, context, scratch, stored, value);
    }
    let has = |bit| condition.flags & bit != 0;
    let relation = match value {
        Value::Integer(integer) if has(HAS_INTEGER) => relation_of(integer.cmp(&condition.left.cast_signed())),
        Value::Float(float) if has(HAS_FLOAT) => {
            float.get().partial_cmp(&f64::from_bits(condition.right)).map_or(UNORDERED, relation_of)
        }
        Value::False | Value::True => relation_of((value == Value::True).cmp(&has(IS_TRUE))),
        Value::Text(text) if !has(IS_SEMVER) => {
            let (left, right) = (context.bytes(text), segments.view.bytes(condition.text));
            let compared = left.len().min(right.len());
            if compared > SHORT && !segments.budget.copy(compared) {
                return false;
            }
            if left == right {
                EQUAL
            } else if condition.operator <= Operator::NotEqual as u8 {
                GREATER // or LESS: only equality matters here
            } else {
                relation_of(left.cmp(right)) // UTF-8 sorts by bytes as Python sorts by code points
            }
        }
        _ => relation(segments, context, stored, value),
    };
    relation & accepted != 0
}

/// Returns true if this relation of the left side to the value fulfils the comparison.
pub(crate) fn accepts(operator: u8, relation: u8) -> bool {
    relation & accepted(operator) != 0
}

#[inline(always)]
fn accepted(operator: u8) -> u8 {
    ACCEPTED.get(usize::from(operator)).copied().unwrap_or_default()
}

/// The relations of the left side to the value that fulfil each of the comparisons, which are the first six operators.
const ACCEPTED: [u8; 6] = [EQUAL, LESS | GREATER | UNORDERED, GREATER, GREATER | EQUAL, LESS, LESS | EQUAL];

/// Relation of the left side to the condition's value. Zero: the value cannot be cast to the left side's type.
const LESS: u8 = 1;
const EQUAL: u8 = 2;
const GREATER: u8 = 4;
/// At least one of both is NaN.
pub(crate) const UNORDERED: u8 = 8;

#[inline(always)]
pub(crate) fn relation_of(order: Ordering) -> u8 {
    match order {
        Ordering::Less => LESS,
        Ordering::Equal => EQUAL,
        Ordering::Greater => GREATER,
    }
}

/// Decides the rare comparisons: versions, and integers of more than 64 bits.
#[inline(never)]
fn relation(segments: &Segments<'_>, context: &EvaluationContext, stored: &Stored, value: Value) -> u8 {
    let Segments { view, budget, .. } = segments;
    let condition = Instruction::decode(stored);
    if !budget.scan(READINGS * (context.length_of(value) + condition.text.length as usize)) {
        return 0;
    }
    let right = match value {
        Value::Text(text) => {
            return semver::compare(context.bytes(text), view.bytes(condition.text)).map_or(0, relation_of);
        }
        _ if condition.flags & HAS_INTEGER != 0 => Integer::Small(condition.left.cast_signed()),
        _ if condition.flags & HAS_BIG_INTEGER != 0 => {
            let row = view.big_integers().get(condition.operand).unwrap_or_default();
            if !budget.scan(READINGS * row.digits.length as usize) {
                return 0;
            }
            Integer::Big { negative: row.negative != 0, digits: view.text(row.digits) }
        }
        _ => return 0,
    };
    integer(context, value).map_or(0, |left| relation_of(left.cmp(&right)))
}

/// Evaluates the operators that do not compare. Most of them search or hash a text.
#[inline(never)]
fn search(
    segments: &Segments<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    stored: &Stored,
    value: Value,
) -> bool {
    let Segments { view, budget, .. } = segments;
    let condition = Instruction::decode(stored);
    let readings = if condition.flags & IS_SEMVER == 0 { 1 } else { READINGS };
    let length = context.length_of(value) + condition.text.length as usize;
    if !budget.scan(readings * length) {
        return false;
    }
    match Operator::from_number(condition.operator) {
        Some(Operator::In) => is_in(view, context, scratch, &condition, value),
        Some(Operator::Contains) => contains(view, context, &condition, value),
        Some(Operator::NotContains) => match value {
            Value::Text(text) => !context.text(text).contains(view.text(condition.text)),
            _ => false,
        },
        Some(Operator::Regex) => {
            let Scratch { printed, search, .. } = scratch;
            let text = text_of(context, value, printed);
            matches(view, condition.operand, text, budget, search).unwrap_or_else(|| {
                budget.interrupt();
                false
            })
        }
        Some(Operator::Modulo) => {
            modulo(budget, context, f64::from_bits(condition.left), f64::from_bits(condition.right), value)
        }
        Some(Operator::PercentageSplit) => {
            let seed = Span::from_word(condition.right);
            if !budget.hash(seed, length) {
                return false;
            }
            let text = text_of(context, value, &mut scratch.printed);
            percentage(&[view.bytes(seed), b",", text.as_bytes()]) <= f64::from_bits(condition.left)
        }
        _ => false,
    }
}

fn integer(context: &EvaluationContext, value: Value) -> Option<Integer<'_>> {
    match value {
        Value::Integer(small) => Some(Integer::Small(small)),
        Value::BigInteger(digits) => Integer::parse(context.text(digits)),
        _ => None,
    }
}

/// Evaluates `CONTAINS`, which only strings can fulfil. If the value ends in `:semver`, the left side is first read as
/// a version. A version contains a text that equals its prerelease or its build metadata, because Python iterates over
/// the version's parts.
fn contains(view: &View<'_>, context: &EvaluationContext, condition: &Instruction, value: Value) -> bool {
    let Value::Text(text) = value else { return false };
    if condition.flags & IS_SEMVER == 0 {
        return context.text(text).contains(view.text(condition.text));
    }
    let part = view.bytes(condition.text);
    Version::parse(context.bytes(text))
        .is_some_and(|version| version.prerelease == Some(part) || version.build == Some(part))
}

/// Returns true if a prefix of the text matches the pattern. `None` if the search is undecided.
fn matches(view: &View<'_>, operand: u32, text: &str, budget: &StepBudget, memory: &mut SearchMemory) -> Option<bool> {
    let Some(pattern) = view.patterns().get(operand) else { return Some(false) };
    let program = pattern.program.of(view.programs());
    if pattern.kind == AUTOMATON {
        Some(automaton::matches(program, text.as_bytes()))
    } else {
        backtrack::matches(program, text, budget, memory)
    }
}

/// Computes the floored modulo like Python: the result has the sign of the divisor.
pub(super) fn modulo(
    budget: &StepBudget,
    context: &EvaluationContext,
    divisor: f64,
    remainder: f64,
    value: Value,
) -> bool {
    let (left, whole_left) = match value {
        Value::Null => return false,
        Value::False => (0.0, Some(0)),
        Value::True => (1.0, Some(1)),
        Value::Float(float) => (float.get(), whole(float.get())),
        Value::Integer(integer) => (integer as f64, Some(integer)),
        Value::BigInteger(_) | Value::Text(_) => match integer(context, value).and_then(Integer::to_f64) {
            Some(float) => (float, None),
            None => return false,
        },
    };
    // The remainder of floats is a loop. Most values are whole numbers, whose remainder is one instruction and equal.
    if let (Some(left), Some(divisor)) = (whole_left, whole(divisor))
        && let Some(rest) = floored_remainder(left, divisor)
    {
        return rest as f64 == remainder;
    }
    // The remainder of floats takes one step per bit of their quotient.
    let exponent = |float: f64| float.to_bits() >> 52 & 0x7ff;
    if !budget.scan(exponent(left).saturating_sub(exponent(divisor)) as usize) {
        return false;
    }
    let mut rest = left % divisor;
    if rest != 0.0 && (rest < 0.0) != (divisor < 0.0) {
        rest += divisor;
    }
    divisor != 0.0 && rest == remainder
}

/// Every whole number up to here is exact as a float.
const EXACT: u64 = 1 << 53;

fn whole(float: f64) -> Option<i64> {
    let whole = float as i64;
    (whole as f64 == float && whole.unsigned_abs() <= EXACT).then_some(whole)
}

/// Returns the floored remainder. `None` if there is none, or if it may differ from the remainder of the floats.
fn floored_remainder(left: i64, divisor: i64) -> Option<i64> {
    let rest = if left.unsigned_abs() <= EXACT { left.checked_rem(divisor)? } else { return None };
    Some(if rest != 0 && (rest < 0) != (divisor < 0) { rest + divisor } else { rest })
}

fn is_in(
    view: &View<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    condition: &Instruction,
    value: Value,
) -> bool {
    if !matches!(value, Value::Text(_) | Value::Integer(_) | Value::BigInteger(_)) {
        return false;
    }
    let wanted = member_key_of(view, context, scratch, condition.slot, value, condition.flags & READS_FLAG == 0);
    let Span { start, length } = Span::from_word(condition.left);
    has_member(view.members().range(start, length), wanted)
}

/// Returns true if a sorted set has the member key. The first number decides most look-ups, and is compared without a
/// branch.
#[inline(always)]
fn has_member(members: Table<'_, Member, 12>, wanted: (u64, u32)) -> bool {
    let numbers_of = |member: Member| numbers(&member.key);
    let at = |row: u32| members.get(row).map(numbers_of);
    match at(members.partition_point(|member| numbers_of(member).0 < wanted.0)) {
        Some((upper, lower)) if upper == wanted.0 && lower < wanted.1 => {
            at(members.partition_point(|member| numbers_of(member) < wanted)) == Some(wanted)
        }
        found => found == Some(wanted),
    }
}

/// Returns the member key of a value as numbers.
#[inline(always)]
pub(super) fn member_key_of(
    view: &View<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    slot: u16,
    value: Value,
    keeps: bool,
) -> (u64, u32) {
    let short = if let Value::Text(text) = value { short_member_key(context.bytes(text)) } else { None };
    short.unwrap_or_else(|| numbers(&long_member_key_of(view, context, scratch, slot, value, keeps)))
}

/// Returns the member key of a value that is printed or hashed first. Many sets contain the same few values, so the
/// member key of each slot is computed once per request if `keeps` is set, which excludes slots whose value may differ
/// at the next read.
#[inline(never)]
fn long_member_key_of(
    view: &View<'_>,
    context: &EvaluationContext,
    scratch: &mut Scratch,
    slot: u16,
    value: Value,
    keeps: bool,
) -> MemberKey {
    let Scratch { member_keys, printed, .. } = scratch;
    let mut key = || view.fingerprint.member_key(text_of(context, value, printed).as_bytes());
    if !keeps {
        return key();
    }
    if member_keys.len() < context.slots() {
        member_keys.resize(context.slots(), None);
    }
    match member_keys.get_mut(usize::from(slot)) {
        Some(kept) => *kept.get_or_insert_with(key),
        None => key(),
    }
}

/// Returns Python's `str` of a value. Values that are no texts are printed to `printed`.
#[inline(always)]
pub(super) fn text_of<'t>(context: &'t EvaluationContext, value: Value, printed: &'t mut String) -> &'t str {
    match value {
        Value::Text(text) | Value::BigInteger(text) => context.text(text),
        _ => print(value, printed),
    }
}

/// Prints a value that is no text.
#[inline(never)]
fn print(value: Value, printed: &mut String) -> &str {
    use std::fmt::Write;
    printed.clear();
    match value {
        Value::Text(_) | Value::BigInteger(_) => {}
        Value::Null => printed.push_str("None"),
        Value::True | Value::False => printed.push_str(python_bool(value == Value::True)),
        Value::Integer(integer) => {
            let _ = write!(printed, "{integer}"); // writing to a String does not fail
        }
        Value::Float(float) => write_float(float.get(), printed),
    }
    printed
}
