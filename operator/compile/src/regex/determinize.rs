//! Makes an automaton deterministic (subset construction). `regex-automata` does this too, but bounds it by memory
//! only, and a few megabytes can take many seconds. Here every visited state is counted.
//!
//! The automaton only decides if a text begins with a match. The choice among several matches and their length do not
//! matter, so a state of the result is an unordered set, and matches as soon as one member matches.

use std::collections::HashMap;

use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;

use super::step_budget::StepBudget;

/// Maximum number of entries of a table before it is minimized.
const ENTRIES_MAX: usize = 1 << 19;

/// Maximum number of members of all states together.
const MEMBERS_MAX: usize = 1 << 19;

/// Deterministic automaton. State 0 is dead, and the last state matches. Both lead to themselves.
pub(super) struct Table {
    /// Class of each byte.
    pub(super) classes: [u8; 256],
    /// Number of classes. The last class is the end of the text.
    pub(super) width: usize,
    pub(super) start: u32,
    /// Next state, by state and class.
    pub(super) next: Vec<u32>,
}

impl Table {
    pub(super) fn states(&self) -> usize {
        self.next.len() / self.width.max(1)
    }
}

/// A set of states of the nondeterministic automaton, each of which consumes a byte or has an unresolved assertion
/// about the next byte, and the position before them if an assertion may need it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Subset {
    members: Box<[StateID]>,
    position: Position,
}

/// Properties of the position before a state.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Position {
    is_start: bool,
    is_line_start: bool,
}

/// Properties of the position's next byte.
#[derive(Clone, Copy, Default)]
struct Lookahead {
    is_end: bool,
    is_newline: bool,
}

/// Returns the deterministic automaton. `None` if it is too large or the budget has too few steps.
pub(super) fn determinize(nfa: &NFA, budget: &mut StepBudget) -> Option<Table> {
    budget.take(nfa.states().len()).ok()?;
    let byte_classes = nfa.byte_classes();
    let mut classes = [0; 256];
    let mut bytes = Vec::new();
    for (byte, class) in (0..=u8::MAX).zip(&mut classes) {
        *class = byte_classes.get(byte);
        if usize::from(*class) == bytes.len() {
            bytes.push(byte);
        }
    }
    let width = bytes.len() + 1;
    let mut search = Search { nfa, seen: vec![0; nfa.states().len()], generation: 0, stack: Vec::new() };
    let mut known = SubsetNumbers { numbers: HashMap::new(), subsets: Vec::new(), members: 0 };
    let start = Position { is_start: true, is_line_start: true };
    let first = search.close([nfa.start_anchored()], start, None, budget)?;
    let start = known.number(first)?;
    let mut next = vec![DEAD; width];
    let mut at = 0;
    while let Some(subset) = known.subsets.get(at).cloned() {
        at += 1;
        if (at + 2) * width > ENTRIES_MAX {
            return None;
        }
        for byte in &bytes {
            let reached = search.step(&subset, *byte, budget)?;
            next.push(known.number(reached)?);
        }
        let at_end = search.close(
            subset.members.iter().copied(),
            subset.position,
            Some(Lookahead { is_end: true, is_newline: true }),
            budget,
        )?;
        next.push(if at_end == Reached::Match { MATCH } else { DEAD });
    }
    let accepting = u32::try_from(known.subsets.len()).ok()? + 1;
    next.extend(std::iter::repeat_n(accepting, width));
    for state in &mut next {
        if *state == MATCH {
            *state = accepting;
        }
    }
    let start = if start == MATCH { accepting } else { start };
    Some(Table { classes, width, start, next })
}

const DEAD: u32 = 0;
/// Placeholder for the number of the last state until it is known.
const MATCH: u32 = u32::MAX;

/// States of the result, numbered from 1.
struct SubsetNumbers {
    numbers: HashMap<Subset, u32>,
    subsets: Vec<Subset>,
    members: usize,
}

impl SubsetNumbers {
    fn number(&mut self, reached: Reached) -> Option<u32> {
        let subset = match reached {
            Reached::Match => return Some(MATCH),
            Reached::Subset(subset) if subset.members.is_empty() => return Some(DEAD),
            Reached::Subset(subset) => subset,
        };
        if let Some(number) = self.numbers.get(&subset) {
            return Some(*number);
        }
        self.members += subset.members.len();
        if self.members > MEMBERS_MAX {
            return None;
        }
        self.subsets.push(subset.clone());
        let number = u32::try_from(self.subsets.len()).ok()?;
        self.numbers.insert(subset, number);
        Some(number)
    }
}

#[derive(PartialEq, Eq)]
enum Reached {
    /// At least one member matches.
    Match,
    Subset(Subset),
}

struct Search<'a> {
    nfa: &'a NFA,
    /// Generation of the last search that visited each state.
    seen: Vec<u32>,
    generation: u32,
    stack: Vec<StateID>,
}

impl Search<'_> {
    /// Returns the states that a byte leads to.
    fn step(&mut self, subset: &Subset, byte: u8, budget: &mut StepBudget) -> Option<Reached> {
        budget.take(subset.members.len()).ok()?;
        let is_newline = byte == b'\n';
        let has_assertion = |state: &StateID| matches!(self.nfa.state(*state), State::Look { .. });
        // Assertions about the next byte are resolved before the byte is consumed.
        let members = if is_newline && subset.members.iter().any(has_assertion) {
            let lookahead = Lookahead { is_end: false, is_newline };
            match self.close(subset.members.iter().copied(), subset.position, Some(lookahead), budget)? {
                Reached::Match => return Some(Reached::Match),
                Reached::Subset(answered) => answered.members,
            }
        } else {
            subset.members.clone()
        };
        let nfa = self.nfa;
        let consumed = members.iter().filter_map(|state| match nfa.state(*state) {
            State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
            State::Sparse(sparse) => sparse.matches_byte(byte),
            State::Dense(dense) => dense.matches_byte(byte),
            _ => None,
        });
        self.close(consumed, Position { is_start: false, is_line_start: is_newline }, None, budget)
    }

    /// Returns the states that are reached without consuming a byte. Without `lookahead`, assertions about the next byte
    /// stay unresolved.
    fn close(
        &mut self,
        from: impl IntoIterator<Item = StateID>,
        position: Position,
        lookahead: Option<Lookahead>,
        budget: &mut StepBudget,
    ) -> Option<Reached> {
        self.generation = self.generation.checked_add(1)?;
        self.stack.clear();
        self.stack.extend(from);
        let mut members = Vec::new();
        let mut has_assertion = false;
        while let Some(state) = self.stack.pop() {
            budget.take(1).ok()?;
            let seen = self.seen.get_mut(state.as_usize())?;
            if std::mem::replace(seen, self.generation) == self.generation {
                continue;
            }
            match self.nfa.state(state) {
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) => members.push(state),
                State::Look { look, next } => {
                    let holds = match (look, lookahead) {
                        (Look::Start, _) => Some(position.is_start),
                        (Look::StartLF, _) => Some(position.is_line_start),
                        (Look::End, Some(lookahead)) => Some(lookahead.is_end),
                        (Look::EndLF, Some(lookahead)) => Some(lookahead.is_newline),
                        (Look::End | Look::EndLF, None) => None,
                        // Our patterns contain no other assertions.
                        _ => return None,
                    };
                    match holds {
                        Some(true) => self.stack.push(*next),
                        Some(false) => {}
                        None => {
                            has_assertion = true;
                            members.push(state);
                        }
                    }
                }
                State::Union { alternates } => {
                    budget.take(alternates.len()).ok()?;
                    self.stack.extend(alternates.iter().copied());
                }
                State::BinaryUnion { alt1, alt2 } => self.stack.extend([*alt1, *alt2]),
                State::Capture { next, .. } => self.stack.push(*next),
                State::Fail => {}
                State::Match { .. } => return Some(Reached::Match),
            }
        }
        members.sort_unstable();
        let position = if has_assertion { position } else { Position::default() };
        Some(Reached::Subset(Subset { members: members.into(), position }))
    }
}
