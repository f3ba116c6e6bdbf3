//! The bytes of a program, and its instructions.

use crate::values::rows::{Row, Table};

/// Maximum number of position slots of a program: two per group, one per loop.
pub const MAX_SLOTS: usize = 512;

/// One instruction. The operands are described in parentheses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// The program, or the part of it that is a group, has matched.
    Match,
    /// Matches this character.
    Character(char),
    /// Matches a character in one of the ranges (first row, count).
    Set(u32, u32),
    /// Tries the first place; if that fails, the second.
    Split(u32, u32),
    /// Continues at the place.
    Jump(u32),
    /// Saves the position in a slot.
    Save(u32),
    /// Continues unless nothing was consumed since the slot was saved; then continues at the place (slot, place).
    Advanced(u32, u32),
    /// Matches at the text's start.
    Start,
    /// Matches at the text's end.
    End,
    /// Matches at the end, or before a newline at the end.
    EndOrNewline,
    /// Matches after a newline or at the start.
    LineStart,
    /// Matches before a newline or at the end.
    LineEnd,
    /// Matches between a character in the set and one outside of it (first row, count).
    Boundary(u32, u32),
    /// Matches where [`Self::Boundary`] does not, and nowhere in an empty text (first row, count).
    NoBoundary(u32, u32),
    /// Matches the text of a group again (first slot of the group, rule of case).
    Backreference(u32, Case),
    /// Continues if the group has matched, otherwise at the place (first slot of the group, place).
    IfGroup(u32, u32),
    /// Look-ahead: the instructions up to the place must match from here. Continues at the place.
    Ahead(u32),
    /// Negative look-ahead: the instructions up to the place must not match from here.
    NotAhead(u32),
    /// Look-behind: the instructions up to the place must match `width` characters before (place, width).
    Behind(u32, u32),
    /// Negative look-behind: the instructions up to the place must not match there (place, width).
    NotBehind(u32, u32),
    /// Atomic group: the instructions up to the place match once, and are not retried.
    Atomic(u32),
}

/// Rule by which a back-reference compares characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Characters are equal.
    Exact,
    /// The first characters of their lower-case forms are equal.
    Ignored,
    /// Letters of ASCII are equal in either case, and other characters only if they are the same: `(?ai)`.
    IgnoredInAscii,
}

impl Case {
    fn encode(self) -> u32 {
        match self {
            Self::Exact => 0,
            Self::Ignored => 1,
            Self::IgnoredInAscii => 2,
        }
    }

    fn decode(number: u32) -> Self {
        match number {
            0 => Self::Exact,
            2 => Self::IgnoredInAscii,
            _ => Self::Ignored,
        }
    }
}

impl Instruction {
    fn encode(self) -> (u32, u32, u32) {
        match self {
            Self::Match => (0, 0, 0),
            Self::Character(c) => (1, u32::from(c), 0),
            Self::Set(a, b) => (2, a, b),
            Self::Split(a, b) => (3, a, b),
            Self::Jump(a) => (4, a, 0),
            Self::Save(a) => (5, a, 0),
            Self::Advanced(a, b) => (6, a, b),
            Self::Start => (7, 0, 0),
            Self::End => (8, 0, 0),
            Self::EndOrNewline => (9, 0, 0),
            Self::LineStart => (10, 0, 0),
            Self::LineEnd => (11, 0, 0),
            Self::Boundary(a, b) => (12, a, b),
            Self::NoBoundary(a, b) => (13, a, b),
            Self::Backreference(a, case) => (14, a, case.encode()),
            Self::IfGroup(a, b) => (15, a, b),
            Self::Ahead(a) => (16, a, 0),
            Self::NotAhead(a) => (17, a, 0),
            Self::Behind(a, b) => (18, a, b),
            Self::NotBehind(a, b) => (19, a, b),
            Self::Atomic(a) => (20, a, 0),
        }
    }

    fn decode(operation: u32, a: u32, b: u32) -> Option<Self> {
        Some(match operation {
            0 => Self::Match,
            1 => Self::Character(char::from_u32(a)?),
            2 => Self::Set(a, b),
            3 => Self::Split(a, b),
            4 => Self::Jump(a),
            5 => Self::Save(a),
            6 => Self::Advanced(a, b),
            7 => Self::Start,
            8 => Self::End,
            9 => Self::EndOrNewline,
            10 => Self::LineStart,
            11 => Self::LineEnd,
            12 => Self::Boundary(a, b),
            13 => Self::NoBoundary(a, b),
            14 => Self::Backreference(a, Case::decode(b)),
            15 => Self::IfGroup(a, b),
            16 => Self::Ahead(a),
            17 => Self::NotAhead(a),
            18 => Self::Behind(a, b),
            19 => Self::NotBehind(a, b),
            20 => Self::Atomic(a),
            _ => return None,
        })
    }
}

/// An instruction as stored.
#[derive(Debug, Clone, Copy, Default)]
struct Triple {
    operation: u32,
    a: u32,
    b: u32,
}

impl Row<12> for Triple {
    fn encode(&self) -> [u8; 12] {
        let ([a, b, c, d], [e, f, g, h], [i, j, k, l]) =
            (self.operation.to_le_bytes(), self.a.to_le_bytes(), self.b.to_le_bytes());
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }
    fn decode(&[a, b, c, d, e, f, g, h, i, j, k, l]: &[u8; 12]) -> Self {
        Self {
            operation: u32::from_le_bytes([a, b, c, d]),
            a: u32::from_le_bytes([e, f, g, h]),
            b: u32::from_le_bytes([i, j, k, l]),
        }
    }
}

/// A range of code points, both ends inclusive.
#[derive(Debug, Clone, Copy)]
struct Range {
    low: u32,
    high: u32,
}

impl Row<8> for Range {
    fn encode(&self) -> [u8; 8] {
        let ([a, b, c, d], [e, f, g, h]) = (self.low.to_le_bytes(), self.high.to_le_bytes());
        [a, b, c, d, e, f, g, h]
    }
    fn decode(&[a, b, c, d, e, f, g, h]: &[u8; 8]) -> Self {
        Self { low: u32::from_le_bytes([a, b, c, d]), high: u32::from_le_bytes([e, f, g, h]) }
    }
}

/// Writes a program: its instructions, the number of its slots, and the ranges of its sets.
#[must_use]
pub fn write(instructions: &[Instruction], slots: u32, ranges: &[(char, char)]) -> Vec<u8> {
    let count = u32::try_from(instructions.len()).unwrap_or(u32::MAX);
    let mut program = [count.to_le_bytes(), slots.to_le_bytes()].concat();
    for instruction in instructions {
        let (operation, a, b) = instruction.encode();
        program.extend_from_slice(&Triple { operation, a, b }.encode());
    }
    for (low, high) in ranges {
        program.extend_from_slice(&Range { low: u32::from(*low), high: u32::from(*high) }.encode());
    }
    program
}

/// The parts of a program.
#[derive(Clone, Copy)]
pub(super) struct Program<'a> {
    instructions: Table<'a, Triple, 12>,
    ranges: Table<'a, Range, 8>,
    pub(super) slots: usize,
}

impl<'a> Program<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let [a, b, c, d, e, f, g, h] = *head;
        let count = u32::from_le_bytes([a, b, c, d]) as usize;
        let slots = u32::from_le_bytes([e, f, g, h]) as usize;
        let (instructions, ranges) = rest.split_at_checked(count.checked_mul(12)?)?;
        Some(Self { instructions: Table::new(instructions), ranges: Table::new(ranges), slots })
    }

    /// Returns the instruction at a place.
    pub(super) fn at(&self, place: u32) -> Option<Instruction> {
        let Triple { operation, a, b } = self.instructions.get(place)?;
        Instruction::decode(operation, a, b)
    }

    /// Returns true if one of these ranges has the character.
    pub(super) fn set_has(&self, first: u32, count: u32, character: char) -> bool {
        let point = u32::from(character);
        let ranges = self.ranges.range(first, count);
        let (mut low, mut high) = (0, ranges.len() as u32);
        while low < high {
            let middle = low + (high - low) / 2;
            match ranges.get(middle) {
                Some(range) if point < range.low => high = middle,
                Some(range) if point > range.high => low = middle + 1,
                found => return found.is_some(),
            }
        }
        false
    }
}

/// Validates a program, and returns its problem, if any.
pub(crate) fn validate(bytes: &[u8]) -> Result<(), &'static str> {
    use Instruction::{
        Advanced, Ahead, Atomic, Backreference, Behind, Boundary, IfGroup, Jump, NoBoundary, NotAhead, NotBehind, Save,
        Set, Split,
    };
    let program = Program::of(bytes).ok_or("it is cut off")?;
    if program.slots > MAX_SLOTS {
        return Err("it has too many slots");
    }
    let places = program.instructions.len();
    let is_place = |place: u32| (place as usize) < places;
    let is_slot = |slot: u32| (slot as usize) < program.slots;
    for place in 0..places as u32 {
        let holds = match program.at(place).ok_or("an instruction is unknown")? {
            Split(a, b) => is_place(a) && is_place(b),
            Jump(a) => is_place(a),
            Save(slot) => is_slot(slot),
            Backreference(slot, _) => is_slot(slot.saturating_add(1)),
            Advanced(slot, a) => is_slot(slot) && is_place(a),
            IfGroup(slot, a) => is_slot(slot.saturating_add(1)) && is_place(a),
            Ahead(a) | NotAhead(a) | Atomic(a) | Behind(a, _) | NotBehind(a, _) => is_place(a) && a > place,
            Set(first, count) | Boundary(first, count) | NoBoundary(first, count) => program.ranges.has(first, count),
            _ => true,
        };
        if !holds {
            return Err("an operand does not exist");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Instruction::{Ahead, Backreference, Jump, Match, Save, Set, Split};

    #[test]
    fn program_with_missing_operands_is_refused() {
        let good = write(&[Split(0, 1), Match], 0, &[]);
        assert!(validate(&good).is_ok());
        assert!(validate(good.get(..9).unwrap()).is_err());
        for bad in [Split(9, 0), Jump(2), Save(0), Set(0, 1), Ahead(0), Backreference(u32::MAX, super::Case::Exact)] {
            assert!(validate(&write(&[bad, Match], 0, &[])).is_err(), "{bad:?}");
        }
    }
}
