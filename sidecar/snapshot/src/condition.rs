//! One condition: the operators over every type that the left side can have.
//!
//! The rules are those of Flagsmith's Python engine: the condition's value is cast to the type of the left side, and a
//! failed cast makes the condition false, whatever the operator. What Python answers with an exception is false too.

use std::cmp::Ordering;

use crate::automaton;
use crate::backtrack;
use crate::hash::{Hash96, percentage};
use crate::layout::{
    AUTOMATON, Comparand, HAS_BIG_INTEGER, HAS_FLOAT, HAS_INTEGER, IS_SEMVER, IS_TRUE, Member, Operator, Table,
};
use crate::number::{Integer, write_float};
use crate::semver::{self, Version};
use crate::subject::{Subject, Value};
use crate::view::View;

pub(crate) fn holds(view: &View<'_>, subject: &mut Subject, operator: Operator, operand: u32, value: Value) -> bool {
    if value == Value::Null {
        return operator == Operator::IsNotSet;
    }
    let comparand = || view.comparands.get(operand).unwrap_or_default();
    match operator {
        Operator::IsSet => true,
        Operator::IsNotSet => false,
        Operator::Equal
        | Operator::NotEqual
        | Operator::Greater
        | Operator::GreaterOrEqual
        | Operator::Less
        | Operator::LessOrEqual => {
            compare(view, subject, &comparand(), value).is_some_and(|order| match (operator, order) {
                (Operator::NotEqual, order) => order != Some(Ordering::Equal),
                (_, None) => false,
                (Operator::Equal, Some(order)) => order.is_eq(),
                (Operator::Greater, Some(order)) => order.is_gt(),
                (Operator::GreaterOrEqual, Some(order)) => order.is_ge(),
                (Operator::Less, Some(order)) => order.is_lt(),
                (_, Some(order)) => order.is_le(),
            })
        }
        Operator::Contains => contains(view, subject, comparand(), value),
        Operator::NotContains => match value {
            Value::Text(text) => !has(subject.bytes(text), view.bytes(comparand().text)),
            _ => false,
        },
        Operator::Matches => with_text(subject, value, |text| matches(view, operand, text)),
        Operator::Modulo => modulo(view, subject, operand, value),
        Operator::In => is_in(view, subject, operand, value),
        Operator::Percentage => view.percentages.get(operand).is_some_and(|row| {
            with_text(subject, value, |text| percentage(&[&[view.bytes(row.seed)], &[text.as_bytes()]]))
                <= row.threshold
        }),
    }
}

/// How the left side stands to the condition's value: `None` if that cannot be cast to its type, `Some(None)` if they
/// have no order (a NaN).
#[inline(always)]
fn compare(view: &View<'_>, subject: &Subject, comparand: &Comparand, value: Value) -> Option<Option<Ordering>> {
    let has = |bit| comparand.flags & bit != 0;
    match value {
        Value::Null => None,
        Value::Bool(bool) => Some(Some(bool.cmp(&has(IS_TRUE)))),
        Value::Integer(integer) if has(HAS_INTEGER) => Some(Some(integer.cmp(&comparand.integer))),
        Value::Integer(_) | Value::BigInteger { .. } => {
            let right = if has(HAS_INTEGER) {
                Integer::Small(comparand.integer)
            } else if has(HAS_BIG_INTEGER) {
                Integer::Big { negative: comparand.integer < 0, digits: view.text(comparand.digits) }
            } else {
                return None;
            };
            Some(Some(integer(subject, value)?.cmp(&right)))
        }
        Value::Float(float) => has(HAS_FLOAT).then(|| float.partial_cmp(&comparand.float)),
        Value::Text(text) if has(IS_SEMVER) => {
            semver::compare(subject.bytes(text), view.bytes(comparand.text)).map(Some)
        }
        // UTF-8 sorts by bytes as Python sorts by code points.
        Value::Text(text) => Some(Some(subject.bytes(text).cmp(view.bytes(comparand.text)))),
    }
}

fn integer<'s>(subject: &'s Subject, value: Value) -> Option<Integer<'s>> {
    match value {
        Value::Integer(small) => Some(Integer::Small(small)),
        Value::BigInteger { negative, digits } => Some(Integer::Big { negative, digits: subject.text(digits) }),
        _ => None,
    }
}

/// Only strings contain. Where the value ends in `:semver` the left side is read as a version first, and a version
/// contains what equals its prerelease or its build metadata: Python iterates over its parts.
fn contains(view: &View<'_>, subject: &Subject, comparand: Comparand, value: Value) -> bool {
    let Value::Text(text) = value else { return false };
    let (text, part) = (subject.bytes(text), view.bytes(comparand.text));
    if comparand.flags & IS_SEMVER == 0 {
        return has(text, part);
    }
    Version::parse(text).is_some_and(|version| version.prerelease == Some(part) || version.build == Some(part))
}

fn has(text: &[u8], part: &[u8]) -> bool {
    let Some((first, rest)) = part.split_first() else { return true };
    let Some(last) = text.len().checked_sub(part.len()) else { return false };
    text.iter()
        .enumerate()
        .take(last + 1)
        .any(|(at, byte)| byte == first && text.get(at + 1..).is_some_and(|behind| behind.starts_with(rest)))
}

fn matches(view: &View<'_>, operand: u32, text: &str) -> bool {
    view.patterns.get(operand).is_some_and(|pattern| {
        let program = pattern.program.of(view.programs);
        if pattern.kind == AUTOMATON {
            automaton::matches(program, text.as_bytes())
        } else {
            backtrack::matches(program, text)
        }
    })
}

/// Floored modulo, as Python's: the result has the sign of the divisor.
fn modulo(view: &View<'_>, subject: &Subject, operand: u32, value: Value) -> bool {
    let left = match value {
        Value::Bool(bool) => f64::from(u8::from(bool)),
        Value::Float(float) => float,
        _ => match integer(subject, value).and_then(Integer::to_f64) {
            Some(float) => float,
            None => return false,
        },
    };
    view.moduli.get(operand).is_some_and(|row| {
        let mut rest = truncated_remainder(left, row.divisor);
        if rest != 0.0 && (rest < 0.0) != (row.divisor < 0.0) {
            rest += row.divisor;
        }
        row.divisor != 0.0 && rest == row.remainder
    })
}

/// `left % right`. That of floats is a loop; most are whole numbers, whose remainder is one instruction and the same.
fn truncated_remainder(left: f64, right: f64) -> f64 {
    const EXACT: f64 = (1_u64 << 53) as f64;
    let (whole_left, whole_right) = (left as i64, right as i64);
    let are_whole =
        left.abs() <= EXACT && right.abs() <= EXACT && whole_left as f64 == left && whole_right as f64 == right;
    match whole_left.checked_rem(whole_right) {
        Some(rest) if are_whole => rest as f64,
        _ => left % right,
    }
}

fn is_in(view: &View<'_>, subject: &mut Subject, operand: u32, value: Value) -> bool {
    if !matches!(value, Value::Text(_) | Value::Integer(_) | Value::BigInteger { .. }) {
        return false;
    }
    view.sets.get(operand).is_some_and(|set| {
        let members = view.members.range(set.members, set.length);
        contains_hash(members, &hash(view, subject, value))
    })
}

/// How many hashes are kept: looking for one must not cost more than hashing.
const MOST_HASHES: usize = 16;

/// The hash of a value among the members of sets. Many sets ask for the same few values: each is hashed once a request.
fn hash(view: &View<'_>, subject: &mut Subject, value: Value) -> Hash96 {
    if let Some((_, hash)) = subject.hashes.iter().find(|(hashed, _)| *hashed == value) {
        return *hash;
    }
    let hash = with_text(subject, value, |text| view.fingerprint.hash96(text.as_bytes()));
    if subject.hashes.len() < MOST_HASHES {
        subject.hashes.push((value, hash));
    }
    hash
}

fn contains_hash(members: Table<'_, Member, 12>, hash: &Hash96) -> bool {
    let wanted = number(hash);
    let (mut low, mut high) = (0, members.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match members.get(middle as u32).map(|member| number(&member.hash).cmp(&wanted)) {
            Some(Ordering::Equal) => return true,
            Some(Ordering::Less) => low = middle + 1,
            _ => high = middle,
        }
    }
    false
}

/// Sorts as the bytes do.
fn number(hash: &Hash96) -> u128 {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *hash;
    u128::from_be_bytes([0, 0, 0, 0, a, b, c, d, e, f, g, h, i, j, k, l])
}

/// Python's `str` of a value.
fn with_text<T>(subject: &mut Subject, value: Value, then: impl FnOnce(&str) -> T) -> T {
    use std::fmt::Write;
    if let Value::Text(text) = value {
        return then(subject.text(text));
    }
    let mut made = std::mem::take(&mut subject.scratch);
    made.clear();
    match value {
        Value::Text(_) => {}
        Value::Null => made.push_str("None"),
        Value::Bool(true) => made.push_str("True"),
        Value::Bool(false) => made.push_str("False"),
        Value::Integer(integer) => {
            let _ = write!(made, "{integer}"); // writing to a String does not fail
        }
        Value::BigInteger { negative, digits } => {
            if negative {
                made.push('-');
            }
            made.push_str(subject.text(digits));
        }
        Value::Float(float) => write_float(float, &mut made),
    }
    let result = then(&made);
    subject.scratch = made;
    result
}
