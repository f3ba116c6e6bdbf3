//! Making an automaton deterministic (the subset construction). regex-automata does this too, but bounds it by memory
//! alone, and a few megabytes can take many seconds. Here every state that is visited is counted.
//!
//! Only whether a text begins with a match is asked for: which of several matches would be found, and how long it is,
//! makes no difference, so a state of the result is a set without an order, and ends where any member matches.

use std::collections::HashMap;

use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;

use super::work::Work;

/// How many entries a table may have before it is made small.
const MOST_ENTRIES: usize = 1 << 19;

/// How many members all states may have.
const MOST_MEMBERS: usize = 1 << 19;

/// A deterministic automaton. State 0 is dead, the last one matches; both lead to themselves.
pub(super) struct Table {
    /// The class of each byte.
    pub(super) classes: [u8; 256],
    /// Number of classes, the last of which is the end of the text.
    pub(super) width: usize,
    pub(super) start: u32,
    /// By state and class: the next state.
    pub(super) next: Vec<u32>,
}

impl Table {
    pub(super) fn states(&self) -> usize {
        self.next.len() / self.width.max(1)
    }
}

/// A set of states of the other automaton, each of which consumes a byte or asks what comes next; and what was before,
/// if that can be asked again.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Subset {
    members: Box<[StateID]>,
    place: Place,
}

/// Where in a text a state is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Place {
    is_start: bool,
    is_line_start: bool,
}

/// What comes behind a place.
#[derive(Clone, Copy, Default)]
struct Ahead {
    is_end: bool,
    is_newline: bool,
}

/// The deterministic automaton; `None` if it is too large, or takes more work than is left.
pub(super) fn determinize(nfa: &NFA, work: &mut Work) -> Option<Table> {
    work.take(nfa.states().len()).ok()?;
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
    let mut known = Known { numbers: HashMap::new(), subsets: Vec::new(), members: 0 };
    let start = Place { is_start: true, is_line_start: true };
    let first = search.close([nfa.start_anchored()], start, None, work)?;
    let start = known.number(first)?;
    let mut next = vec![DEAD; width];
    let mut at = 0;
    while let Some(subset) = known.subsets.get(at).cloned() {
        at += 1;
        if (at + 2) * width > MOST_ENTRIES {
            return None;
        }
        for byte in &bytes {
            let reached = search.step(&subset, *byte, work)?;
            next.push(known.number(reached)?);
        }
        let at_end = search.close(
            subset.members.iter().copied(),
            subset.place,
            Some(Ahead { is_end: true, is_newline: true }),
            work,
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
/// Stands for the last state while its number is not known.
const MATCH: u32 = u32::MAX;

/// The states of the result, numbered from 1.
struct Known {
    numbers: HashMap<Subset, u32>,
    subsets: Vec<Subset>,
    members: usize,
}

impl Known {
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
        if self.members > MOST_MEMBERS {
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
    /// Something matches.
    Match,
    Subset(Subset),
}

struct Search<'a> {
    nfa: &'a NFA,
    /// By state: the last search that has visited it.
    seen: Vec<u32>,
    generation: u32,
    stack: Vec<StateID>,
}

impl Search<'_> {
    /// What a byte leads to.
    fn step(&mut self, subset: &Subset, byte: u8, work: &mut Work) -> Option<Reached> {
        work.take(subset.members.len()).ok()?;
        let is_newline = byte == b'\n';
        let asks = |state: &StateID| matches!(self.nfa.state(*state), State::Look { .. });
        // Those that ask what comes next are answered before the byte is consumed.
        let members = if is_newline && subset.members.iter().any(asks) {
            let ahead = Ahead { is_end: false, is_newline };
            match self.close(subset.members.iter().copied(), subset.place, Some(ahead), work)? {
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
        self.close(consumed, Place { is_start: false, is_line_start: is_newline }, None, work)
    }

    /// The states that are reached without consuming a byte. Without `ahead`, those that ask what comes next stay.
    fn close(
        &mut self,
        from: impl IntoIterator<Item = StateID>,
        place: Place,
        ahead: Option<Ahead>,
        work: &mut Work,
    ) -> Option<Reached> {
        self.generation = self.generation.checked_add(1)?;
        self.stack.clear();
        self.stack.extend(from);
        let mut members = Vec::new();
        let mut asks = false;
        while let Some(state) = self.stack.pop() {
            work.take(1).ok()?;
            let seen = self.seen.get_mut(state.as_usize())?;
            if std::mem::replace(seen, self.generation) == self.generation {
                continue;
            }
            match self.nfa.state(state) {
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) => members.push(state),
                State::Look { look, next } => {
                    let holds = match (look, ahead) {
                        (Look::Start, _) => Some(place.is_start),
                        (Look::StartLF, _) => Some(place.is_line_start),
                        (Look::End, Some(ahead)) => Some(ahead.is_end),
                        (Look::EndLF, Some(ahead)) => Some(ahead.is_newline),
                        (Look::End | Look::EndLF, None) => None,
                        // No pattern of ours asks anything else.
                        _ => return None,
                    };
                    match holds {
                        Some(true) => self.stack.push(*next),
                        Some(false) => {}
                        None => {
                            asks = true;
                            members.push(state);
                        }
                    }
                }
                State::Union { alternates } => {
                    work.take(alternates.len()).ok()?;
                    self.stack.extend(alternates.iter().copied());
                }
                State::BinaryUnion { alt1, alt2 } => self.stack.extend([*alt1, *alt2]),
                State::Capture { next, .. } => self.stack.push(*next),
                State::Fail => {}
                State::Match { .. } => return Some(Reached::Match),
            }
        }
        members.sort_unstable();
        let place = if asks { place } else { Place::default() };
        Some(Reached::Subset(Subset { members: members.into(), place }))
    }
}
