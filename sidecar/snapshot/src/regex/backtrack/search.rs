//! The search: runs a program on a text.

use super::program::{Case, Instruction, MAX_SLOTS, Program};
use crate::budget::StepBudget;

/// Maximum number of steps of one search: half of the steps of its request, so that one pattern does not use up the
/// budget of all others.
pub const MAX_STEPS: u32 = crate::MAX_STEPS / 2;

/// Maximum number of entries in the trail of one search: 768 KiB of memory.
pub const MAX_TRAIL: usize = 1 << 15;

/// Number of characters, saved positions or bytes per charged step, for instructions that pass over several.
const A_STEP: usize = 8;

/// Maximum nesting of look-around and atomic groups.
pub const MAX_NESTING: u32 = 32;

/// The memory of searches, reused by the next one.
#[derive(Debug, Default)]
pub(crate) struct SearchMemory {
    slots: Vec<Option<usize>>,
    trail: Vec<Trail>,
}

/// Returns true if a prefix of the text matches the program. `None` if the search is undecided.
pub(crate) fn matches(bytes: &[u8], text: &str, budget: &StepBudget, memory: &mut SearchMemory) -> Option<bool> {
    let Some(program) = Program::of(bytes) else { return Some(false) };
    let SearchMemory { slots, trail } = memory;
    slots.clear();
    slots.resize(program.slots.min(MAX_SLOTS), None);
    trail.clear();
    let most = MAX_STEPS.min(budget.left());
    let mut search = Search { program, text, slots, trail, steps: most, undecided: false };
    // Clearing the slots is charged.
    let found = search.spend(1 + program.slots.min(MAX_SLOTS) / A_STEP).and_then(|()| search.run(0, 0, 0)).is_some();
    budget.spend((most - search.steps) as usize);
    (!search.undecided).then_some(found)
}

struct Search<'a> {
    program: Program<'a>,
    text: &'a str,
    slots: &'a mut Vec<Option<usize>>,
    trail: &'a mut Vec<Trail>,
    /// Remaining steps.
    steps: u32,
    /// True if the search is undecided, which ends it at every level of nesting.
    undecided: bool,
}

/// An entry of the trail: something to undo or to try if the current path fails.
#[derive(Debug)]
enum Trail {
    Try { place: u32, at: usize },
    Restore { slot: u32, value: Option<usize> },
}

impl Search<'_> {
    /// Charges steps. `None` ends the search, because too few steps remain.
    #[inline(always)]
    fn spend(&mut self, steps: usize) -> Option<()> {
        match u32::try_from(steps).ok().and_then(|steps| self.steps.checked_sub(steps)) {
            Some(left) => {
                self.steps = left;
                Some(())
            }
            None => self.give_up(),
        }
    }

    /// Ends the search as undecided.
    #[cold]
    fn give_up<T>(&mut self) -> Option<T> {
        self.undecided = true;
        None
    }

    /// Runs from a place and a position to a `Match`, and returns the position there.
    fn run(&mut self, place: u32, at: usize, nesting: u32) -> Option<usize> {
        let floor = self.trail.len();
        let (mut place, mut at) = (place, at);
        loop {
            if self.trail.len() > MAX_TRAIL {
                return self.give_up();
            }
            self.spend(1)?;
            if let Some(next) = self.step(place, at, nesting) {
                match next {
                    Next::Go(next_place, next_at) => (place, at) = (next_place, next_at),
                    Next::Done => {
                        // Untried alternatives are dropped; saved positions stay, so that the caller can undo them.
                        self.spend((self.trail.len() - floor) / A_STEP + 1)?;
                        let mut kept = floor;
                        for index in floor..self.trail.len() {
                            if matches!(self.trail.get(index), Some(Trail::Restore { .. })) {
                                self.trail.swap(kept, index);
                                kept += 1;
                            }
                        }
                        self.trail.truncate(kept);
                        return Some(at);
                    }
                }
                continue;
            }
            if self.undecided {
                return None; // the search is undecided: no alternative is tried
            }
            (place, at) = self.back(floor)?;
        }
    }

    /// Returns the last untried alternative, and undoes everything after it.
    fn back(&mut self, floor: usize) -> Option<(u32, usize)> {
        while self.trail.len() > floor {
            match self.trail.pop()? {
                Trail::Try { place, at } => return Some((place, at)),
                Trail::Restore { slot, value } => self.put(slot, value),
            }
        }
        None
    }

    fn put(&mut self, slot: u32, value: Option<usize>) {
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = value;
        }
    }

    fn slot(&self, slot: u32) -> Option<usize> {
        self.slots.get(slot as usize).copied().flatten()
    }

    fn save(&mut self, slot: u32, at: usize) {
        self.trail.push(Trail::Restore { slot, value: self.slot(slot) });
        self.put(slot, Some(at));
    }

    fn after(&self, at: usize) -> Option<char> {
        self.text.get(at..)?.chars().next()
    }

    fn before(&self, at: usize) -> Option<char> {
        self.text.get(..at)?.chars().next_back()
    }

    fn step(&mut self, place: u32, at: usize, nesting: u32) -> Option<Next> {
        let go_on = |holds: bool| holds.then_some(Next::Go(place + 1, at));
        match self.program.at(place)? {
            Instruction::Match => Some(Next::Done),
            Instruction::Character(wanted) => {
                self.after(at).filter(|c| *c == wanted).map(|c| Next::Go(place + 1, at + c.len_utf8()))
            }
            Instruction::Set(first, count) => {
                self.spend(set_steps(count))?;
                self.after(at)
                    .filter(|c| self.program.set_has(first, count, *c))
                    .map(|c| Next::Go(place + 1, at + c.len_utf8()))
            }
            Instruction::Split(first, second) => {
                self.trail.push(Trail::Try { place: second, at });
                Some(Next::Go(first, at))
            }
            Instruction::Jump(next) => Some(Next::Go(next, at)),
            Instruction::Save(slot) => {
                self.save(slot, at);
                go_on(true)
            }
            Instruction::Advanced(slot, otherwise) => {
                if self.slot(slot) == Some(at) {
                    Some(Next::Go(otherwise, at))
                } else {
                    go_on(true)
                }
            }
            Instruction::Start => go_on(at == 0),
            Instruction::End => go_on(at == self.text.len()),
            Instruction::EndOrNewline => go_on(matches!(self.text.get(at..), Some("" | "\n"))),
            Instruction::LineStart => go_on(matches!(self.before(at), None | Some('\n'))),
            Instruction::LineEnd => go_on(matches!(self.after(at), None | Some('\n'))),
            Instruction::Boundary(first, count) => {
                self.spend(2 * set_steps(count))?;
                go_on(self.is_boundary(first, count, at))
            }
            // Python: an empty text has neither a boundary nor a place without one.
            Instruction::NoBoundary(first, count) => {
                self.spend(2 * set_steps(count))?;
                go_on(!self.text.is_empty() && !self.is_boundary(first, count, at))
            }
            Instruction::Backreference(slot, case) => {
                let (start, end) = (self.slot(slot)?, self.slot(slot.saturating_add(1))?);
                // Case-insensitive characters are compared one by one.
                self.spend(end.saturating_sub(start) / if case == Case::Exact { A_STEP } else { 1 })?;
                let length = again(self.text.get(start..end)?, self.text.get(at..)?, case)?;
                Some(Next::Go(place + 1, at + length))
            }
            Instruction::IfGroup(slot, otherwise) => {
                // A group that is entered once more has a new start and the end of the pass before: it has not matched.
                let span = self.slot(slot).zip(self.slot(slot.saturating_add(1)));
                let has_matched = span.is_some_and(|(start, end)| end >= start);
                Some(Next::Go(if has_matched { place + 1 } else { otherwise }, at))
            }
            Instruction::Ahead(end) => self.look(place, Some(at), nesting).then_some(Next::Go(end, at)),
            Instruction::NotAhead(end) => self.look_not(place, Some(at), nesting)?.then_some(Next::Go(end, at)),
            Instruction::Behind(end, width) => {
                self.spend(at.min(width as usize) / A_STEP)?;
                self.look(place, self.back_by(at, width), nesting).then_some(Next::Go(end, at))
            }
            Instruction::NotBehind(end, width) => {
                self.spend(at.min(width as usize) / A_STEP)?;
                self.look_not(place, self.back_by(at, width), nesting)?.then_some(Next::Go(end, at))
            }
            Instruction::Atomic(end) => self.part(place, at, nesting).map(|at| Next::Go(end, at)),
        }
    }

    /// Runs the part of the program after a place.
    fn part(&mut self, place: u32, at: usize, nesting: u32) -> Option<usize> {
        if nesting >= MAX_NESTING {
            return self.give_up();
        }
        self.run(place + 1, at, nesting + 1)
    }

    fn look(&mut self, place: u32, at: Option<usize>, nesting: u32) -> bool {
        at.is_some_and(|at| self.part(place, at, nesting).is_some())
    }

    /// Negates `look`, and undoes every saved position. `None` if the search is undecided.
    fn look_not(&mut self, place: u32, at: Option<usize>, nesting: u32) -> Option<bool> {
        let floor = self.trail.len();
        let found = self.look(place, at, nesting);
        while self.back(floor).is_some() {}
        (!self.undecided).then_some(!found)
    }

    fn back_by(&self, at: usize, width: u32) -> Option<usize> {
        let mut before = self.text.get(..at)?.chars();
        for _ in 0..width {
            before.next_back()?;
        }
        Some(before.as_str().len())
    }

    fn is_boundary(&self, first: u32, count: u32, at: usize) -> bool {
        let is_word = |c: Option<char>| c.is_some_and(|c| self.program.set_has(first, count, c));
        is_word(self.before(at)) != is_word(self.after(at))
    }
}

/// Returns the extra steps of a set test: binary search among many ranges. Unicode classes have some hundreds of
/// ranges.
fn set_steps(ranges: u32) -> usize {
    usize::from(ranges > 1024)
}

enum Next {
    Go(u32, usize),
    Done,
}

/// Returns the number of bytes of `text` that repeat `what`. `None` if it does not.
fn again(what: &str, text: &str, case: Case) -> Option<usize> {
    let lower = |c: char| c.to_lowercase().next();
    let is_equal = |a: char, b: char| match case {
        Case::Exact => a == b,
        Case::Ignored => lower(a) == lower(b),
        Case::IgnoredInAscii => a.eq_ignore_ascii_case(&b),
    };
    if case == Case::Exact {
        return text.starts_with(what).then_some(what.len());
    }
    let mut rest = text.chars();
    for wanted in what.chars() {
        if !is_equal(rest.next()?, wanted) {
            return None;
        }
    }
    Some(text.len() - rest.as_str().len())
}

#[cfg(test)]
mod tests {
    use super::super::{validate, write};
    use super::*;
    use crate::budget::work;
    use Instruction::{Ahead, Backreference, Character, End, Jump, Match, NotAhead, Save, Set, Split};

    fn search(instructions: &[Instruction], slots: u32, ranges: &[(char, char)], text: &str) -> (Option<bool>, u64) {
        let program = write(instructions, slots, ranges);
        validate(&program).unwrap();
        let budget = StepBudget::default();
        work::take();
        (matches(&program, text, &budget, &mut SearchMemory::default()), budget.taken())
    }

    fn run(instructions: &[Instruction], slots: u32, ranges: &[(char, char)], text: &str) -> bool {
        search(instructions, slots, ranges, text).0.unwrap()
    }

    #[test]
    fn back_reference_matches_text_of_its_group() {
        // (a+)b\1\Z
        let program =
            [Save(0), Character('a'), Split(1, 3), Save(1), Character('b'), Backreference(0, Case::Exact), End, Match];
        assert!(run(&program, 2, &[], "aabaa"));
        assert!(!run(&program, 2, &[], "aaba"));
    }

    #[test]
    fn search_of_example_reads_documented_instructions() {
        let code =
            [Save(0), Character('a'), Split(1, 3), Save(1), Character('b'), Backreference(0, Case::Exact), Match];
        let bytes = write(&code, 2, &[]);
        let SearchMemory { slots, trail } = &mut SearchMemory { slots: vec![None; 2], trail: Vec::new() };
        let program = Program::of(&bytes).unwrap();
        let mut search = Search { program, text: "aabaa", slots, trail, steps: 100, undecided: false };
        let (mut place, mut at) = (0, 0);
        let mut lines = String::new();
        loop {
            let next = search.step(place, at, 0);
            let fails = if next.is_none() { " fails" } else { "" };
            lines += &format!("//! place {place} at {at}: {:?}{fails}\n", code[place as usize]);
            match next {
                Some(Next::Go(next, after)) => (place, at) = (next, after),
                Some(Next::Done) => break,
                None => (place, at) = search.back(0).unwrap(),
            }
        }
        let documented = include_str!("../backtrack.rs");
        assert!(documented.contains(&format!("//! ```text\n{lines}//! ```\n")), "{lines}");
    }

    #[test]
    fn lower_case_has_documented_version_of_unicode() {
        let (major, minor, update) = char::UNICODE_VERSION;
        assert!(include_str!("../backtrack.rs").contains(&format!("Unicode {major}.{minor}.{update}")));
    }

    #[test]
    fn saved_position_of_part_stays_only_where_part_matches() {
        // A part that saves slot 0 and matches `a`, then a condition on the group of slots 0 and 1.
        let with = |part: Instruction, text| {
            let code = [
                Save(1),
                part,
                Save(0),
                Character('a'),
                Match,
                Instruction::IfGroup(0, 7),
                Match,
                Character('!'),
                Match,
            ];
            run(&code, 2, &[], text)
        };
        assert!(with(Ahead(5), "a"));
        assert!(with(Instruction::Atomic(5), "a"));
        assert!(!with(NotAhead(5), "a"), "the part matches");
        assert!(!with(NotAhead(5), "b"), "the part has taken back its position, so the group has not matched");
        assert!(with(NotAhead(5), "!"));
    }

    #[test]
    fn look_ahead_that_matches_consumes_nothing() {
        // (?=[a-z])(?!ab).
        let program =
            [Ahead(3), Set(0, 1), Match, NotAhead(7), Character('a'), Character('b'), Match, Set(0, 1), Match];
        assert!(run(&program, 0, &[('a', 'z')], "ac"));
        assert!(!run(&program, 0, &[('a', 'z')], "ab"));
        assert!(!run(&program, 0, &[('a', 'z')], "1"));
    }

    /// `(a|a)*b`, exponential for a backtracking engine.
    const EXPONENTIAL: [Instruction; 8] =
        [Split(1, 6), Split(2, 4), Character('a'), Jump(0), Character('a'), Jump(0), Character('b'), Match];

    #[test]
    fn search_beyond_its_steps_is_undecided() {
        let (found, steps) = search(&EXPONENTIAL, 0, &[], &"a".repeat(64));
        assert_eq!(found, None);
        // Each step reads an instruction.
        let done = work::take();
        assert!(done <= steps && done > u64::from(MAX_STEPS) / 2, "{done} steps, {steps} of them charged");
        assert!(run(&EXPONENTIAL, 0, &[], "aab"));
    }

    #[test]
    fn search_with_too_many_alternatives_is_undecided() {
        // Two alternatives per character: the search does not reach the last character.
        let (found, steps) = search(&EXPONENTIAL, 0, &[], &"a".repeat(MAX_TRAIL));
        assert_eq!(found, None);
        assert!(steps <= 4 * MAX_TRAIL as u64, "{steps}");
    }

    #[test]
    fn search_undecided_within_negation_is_undecided() {
        // `(?!(a|a)*b)`: the search ends within the look-around, where a failure would be a success.
        let place = |instruction| match instruction {
            Split(a, b) => Split(a + 1, b + 1),
            Jump(a) => Jump(a + 1),
            other => other,
        };
        let mut program = vec![NotAhead(9)];
        program.extend(EXPONENTIAL.map(place));
        program.push(Match);
        for length in [64, MAX_TRAIL] {
            assert_eq!(search(&program, 0, &[], &"a".repeat(length)).0, None, "{length} characters");
        }
    }

    #[test]
    fn instruction_over_many_characters_charges_more_steps() {
        let text = "a".repeat(2000);
        // `(a*?)\1$` compares half of the text at once.
        let whole = [Save(0), Split(4, 2), Character('a'), Jump(1), Save(1), Backreference(0, Case::Exact), End, Match];
        let (found, steps) = search(&whole, 2, &[], &text);
        assert_eq!(found, Some(true));
        assert!(steps > 1000 * 1000 / 2 / A_STEP as u64, "{steps}");
        let behind = [Instruction::Behind(2, 4000), Match, Match];
        let (_, steps) = search(&behind, 0, &[], "");
        assert!(steps < 10, "{steps}");
    }

    #[test]
    fn search_charges_only_its_steps_to_request() {
        let program = write(&EXPONENTIAL, 0, &[]);
        let (budget, mut memory) = (StepBudget::default(), SearchMemory::default());
        let text = "a".repeat(64);
        assert_eq!(matches(&program, &text, &budget, &mut memory), None);
        assert_eq!(matches(&program, "aab", &budget, &mut memory), Some(true));
        assert_eq!(matches(&program, &text, &budget, &mut memory), None);
        assert_eq!(matches(&program, "aab", &budget, &mut memory), None);
        assert!(budget.taken() <= u64::from(crate::MAX_STEPS) + 2, "{}", budget.taken());
    }
}
