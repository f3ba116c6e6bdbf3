//! Compiles a pattern to a program for the snapshot's backtracking engine.

use std::collections::{BTreeMap, HashMap};

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
use remora_snapshot::backtrack::{self, Instruction, MAX_NESTING, MAX_SLOTS};

use super::error::PatternError;
use super::node::{Assertion, Mode, Node};
use super::parse::Parsed;
use super::step_budget::StepBudget;

/// Maximum number of instructions of a program.
const LONGEST: usize = 1 << 13;

/// Node of a repetition.
#[derive(Clone, Copy)]
enum Each<'a> {
    Once(&'a Node),
    /// A node without backtracking into its match.
    Atomic(&'a Node),
}

/// Compiles a pattern.
///
/// # Errors
/// The program exceeds a limit of the engine, the budget has too few steps, or Python itself refuses the pattern.
pub(super) fn build(parsed: &Parsed, budget: &mut StepBudget) -> Result<Vec<u8>, PatternError> {
    let mut builder = Builder {
        code: Vec::new(),
        ranges: Vec::new(),
        sets: BTreeMap::new(),
        slots: (parsed.groups + 1) * 2,
        starts: HashMap::new(),
        nesting: 0,
        budget,
    };
    builder.node(&parsed.node)?;
    builder.push(Instruction::Match)?;
    if builder.slots as usize > MAX_SLOTS {
        return Err(format!(
            "keeps {} positions, more than {MAX_SLOTS}; use fewer groups, (?:...) instead of (...)",
            builder.slots
        )
        .into());
    }
    Ok(backtrack::write(&builder.code, builder.slots, &builder.ranges))
}

struct Builder<'a> {
    code: Vec<Instruction>,
    ranges: Vec<(char, char)>,
    /// Start of each set's ranges in `ranges`.
    sets: BTreeMap<&'a [ClassUnicodeRange], u32>,
    slots: u32,
    /// Slot of each repetition whose part can be empty. Its copies share it: only one of them runs at a time.
    starts: HashMap<*const Node, u32>,
    nesting: u32,
    budget: &'a mut StepBudget,
}

impl<'a> Builder<'a> {
    fn next_address(&self) -> u32 {
        self.code.len() as u32 // at most LONGEST
    }

    /// Appends an instruction and returns its position.
    fn push(&mut self, instruction: Instruction) -> Result<usize, PatternError> {
        if self.code.len() >= LONGEST {
            return Err(format!("compiles to more than {LONGEST} instructions; use smaller repetitions").into());
        }
        self.code.push(instruction);
        Ok(self.code.len() - 1)
    }

    /// Replaces a placeholder by the instruction, once its targets are known.
    fn patch(&mut self, address: usize, instruction: Instruction) {
        if let Some(slot) = self.code.get_mut(address) {
            *slot = instruction;
        }
    }

    fn set(&mut self, class: &'a ClassUnicode) -> Result<(u32, u32), PatternError> {
        let ranges = class.ranges();
        self.budget.take(ranges.len())?;
        let first = *self.sets.entry(ranges).or_insert_with(|| {
            let first = self.ranges.len() as u32; // bounded by the pattern and by Unicode
            self.ranges.extend(ranges.iter().map(|range| (range.start(), range.end())));
            first
        });
        Ok((first, ranges.len() as u32))
    }

    fn node(&mut self, node: &'a Node) -> Result<(), PatternError> {
        // Nodes that emit no instruction count, too.
        self.budget.take(1)?;
        match node {
            Node::Set(class) => self.character(class),
            Node::Assert(assertion) => self.assertion(assertion),
            Node::Concat(nodes) => nodes.iter().try_for_each(|node| self.node(node)),
            Node::Alternate(nodes) => self.alternate(nodes),
            Node::Repeat { node, min, max, mode } => self.repeat(node, *min, *max, *mode),
            Node::Group { number, node } => {
                self.push(Instruction::Save(number * 2))?;
                self.node(node)?;
                self.push(Instruction::Save(number * 2 + 1)).map(drop)
            }
            Node::Look { behind, negated, node } => self.look(node, *behind, *negated),
            Node::Atomic(node) => self.part(Instruction::Atomic, |builder| builder.node(node)),
            Node::Backreference { group, case, .. } => {
                self.push(Instruction::Backreference(group * 2, *case)).map(drop)
            }
            Node::Conditional { group, yes, no } => {
                let question = self.push(Instruction::Match)?;
                self.node(yes)?;
                let jump = self.push(Instruction::Match)?;
                self.patch(question, Instruction::IfGroup(group * 2, self.next_address()));
                self.node(no)?;
                self.patch(jump, Instruction::Jump(self.next_address()));
                Ok(())
            }
        }
    }

    fn character(&mut self, class: &'a ClassUnicode) -> Result<(), PatternError> {
        let instruction = match class.ranges() {
            [only] if only.start() == only.end() => Instruction::Character(only.start()),
            _ => {
                let (first, count) = self.set(class)?;
                Instruction::Set(first, count)
            }
        };
        self.push(instruction).map(drop)
    }

    fn assertion(&mut self, assertion: &'a Assertion) -> Result<(), PatternError> {
        let instruction = match assertion {
            Assertion::Start => Instruction::Start,
            Assertion::End => Instruction::End,
            Assertion::EndOrNewline => Instruction::EndOrNewline,
            Assertion::LineStart => Instruction::LineStart,
            Assertion::LineEnd => Instruction::LineEnd,
            Assertion::Boundary(word) => {
                let (first, count) = self.set(word)?;
                Instruction::Boundary(first, count)
            }
            Assertion::NoBoundary(word) => {
                let (first, count) = self.set(word)?;
                Instruction::NoBoundary(first, count)
            }
        };
        self.push(instruction).map(drop)
    }

    fn alternate(&mut self, nodes: &'a [Node]) -> Result<(), PatternError> {
        let mut jumps = Vec::new();
        if let Some((last, others)) = nodes.split_last() {
            for node in others {
                let split = self.push(Instruction::Match)?;
                self.node(node)?;
                jumps.push(self.push(Instruction::Match)?);
                self.patch(split, Instruction::Split(split as u32 + 1, self.next_address()));
            }
            self.node(last)?;
        }
        for jump in jumps {
            self.patch(jump, Instruction::Jump(self.next_address()));
        }
        Ok(())
    }

    fn repeat(&mut self, node: &'a Node, min: u32, max: Option<u32>, mode: Mode) -> Result<(), PatternError> {
        if mode == Mode::Possessive {
            // Backtracking is off for the count and for each match, even before the minimum is reached.
            let each = if matches!(node, Node::Set(_)) { Each::Once(node) } else { Each::Atomic(node) };
            return self.part(Instruction::Atomic, |builder| builder.times(each, min, max, Mode::Greedy));
        }
        self.times(Each::Once(node), min, max, mode)
    }

    fn each(&mut self, each: Each<'a>) -> Result<(), PatternError> {
        match each {
            Each::Once(node) => self.node(node),
            Each::Atomic(node) => self.part(Instruction::Atomic, |builder| builder.node(node)),
        }
    }

    fn times(&mut self, each: Each<'a>, min: u32, max: Option<u32>, mode: Mode) -> Result<(), PatternError> {
        let split = |first, second| {
            if mode == Mode::Lazy { Instruction::Split(second, first) } else { Instruction::Split(first, second) }
        };
        for _ in 0..min {
            self.each(each)?;
        }
        let Some(max) = max else {
            let start = self.push(Instruction::Match)?;
            let slot = self.start_slot(each)?;
            let check = self.checked(each, slot)?;
            self.push(Instruction::Jump(start as u32))?;
            self.end_if_empty(check);
            self.patch(start, split(start as u32 + 1, self.next_address()));
            return Ok(());
        };
        let Some(last) = max.checked_sub(1).filter(|last| *last >= min) else { return Ok(()) };
        // After the last match, the repetition ends in any case.
        let slot = if last > min { self.start_slot(each)? } else { None };
        let (mut splits, mut checks) = (Vec::new(), Vec::new());
        for number in min..max {
            splits.push(self.push(Instruction::Match)?);
            checks.push(self.checked(each, slot.filter(|_| number < last))?);
        }
        for place in splits {
            self.patch(place, split(place as u32 + 1, self.next_address()));
        }
        checks.into_iter().for_each(|check| self.end_if_empty(check));
        Ok(())
    }

    /// Returns the slot for the start of each optional match, if a match can be empty.
    fn start_slot(&mut self, each: Each<'a>) -> Result<Option<u32>, PatternError> {
        let (Each::Once(node) | Each::Atomic(node)) = each;
        self.budget.take(node.size())?;
        if !node.can_be_empty() {
            return Ok(None);
        }
        let slot = *self.starts.entry(std::ptr::from_ref(node)).or_insert_with(|| {
            self.slots += 1;
            self.slots - 1
        });
        Ok(Some(slot))
    }

    /// Emits an optional match. Returns the placeholder after it and the slot, if the match can be empty: Python tries no
    /// further match after an empty one.
    fn checked(&mut self, each: Each<'a>, slot: Option<u32>) -> Result<Option<(usize, u32)>, PatternError> {
        let Some(slot) = slot else {
            self.each(each)?;
            return Ok(None);
        };
        self.push(Instruction::Save(slot))?;
        self.each(each)?;
        Ok(Some((self.push(Instruction::Match)?, slot)))
    }

    /// Lets an empty match end the repetition here.
    fn end_if_empty(&mut self, check: Option<(usize, u32)>) {
        if let Some((place, slot)) = check {
            self.patch(place, Instruction::Advanced(slot, self.next_address()));
        }
    }

    fn look(&mut self, node: &'a Node, behind: bool, negated: bool) -> Result<(), PatternError> {
        if !behind {
            let instruction = if negated { Instruction::NotAhead } else { Instruction::Ahead };
            return self.part(instruction, |builder| builder.node(node));
        }
        self.budget.take(node.size())?;
        let width = match node.width() {
            Some((min, max)) if min == max => {
                u32::try_from(min).map_err(|_| "has a look-behind that is too wide".to_owned())?
            }
            _ => return Err("has a look-behind without a fixed width, which Python does not allow".into()),
        };
        let instruction =
            move |end| if negated { Instruction::NotBehind(end, width) } else { Instruction::Behind(end, width) };
        self.part(instruction, |builder| builder.node(node))
    }

    /// Emits a part that runs on its own: an instruction that holds the position after the part, the part, and its own
    /// `Match`.
    fn part(
        &mut self,
        head: impl Fn(u32) -> Instruction,
        content: impl FnOnce(&mut Self) -> Result<(), PatternError>,
    ) -> Result<(), PatternError> {
        self.nesting += 1;
        if self.nesting >= MAX_NESTING {
            return Err(format!("nests look-around or atomic groups {MAX_NESTING} deep or deeper").into());
        }
        let start = self.push(Instruction::Match)?;
        content(self)?;
        self.push(Instruction::Match)?;
        self.patch(start, head(self.next_address()));
        self.nesting -= 1;
        Ok(())
    }
}
