//! Instructions of residual programs, in words.

use std::collections::BTreeSet;

use super::{listed, member, quoted};
use crate::format::{
    layout::{IS_SEMVER, Instruction, Operator},
    view::View,
};
use crate::values::{hash::MemberKey, rows::Span};

/// Describes the comparison of an instruction. `own` is the request's value: its key in sets, and the value as JSON.
pub(super) fn describe(view: &View<'_>, instruction: &Instruction, own: Option<(MemberKey, &str)>) -> String {
    let version = if instruction.flags & IS_SEMVER != 0 { "version " } else { "" };
    let text = || format!("{version}{}", quoted(view.text(instruction.text)));
    match Operator::from_number(instruction.operator) {
        Some(Operator::Equal) => format!("equals {}", text()),
        Some(Operator::NotEqual) => format!("differs from {}", text()),
        Some(Operator::Greater) => format!("is greater than {}", text()),
        Some(Operator::GreaterOrEqual) => format!("is at least {}", text()),
        Some(Operator::Less) => format!("is less than {}", text()),
        Some(Operator::LessOrEqual) => format!("is at most {}", text()),
        Some(Operator::Contains) => format!("contains {}", text()),
        Some(Operator::NotContains) => format!("does not contain {}", text()),
        Some(Operator::Regex) => "matches a pattern (stored compiled)".to_owned(),
        Some(Operator::Modulo) => {
            let (divisor, remainder) = (f64::from_bits(instruction.left), f64::from_bits(instruction.right));
            format!("has the remainder {remainder} for the divisor {divisor}")
        }
        Some(Operator::In) => {
            let Span { start, length } = Span::from_word(instruction.left);
            let members = view.members().range(start, length);
            if members.len() == 0 {
                return "is one of no values".to_owned();
            }
            format!("is {}", listed(members.iter().map(|row| member(&row.key, own)), members.len(), "or"))
        }
        Some(Operator::PercentageSplit) => {
            format!("has a percentage of at most {}", f64::from_bits(instruction.left))
        }
        Some(Operator::IsSet) => "is set".to_owned(),
        Some(Operator::IsNotSet) => "is not set".to_owned(),
        None => "has an unknown operator".to_owned(),
    }
}

/// Returns the seed of an instruction that hashes.
pub(super) fn seed<'a>(view: &View<'a>, instruction: &Instruction) -> Option<&'a [u8]> {
    let is_percentage = instruction.operator == Operator::PercentageSplit as u8;
    is_percentage.then(|| view.bytes(Span::from_word(instruction.right)))
}

/// Counts the instructions of a program.
pub(super) fn count(view: &View<'_>, entry: u32) -> usize {
    let code = view.code();
    let mut rows = BTreeSet::from([entry]);
    let mut count = 0;
    while let Some(at) = rows.pop_first() {
        if let Some(instruction) = code.get(at) {
            count += 1;
            // Jumps go forward, so that the loop ends.
            rows.extend([instruction.on_true, instruction.on_false].into_iter().filter(|next| *next > at));
        }
    }
    count
}
