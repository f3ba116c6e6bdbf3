//! Programs of segments: each condition has a next instruction for true and for false, and every jump goes forward, so
//! a program ends. The nesting of rules is flattened.

use std::collections::HashMap;

use super::WriteError;
use super::blob::{Blob, offset};
use crate::format::{
    layout::{
        ACCEPT, AUTOMATON, BACKTRACKING, BigInteger, HAS_BIG_INTEGER, HAS_FLOAT, HAS_INTEGER, IS_SEMVER, IS_TRUE,
        Instruction, Member, Operator, Pattern, READS_FLAG, REJECT,
    },
    model::{self, Condition, Junction, Rule, Test},
};
use crate::values::{
    hash::Fingerprint,
    number::Integer,
    rows::{Row, Span},
};

/// The tables that programs refer to, as stored.
#[derive(Default)]
pub(super) struct Operands {
    pub(super) big_integers: Vec<u8>,
    pub(super) members: Vec<u8>,
    pub(super) patterns: Vec<u8>,
    pub(super) programs: Vec<u8>,
    known_patterns: HashMap<model::Pattern, u32>,
    /// Rows by address and length: conditions with the same pattern share its bytes, which are then not hashed each
    /// time.
    shared_patterns: HashMap<(usize, usize), u32>,
    /// Number of conditions that were written a second time ([`MOST_COPIES`]).
    copies: usize,
}

/// Maximum number of conditions written a second time ([`Program::read`]). Nested rules would otherwise be written as
/// often as the third power of their depth.
const MOST_COPIES: usize = 1 << 16;

impl Operands {
    /// Number of bytes in all tables.
    pub(super) fn bytes(&self) -> usize {
        self.big_integers.len() + self.members.len() + self.patterns.len() + self.programs.len()
    }
}

/// The next instruction: the end, or an instruction, counted from the end of the program while it is built.
#[derive(Clone, Copy)]
enum Label {
    Accept,
    Reject,
    Behind(usize),
}

/// The program of one segment, last instruction first.
struct Program<'a> {
    instructions: Vec<(Instruction, Label, Label)>,
    segment: &'a str,
    /// True if conditions may be reordered: no condition reads a flag, which can have an effect in a cycle of flags.
    reorder: bool,
    reads_flag: &'a dyn Fn(&Condition) -> bool,
    /// Number of enclosing rules whose sub-rules are written twice.
    doubled: u32,
    fingerprint: Fingerprint,
    operands: &'a mut Operands,
    blob: &'a mut Blob,
}

/// Appends the program of rules, all of which must match, to `code`, and returns its entry.
pub(super) fn write(
    segment: &str,
    rules: &[Rule],
    reads_flag: &dyn Fn(&Condition) -> bool,
    fingerprint: Fingerprint,
    operands: &mut Operands,
    blob: &mut Blob,
    code: &mut Vec<Instruction>,
) -> Result<u32, WriteError> {
    let mut program = Program {
        instructions: Vec::new(),
        segment,
        reorder: !any_condition(rules, reads_flag),
        reads_flag,
        doubled: 0,
        fingerprint,
        operands,
        blob,
    };
    let mut entry = Label::Accept;
    for rule in rules.iter().rev() {
        entry = program.rule(rule, entry, Label::Reject)?;
    }
    let end = code.len() + program.instructions.len();
    offset(end)?;
    let place = |label| match label {
        Label::Accept => ACCEPT,
        Label::Reject => REJECT,
        Label::Behind(behind) => (end - 1 - behind) as u32, // below `end`, which fits
    };
    let entry = place(entry);
    code.extend(program.instructions.iter().rev().map(|(instruction, on_true, on_false)| Instruction {
        on_true: place(*on_true),
        on_false: place(*on_false),
        ..*instruction
    }));
    Ok(entry)
}

impl Program<'_> {
    /// Writes conditions, then sub-rules. Both use the rule's junction, and both must hold.
    fn rule(&mut self, rule: &Rule, on_true: Label, on_false: Label) -> Result<Label, WriteError> {
        let rules: Vec<&Rule> = rule.rules.iter().collect();
        let then = self.join(rule.junction, &rules, on_true, on_false, Self::rule)?;
        let otherwise = self.read(rule, &rules, on_false)?;
        let mut conditions: Vec<&Condition> = rule.conditions.iter().collect();
        if self.reorder {
            conditions.sort_by_key(|condition| cost(&condition.test));
        }
        self.join(rule.junction, &conditions, then, otherwise, Self::condition)
    }

    /// Writes the sub-rules a second time where the conditions have already decided: Flagsmith's engine evaluates them
    /// there, too. This is visible only if they read flags in a cycle, so only such sub-rules are written again, up to
    /// a depth, and at most [`MOST_COPIES`] conditions.
    fn read(&mut self, rule: &Rule, rules: &[&Rule], then: Label) -> Result<Label, WriteError> {
        const DEEPEST: u32 = 3;
        if rule.conditions.is_empty() || self.doubled >= DEEPEST || !any_condition(&rule.rules, self.reads_flag) {
            return Ok(then);
        }
        let copies = self.operands.copies + conditions_in(&rule.rules);
        if copies > MOST_COPIES {
            return Ok(then);
        }
        self.operands.copies = copies;
        self.doubled += 1;
        let entry = self.join(rule.junction, rules, then, then, Self::rule);
        self.doubled -= 1;
        entry
    }

    fn join<T>(
        &mut self,
        junction: Junction,
        parts: &[&T],
        on_true: Label,
        on_false: Label,
        part: impl Fn(&mut Self, &T, Label, Label) -> Result<Label, WriteError>,
    ) -> Result<Label, WriteError> {
        if parts.is_empty() {
            return Ok(on_true);
        }
        // The next instruction if none of the parts so far has decided.
        let mut rest = if junction == Junction::Any { on_false } else { on_true };
        for each in parts.iter().rev() {
            rest = match junction {
                Junction::All => part(self, each, rest, on_false)?,
                Junction::Any => part(self, each, on_true, rest)?,
                Junction::None => part(self, each, on_false, rest)?,
            };
        }
        Ok(rest)
    }

    fn condition(&mut self, condition: &Condition, on_true: Label, on_false: Label) -> Result<Label, WriteError> {
        let mut instruction = match &condition.test {
            // Reading a flag can close a cycle, even if the result is known.
            Test::Constant(false) if (self.reads_flag)(condition) => self.set(&model::Members::default())?,
            Test::Constant(holds) => return Ok(if *holds { on_true } else { on_false }),
            Test::Compare(comparison, comparand) => self.comparand(Operator::of(*comparison), comparand)?,
            Test::Contains(comparand) => self.comparand(Operator::Contains, comparand)?,
            Test::NotContains(comparand) => self.comparand(Operator::NotContains, comparand)?,
            Test::Matches(pattern) => Instruction { operand: self.pattern(pattern)?, ..plain(Operator::Regex) },
            Test::Modulo { divisor, remainder } => {
                Instruction { left: divisor.to_bits(), right: remainder.to_bits(), ..plain(Operator::Modulo) }
            }
            Test::In(members) => self.set(members)?,
            Test::Percentage { threshold } => Instruction {
                left: threshold.to_bits(),
                right: self.blob.intern(self.segment.as_bytes())?.to_word(),
                ..plain(Operator::PercentageSplit)
            },
            Test::IsSet => plain(Operator::IsSet),
            Test::IsNotSet => plain(Operator::IsNotSet),
        };
        let limit = usize::from(u16::MAX);
        instruction.slot = u16::try_from(condition.property).map_err(|_| WriteError::TooMany {
            what: "properties in conditions",
            count: condition.property,
            limit,
        })?;
        if (self.reads_flag)(condition) {
            instruction.flags |= READS_FLAG;
        }
        self.instructions.push((instruction, on_true, on_false));
        Ok(Label::Behind(self.instructions.len() - 1))
    }

    fn comparand(&mut self, operator: Operator, comparand: &model::Comparand) -> Result<Instruction, WriteError> {
        let mut row = Instruction { text: self.blob.intern(comparand.text.as_bytes())?, ..plain(operator) };
        if comparand.boolean {
            row.flags |= IS_TRUE;
        }
        if let Some(float) = comparand.float {
            row.flags |= HAS_FLOAT;
            row.right = float.to_bits();
        }
        match comparand.integer.as_deref().and_then(Integer::parse) {
            Some(Integer::Small(small)) => {
                row.flags |= HAS_INTEGER;
                row.left = small.cast_unsigned();
            }
            Some(Integer::Big { negative, digits }) => {
                row.flags |= HAS_BIG_INTEGER;
                let digits = self.blob.intern(digits.as_bytes())?;
                let number = BigInteger { negative: u32::from(negative), digits };
                row.operand = push(&mut self.operands.big_integers, &number)?;
            }
            None => {}
        }
        if comparand.semver {
            row.flags |= IS_SEMVER;
        }
        Ok(row)
    }

    fn pattern(&mut self, pattern: &model::Pattern) -> Result<u32, WriteError> {
        let (kind, program) = match pattern {
            model::Pattern::Automaton(program) => (AUTOMATON, program),
            model::Pattern::Backtracking(program) => (BACKTRACKING, program),
        };
        let address = (program.as_ptr() as usize, program.len());
        if let Some(index) = self.operands.shared_patterns.get(&address) {
            return Ok(*index);
        }
        if let Some(index) = self.operands.known_patterns.get(pattern) {
            self.operands.shared_patterns.insert(address, *index);
            return Ok(*index);
        }
        let place = Span { start: offset(self.operands.programs.len())?, length: offset(program.len())? };
        self.operands.programs.extend_from_slice(program);
        let index = push(&mut self.operands.patterns, &Pattern { kind, program: place })?;
        self.operands.known_patterns.insert(pattern.clone(), index);
        self.operands.shared_patterns.insert(address, index);
        Ok(index)
    }

    fn set(&mut self, members: &model::Members) -> Result<Instruction, WriteError> {
        let mut member_keys: Vec<_> =
            members.iter().map(|member| self.fingerprint.member_key(member.as_bytes())).collect();
        member_keys.sort_unstable();
        member_keys.dedup();
        let first = offset(self.operands.members.len() / Member::SIZE)?;
        for key in &member_keys {
            self.operands.members.extend_from_slice(&Member { key: *key }.encode());
        }
        let members = Span { start: first, length: offset(member_keys.len())? };
        Ok(Instruction { left: members.to_word(), ..plain(Operator::In) })
    }
}

/// Creates an instruction without operands.
fn plain(operator: Operator) -> Instruction {
    Instruction { operator: operator as u8, ..Instruction::default() }
}

/// Appends a row and returns its index.
fn push<const N: usize>(table: &mut Vec<u8>, row: &impl Row<N>) -> Result<u32, WriteError> {
    let encoded = row.encode();
    let index = table.len() / N;
    table.extend_from_slice(&encoded);
    offset(index)
}

/// Returns true if `holds` is true for any condition in the rules.
pub(super) fn any_condition(rules: &[Rule], holds: &dyn Fn(&Condition) -> bool) -> bool {
    rules.iter().any(|rule| rule.conditions.iter().any(holds) || any_condition(&rule.rules, holds))
}

fn conditions_in(rules: &[Rule]) -> usize {
    rules.iter().map(|rule| rule.conditions.len() + conditions_in(&rule.rules)).sum()
}

/// Returns the cost of a test. Cheap tests are evaluated first.
fn cost(test: &Test) -> u8 {
    match test {
        Test::Constant(_) => 0,
        Test::IsSet | Test::IsNotSet => 1,
        Test::Compare(..) | Test::Modulo { .. } => 2,
        Test::In(_) => 3,
        Test::Contains(_) | Test::NotContains(_) => 4,
        Test::Matches(model::Pattern::Automaton(_)) => 5,
        Test::Percentage { .. } => 6,
        Test::Matches(model::Pattern::Backtracking(_)) => 7,
    }
}
