//! Combined DFA: the automata of all patterns of a slot as one, so that a text is scanned once, independent of the
//! number of patterns.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use super::predicates::Pattern;
use crate::format::layout::AcceptSet;
use crate::regex::automaton::{self, Walk};
use crate::values::rows::Row;

/// Maximum number of transitions of a table. If patterns have little in common, the states of one are multiplied by the
/// states of the other.
const MAX_TRANSITIONS: usize = 1 << 15;
/// Charge for looking up a state, in steps.
const LOOK_UP: u64 = 8;
/// Maximum number of patterns, one bit each.
pub(super) const MAX_PATTERNS: usize = u64::BITS as usize;

/// Remaining steps for combining patterns.
pub(super) struct Work(Cell<u64>);

impl Work {
    pub(super) fn new(steps: u64) -> Self {
        Self(Cell::new(steps))
    }

    pub(super) fn is_done(&self) -> bool {
        self.0.get() == 0
    }

    fn take(&self, steps: u64) {
        self.0.set(self.0.get().saturating_sub(steps));
    }
}

/// The automaton and the accept sets of its states.
pub(super) struct Combined {
    pub(super) program: Vec<u8>,
    pub(super) accept_sets: Vec<AcceptSet>,
}

impl Combined {
    /// Number of bytes in the file.
    pub(super) fn bytes(&self) -> usize {
        self.program.len() + self.accept_sets.len() * AcceptSet::SIZE
    }
}

/// One pattern, ready to be stepped through.
enum Walker<'a> {
    Part { part: &'a [u8], fallback: Vec<usize> },
    Automaton(Walk<'a>),
}

impl<'a> Walker<'a> {
    fn of(pattern: Pattern<'a>) -> Option<Self> {
        match pattern {
            Pattern::Automaton(program) => Walk::of(program).map(Self::Automaton),
            Pattern::Part(part) => Some(Self::Part { part, fallback: fallback(part) }),
        }
    }

    /// Returns the start state, and true if the pattern is found there.
    fn start(&self) -> (u32, bool) {
        match self {
            Self::Part { part, .. } => (0, part.is_empty()),
            Self::Automaton(walk) => walk.start(),
        }
    }

    /// Returns the class of a byte. Bytes of one class have the same transitions.
    fn class(&self, byte: u8) -> u32 {
        match self {
            Self::Part { part, .. } if part.contains(&byte) => u32::from(byte) + 1,
            Self::Part { .. } => 0,
            Self::Automaton(walk) => walk.class(byte),
        }
    }

    /// Returns the next state, and true if the pattern is found there. The state continues as if the pattern were not
    /// found, so that found patterns do not multiply states.
    fn step(&self, state: u32, byte: u8, work: &Work) -> (u32, bool) {
        work.take(1);
        match self {
            Self::Automaton(walk) => walk.step(state, byte),
            Self::Part { part, fallback } => {
                let behind = |matched: usize| matched.checked_sub(1).and_then(|last| fallback.get(last)).copied();
                let mut matched = state as usize;
                while part.get(matched) != Some(&byte) {
                    work.take(1);
                    match behind(matched) {
                        Some(shorter) => matched = shorter,
                        None => return (0, false),
                    }
                }
                let is_found = matched + 1 == part.len();
                let next = if is_found { behind(matched + 1).unwrap_or(0) } else { matched + 1 };
                (next as u32, is_found)
            }
        }
    }

    fn is_found_at_end(&self, state: u32) -> bool {
        match self {
            Self::Part { .. } => false,
            Self::Automaton(walk) => walk.matches_at_end(state),
        }
    }
}

/// Returns the failure function of Knuth, Morris and Pratt: for each byte, the length of the prefix that still matches
/// if the next byte differs.
fn fallback(part: &[u8]) -> Vec<usize> {
    let mut fallback: Vec<usize> = Vec::with_capacity(part.len());
    let mut kept = 0;
    for (at, byte) in part.iter().enumerate() {
        while kept > 0 && part.get(kept) != Some(byte) {
            kept = fallback.get(kept - 1).copied().unwrap_or(0);
        }
        kept += usize::from(at > 0 && part.get(kept) == Some(byte));
        fallback.push(kept);
    }
    fallback
}

/// The states of all patterns, and the patterns that are found when this state is reached.
type State = (Vec<u32>, u64);

/// Combines patterns. `None` if they are too many for one automaton, or if the work exceeds the remaining steps.
pub(super) fn join(patterns: &[Pattern<'_>], work: &Work) -> Option<Combined> {
    if patterns.len() > MAX_PATTERNS || work.is_done() {
        return None;
    }
    let walkers: Vec<Walker<'_>> = patterns.iter().map(|pattern| Walker::of(*pattern)).collect::<Option<_>>()?;
    // Each pattern is read once, and classified for each of 256 byte values.
    work.take(patterns.iter().map(|pattern| pattern.length() as u64).sum::<u64>() + 256 * patterns.len() as u64);
    let mut classes = [0_u8; 256];
    // One representative byte per class.
    let mut bytes = Vec::new();
    let mut known: BTreeMap<Vec<u32>, u8> = BTreeMap::new();
    for (byte, class) in (0..=u8::MAX).zip(&mut classes) {
        let next = u8::try_from(known.len()).ok()?;
        let signature = walkers.iter().map(|walker| walker.class(byte)).collect();
        *class = *known.entry(signature).or_insert_with(|| {
            bytes.push(byte);
            next
        });
    }
    let width = bytes.len() + 1;
    let state_of = |each: &mut dyn FnMut(usize, &Walker<'_>) -> (u32, bool)| -> State {
        let mut found = 0;
        let states = walkers.iter().enumerate().map(|(number, walker)| {
            let (state, is_found) = each(number, walker);
            found |= u64::from(is_found) << number;
            state
        });
        (states.collect(), found)
    };
    // State 0 is the dead state, in which no pattern can be found any more. A part can be found anywhere, so it never
    // dies.
    let may_die = walkers.iter().all(|walker| matches!(walker, Walker::Automaton(_)));
    let start = state_of(&mut |_, walker| walker.start());
    let mut numbers = HashMap::from([(start.clone(), 1_u16)]);
    let mut states = vec![start];
    let mut table = vec![vec![0; width]];
    let mut at = 0;
    while let Some((from, _)) = states.get(at).cloned() {
        at += 1;
        if work.is_done() {
            return None;
        }
        let mut row = Vec::with_capacity(width);
        for byte in &bytes {
            work.take(LOOK_UP);
            let next = state_of(&mut |number, walker| walker.step(from.get(number).copied().unwrap_or(0), *byte, work));
            let is_dead = may_die && next.1 == 0 && next.0.iter().all(|state| *state == 0);
            let number = match numbers.get(&next) {
                _ if is_dead => 0,
                Some(number) => *number,
                None => {
                    if (states.len() + 2) * width > MAX_TRANSITIONS {
                        return None;
                    }
                    states.push(next.clone());
                    let number = u16::try_from(states.len()).ok()?;
                    numbers.insert(next, number);
                    number
                }
            };
            row.push(number);
        }
        row.push(u16::try_from(at).ok()?); // never taken: accept sets at the end are stored per state
        table.push(row);
    }
    let mut accept_sets = vec![AcceptSet::default()];
    accept_sets.extend(states.iter().map(|(state, here)| {
        let (_, at_end) = state_of(&mut |number, walker| {
            let state = state.get(number).copied().unwrap_or(0);
            (0, walker.is_found_at_end(state))
        });
        AcceptSet { here: *here, at_end }
    }));
    // States in which a pattern is found come last: they are the matching states.
    let mut order: Vec<u16> = (0..u16::try_from(table.len()).ok()?).collect();
    let is_found = |state: &u16| accept_sets.get(usize::from(*state)).is_some_and(|find| find.here != 0);
    order.sort_by_key(is_found);
    let accepting = order.partition_point(|state| !is_found(state));
    let mut renumbered = vec![0_u16; order.len()];
    for (number, state) in (0_u16..).zip(&order) {
        if let Some(place) = renumbered.get_mut(usize::from(*state)) {
            *place = number;
        }
    }
    let number = |state: &u16| renumbered.get(usize::from(*state)).copied().unwrap_or_default();
    let ordered = |state: &u16| table.get(usize::from(*state)).map(|row| row.iter().map(number).collect());
    let table: Vec<Vec<u16>> = order.iter().filter_map(ordered).collect();
    let accept_sets = order.iter().filter_map(|state| accept_sets.get(usize::from(*state)).copied()).collect();
    let program = automaton::write(&classes, u32::from(number(&1)), u32::try_from(accepting).ok()?, &table);
    Some(Combined { program, accept_sets })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the patterns that are found in a text.
    fn found(combined_dfa: &Combined, text: &str) -> u64 {
        automaton::validate(&combined_dfa.program).unwrap();
        let mut found = 0;
        let walked = automaton::walk(&combined_dfa.program, text.as_bytes(), |state| {
            found |= combined_dfa.accept_sets[state as usize].here;
        });
        found | combined_dfa.accept_sets[walked.unwrap() as usize].at_end
    }

    fn bits(found: impl IntoIterator<Item = bool>) -> u64 {
        found.into_iter().enumerate().fold(0, |bits, (number, found)| bits | u64::from(found) << number)
    }

    #[test]
    fn combined_dfa_finds_parts_like_single_searches() {
        let parts = ["", "a", "aab", "abab", "@x.", "b@", "é"];
        let patterns: Vec<_> = parts.iter().map(|part| Pattern::Part(part.as_bytes())).collect();
        let combined_dfa = join(&patterns, &Work::new(u64::MAX)).unwrap();
        for text in ["", "a", "aaab", "abaabab", "ababab", "ab@x", "ab@x.é", "\u{e8}", "bbb@@x.x", "aabaab"] {
            assert_eq!(found(&combined_dfa, text), bits(parts.map(|part| text.contains(part))), "{text:?}");
        }
    }

    #[test]
    fn combined_dfa_finds_automata_at_start_and_end() {
        // `a$`, `b`, and `` (which every text begins with).
        let class = |byte: u8| {
            let mut classes = [0; 256];
            classes[usize::from(byte)] = 1;
            classes
        };
        let only = automaton::write(&class(b'a'), 1, 3, &[vec![0; 3], vec![0, 2, 0], vec![0, 0, 3], vec![3; 3]]);
        let begins = automaton::write(&class(b'b'), 1, 2, &[vec![0; 3], vec![0, 2, 0], vec![2; 3]]);
        let always = automaton::write(&class(b'b'), 1, 1, &[vec![0; 3], vec![1; 3]]);
        let programs = [&only, &begins, &always];
        let combined_dfa = join(&programs.map(|program| Pattern::Automaton(program)), &Work::new(u64::MAX)).unwrap();
        for text in ["", "a", "aa", "b", "ba", "c"] {
            let expected = bits(programs.map(|program| automaton::matches(program, text.as_bytes())));
            assert_eq!(found(&combined_dfa, text), expected, "{text:?}");
        }
    }

    #[test]
    fn combined_dfa_beyond_its_work_is_not_built() {
        let part = "a".repeat(5_000);
        let patterns: Vec<_> = (0..64).map(|shorter| Pattern::Part(&part.as_bytes()[shorter..])).collect();
        let work = Work::new(1 << 20);
        assert!(join(&patterns, &work).is_none() && work.is_done());
        assert!(join(&patterns[..1], &Work::new(1 << 26)).is_some());
        assert!(join(&patterns[..1], &work).is_none());
    }

    #[test]
    fn combined_dfa_that_grows_too_large_is_not_built() {
        let parts: Vec<String> = (0..64).map(|number| format!("{number:03}{}", "x".repeat(60))).collect();
        let patterns: Vec<_> = parts.iter().map(|part| Pattern::Part(part.as_bytes())).collect();
        assert!(join(&patterns, &Work::new(u64::MAX)).is_none());
        assert!(join(&patterns[..20], &Work::new(u64::MAX)).is_some());
        assert!(join(&[Pattern::Part(b"x"); 65], &Work::new(u64::MAX)).is_none());
    }
}
