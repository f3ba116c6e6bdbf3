//! Execution of regular expressions that no automaton can express: look-around, back-references, Unicode word
//! boundaries.
//!
//! The search backtracks with Python's preferences, from the text's start. It ends undecided when it has taken
//! [`MAX_STEPS`], when its trail has [`MAX_TRAIL`] entries, or when the budget of its request ([`crate::MAX_STEPS`]) is
//! used up. The segment of an undecided search does not match.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | number of instructions |
//! | 4 | number of slots for positions |
//! | 12 × instructions | operation, first and second operand |
//! | 8 × … | ranges of code points, to which sets refer by first row and count |

use crate::budget::Budget;
use crate::values::rows::{Row, Table};

/// Maximum number of steps of one search: half of the steps of its request, so that one pattern does not use up the
/// budget of all others.
pub const MAX_STEPS: u32 = crate::MAX_STEPS / 2;

/// Maximum number of entries in the trail of one search: 768 KiB of memory.
pub const MAX_TRAIL: usize = 1 << 15;

/// Number of characters, saved positions or bytes per charged step, for instructions that pass over several.
const A_STEP: usize = 8;

/// Maximum nesting of look-around and atomic groups.
pub const MAX_NESTING: u32 = 32;

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
    /// Matches where [`Self::Boundary`] does not (first row, count).
    NoBoundary(u32, u32),
    /// Matches the text of a group again (first slot of the group; true: ignoring case).
    Backreference(u32, bool),
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
            Self::Backreference(a, ignore_case) => (14, a, u32::from(ignore_case)),
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
            14 => Self::Backreference(a, b != 0),
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
struct Program<'a> {
    instructions: Table<'a, Triple, 12>,
    ranges: Table<'a, Range, 8>,
    slots: usize,
}

impl<'a> Program<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let [a, b, c, d, e, f, g, h] = *head;
        let count = u32::from_le_bytes([a, b, c, d]) as usize;
        let slots = u32::from_le_bytes([e, f, g, h]) as usize;
        let (instructions, ranges) = rest.split_at_checked(count.checked_mul(12)?)?;
        Some(Self { instructions: Table::new(instructions), ranges: Table::new(ranges), slots })
    }

    fn at(&self, place: u32) -> Option<Instruction> {
        let Triple { operation, a, b } = self.instructions.get(place)?;
        Instruction::decode(operation, a, b)
    }

    fn set_has(&self, first: u32, count: u32, character: char) -> bool {
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

/// The memory of searches, reused by the next one.
#[derive(Debug, Default)]
pub(crate) struct Room {
    slots: Vec<Option<usize>>,
    trail: Vec<Trail>,
}

/// Returns true if a prefix of the text matches the program. `None` if the search is undecided.
pub(crate) fn matches(bytes: &[u8], text: &str, budget: &Budget, room: &mut Room) -> Option<bool> {
    let Some(program) = Program::of(bytes) else { return Some(false) };
    let Room { slots, trail } = room;
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
            Instruction::Backreference(slot, ignore_case) => {
                let (start, end) = (self.slot(slot)?, self.slot(slot.saturating_add(1))?);
                // Case-insensitive characters are compared one by one.
                self.spend(end.saturating_sub(start) / if ignore_case { 1 } else { A_STEP })?;
                let length = again(self.text.get(start..end)?, self.text.get(at..)?, ignore_case)?;
                Some(Next::Go(place + 1, at + length))
            }
            Instruction::IfGroup(slot, otherwise) => {
                let has_matched = self.slot(slot).is_some() && self.slot(slot.saturating_add(1)).is_some();
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
fn again(what: &str, text: &str, ignore_case: bool) -> Option<usize> {
    if !ignore_case {
        return text.starts_with(what).then_some(what.len());
    }
    let lower = |c: char| c.to_lowercase().next();
    let mut rest = text.chars();
    for wanted in what.chars() {
        if lower(rest.next()?) != lower(wanted) {
            return None;
        }
    }
    Some(text.len() - rest.as_str().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Instruction::{Ahead, Backreference, Character, End, Jump, Match, NotAhead, Save, Set, Split};

    fn search(instructions: &[Instruction], slots: u32, ranges: &[(char, char)], text: &str) -> (Option<bool>, u64) {
        let program = write(instructions, slots, ranges);
        validate(&program).unwrap();
        let budget = Budget::default();
        (matches(&program, text, &budget, &mut Room::default()), budget.taken())
    }

    fn run(instructions: &[Instruction], slots: u32, ranges: &[(char, char)], text: &str) -> bool {
        search(instructions, slots, ranges, text).0.unwrap()
    }

    #[test]
    fn a_back_reference_repeats_what_its_group_matched() {
        // (a+)b\1\Z
        let program =
            [Save(0), Character('a'), Split(1, 3), Save(1), Character('b'), Backreference(0, false), End, Match];
        assert!(run(&program, 2, &[], "aabaa"));
        assert!(!run(&program, 2, &[], "aaba"));
    }

    #[test]
    fn looking_ahead_consumes_nothing() {
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
        assert!(steps <= u64::from(MAX_STEPS) + 1, "{steps}");
        assert!(run(&EXPONENTIAL, 0, &[], "aab"));
    }

    #[test]
    fn search_that_keeps_too_many_ways_open_is_undecided_at_once() {
        // Two alternatives per character: the search does not reach the last character.
        let (found, steps) = search(&EXPONENTIAL, 0, &[], &"a".repeat(MAX_TRAIL));
        assert_eq!(found, None);
        assert!(steps <= 4 * MAX_TRAIL as u64, "{steps}");
    }

    #[test]
    fn search_that_is_undecided_within_a_negation_is_undecided() {
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
    fn steps_are_charged_for_what_one_instruction_passes_over() {
        let text = "a".repeat(2000);
        // `(a*?)\1$` compares half of the text at once.
        let whole = [Save(0), Split(4, 2), Character('a'), Jump(1), Save(1), Backreference(0, false), End, Match];
        let (found, steps) = search(&whole, 2, &[], &text);
        assert_eq!(found, Some(true));
        assert!(steps > 1000 * 1000 / 2 / A_STEP as u64, "{steps}");
        let behind = [Instruction::Behind(2, 4000), Match, Match];
        let (_, steps) = search(&behind, 0, &[], "");
        assert!(steps < 10, "{steps}");
    }

    #[test]
    fn search_leaves_the_budget_of_its_request_what_it_did_not_take() {
        let program = write(&EXPONENTIAL, 0, &[]);
        let (budget, mut room) = (Budget::default(), Room::default());
        let text = "a".repeat(64);
        assert_eq!(matches(&program, &text, &budget, &mut room), None);
        assert_eq!(matches(&program, "aab", &budget, &mut room), Some(true));
        assert_eq!(matches(&program, &text, &budget, &mut room), None);
        assert_eq!(matches(&program, "aab", &budget, &mut room), None);
        assert!(budget.taken() <= u64::from(crate::MAX_STEPS) + 2, "{}", budget.taken());
    }

    #[test]
    fn hostile_programs_are_refused() {
        let good = write(&[Split(0, 1), Match], 0, &[]);
        assert!(validate(&good).is_ok());
        assert!(validate(good.get(..9).unwrap()).is_err());
        for bad in [Split(9, 0), Jump(2), Save(0), Set(0, 1), Ahead(0), Backreference(u32::MAX, false)] {
            assert!(validate(&write(&[bad, Match], 0, &[])).is_err(), "{bad:?}");
        }
    }
}
