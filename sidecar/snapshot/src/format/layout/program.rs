//! The instructions of programs.

use super::row::{Fields, RowWriter};
use crate::format::model::Comparison;
use crate::values::rows::{Row, Span};

row!(
    /// One condition, and the next instruction for either result. The row stores the value to compare with, so most
    /// conditions read nothing else.
    Instruction, 40, {
        operator: u8,
        flags: u8,
        slot: u16,
        on_true: u32,
        on_false: u32,
        /// Row in `BigIntegers` or in `Patterns`.
        operand: u32,
        /// An integer; a divisor or a threshold (`f64`); the first row and the number of members of a set (two `u32`).
        left: u64,
        /// A float; a remainder (`f64`); the seed of a percentage (span).
        right: u64,
        text: span,
    }
);
/// Instruction flag: the slot may have to be resolved from another flag.
pub(crate) const READS_FLAG: u8 = 1;
/// Instruction flag: the value as a boolean is true.
pub(crate) const IS_TRUE: u8 = 2;
/// Instruction flag: the value is also an integer of 64 bits, in `left`.
pub(crate) const HAS_INTEGER: u8 = 4;
/// Instruction flag: the value is also an integer beyond 64 bits, in `BigIntegers`.
pub(crate) const HAS_BIG_INTEGER: u8 = 8;
/// Instruction flag: the value is also a float, in `right`.
pub(crate) const HAS_FLOAT: u8 = 16;
/// Instruction flag: the value ends in `:semver`, which `text` does not contain.
pub(crate) const IS_SEMVER: u8 = 32;
pub(crate) const ACCEPT: u32 = u32::MAX;
pub(crate) const REJECT: u32 = u32::MAX - 1;

/// The operator of an instruction. The numbers are part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Contains,
    NotContains,
    Regex,
    Modulo,
    In,
    PercentageSplit,
    IsSet,
    IsNotSet,
}

impl Operator {
    pub(crate) fn of(comparison: Comparison) -> Self {
        match comparison {
            Comparison::Equal => Self::Equal,
            Comparison::NotEqual => Self::NotEqual,
            Comparison::Greater => Self::Greater,
            Comparison::GreaterOrEqual => Self::GreaterOrEqual,
            Comparison::Less => Self::Less,
            Comparison::LessOrEqual => Self::LessOrEqual,
        }
    }

    const ALL: [Self; 14] = [
        Self::Equal,
        Self::NotEqual,
        Self::Greater,
        Self::GreaterOrEqual,
        Self::Less,
        Self::LessOrEqual,
        Self::Contains,
        Self::NotContains,
        Self::Regex,
        Self::Modulo,
        Self::In,
        Self::PercentageSplit,
        Self::IsSet,
        Self::IsNotSet,
    ];

    #[inline(always)]
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}
