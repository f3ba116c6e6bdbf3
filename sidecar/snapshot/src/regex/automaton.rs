//! Execution of a deterministic automaton (DFA) in place.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | number of states |
//! | 4 | number of classes, the last of which is the end of the text |
//! | 4 | start state, by its name |
//! | 4 | first matching state, by its name: every state from this one on matches |
//! | 256 | class of each byte |
//! | 2 × states × classes | the next state |
//!
//! The name of a state is the offset of its row in the table, which therefore has at most 2¹⁶ entries: a step is one
//! addition and one look-up. State 0 is the dead state. A search begins at the text's start and succeeds as soon as it
//! reaches a matching state, so it takes at most one step per byte. At the end of the text, it takes one more step, by the
//! class of the end. A start state that matches succeeds at once, and the dead state fails at once. The run of a combined
//! DFA does not take the step of the end: accept sets say what is found at the end. It does not stop at a matching state
//! either, but ends in the dead state.
//!
//! States times classes must be at most 2¹⁶, and the table must have exactly this number of entries. There are 1 to 257
//! classes, and no byte has the last one. The start state and every next state must exist. The first matching state must
//! exist and not be state 0, or be the offset after the last row, if no state matches. A reader refuses other automata.

const HEADER: usize = 16 + 256;
/// Maximum number of entries: the number of possible names.
const MOST_ENTRIES: u64 = 1 << 16;

/// Returns true if a prefix of the text matches.
pub(crate) fn matches(program: &[u8], text: &[u8]) -> bool {
    run(program, text).unwrap_or(false)
}

fn run(program: &[u8], text: &[u8]) -> Option<bool> {
    let [_, classes, start, accepting] = header(program)?;
    let (class_of, table) = program.get(16..)?.split_first_chunk::<256>()?;
    let table = table.as_chunks::<2>().0;
    let mut state = start;
    if state >= accepting {
        return Some(true);
    }
    for byte in text {
        #[cfg(test)]
        crate::budget::work::add(1);
        state = next(table, state, usize::from(*class_of.get(usize::from(*byte))?))?;
        if state == 0 {
            return Some(false);
        }
        if state >= accepting {
            return Some(true);
        }
    }
    let end = classes.checked_sub(1)?;
    Some(next(table, state, end as usize)? >= accepting)
}

/// Runs over a whole text and passes the number of each matching state to `show`, including the first and the last one.
/// It ends early in the dead state. Returns the number of the last state.
#[inline(always)]
pub(crate) fn walk(program: &[u8], text: &[u8], mut show: impl FnMut(u32)) -> Option<u32> {
    let [_, classes, start, accepting] = header(program)?;
    let (class_of, table) = program.get(16..)?.split_first_chunk::<256>()?;
    let table = table.as_chunks::<2>().0;
    let mut state = start;
    if state >= accepting {
        show(state.checked_div(classes)?);
    }
    for byte in text {
        state = next(table, state, usize::from(*class_of.get(usize::from(*byte))?))?;
        if state == 0 {
            break;
        }
        if state >= accepting {
            show(state.checked_div(classes)?);
        }
    }
    state.checked_div(classes)
}

#[inline(always)]
fn next(table: &[[u8; 2]], state: u32, class: usize) -> Option<u32> {
    let next = table.get(state as usize + class)?;
    Some(u32::from(u16::from_le_bytes(*next)))
}

/// A step-by-step execution, for building combined automata.
pub(crate) struct Walk<'a> {
    class_of: &'a [u8; 256],
    table: &'a [[u8; 2]],
    classes: u32,
    start: u32,
    accepting: u32,
}

impl<'a> Walk<'a> {
    pub(crate) fn of(program: &'a [u8]) -> Option<Self> {
        let [_, classes, start, accepting] = header(program)?;
        let (class_of, table) = program.get(16..)?.split_first_chunk::<256>()?;
        Some(Self { class_of, table: table.as_chunks::<2>().0, classes, start, accepting })
    }

    /// Returns the start state. Returns the dead state and true if every text matches.
    pub(crate) fn start(&self) -> (u32, bool) {
        self.settled(self.start)
    }

    pub(crate) fn class(&self, byte: u8) -> u32 {
        self.class_of.get(usize::from(byte)).copied().map_or(0, u32::from)
    }

    /// Returns the next state. Returns the dead state and true if the text matches, whatever follows.
    pub(crate) fn step(&self, state: u32, byte: u8) -> (u32, bool) {
        self.settled(self.next(state, self.class(byte)))
    }

    /// Returns true if a text that ends in this state matches.
    pub(crate) fn matches_at_end(&self, state: u32) -> bool {
        self.next(state, self.classes.saturating_sub(1)) >= self.accepting
    }

    fn next(&self, state: u32, class: u32) -> u32 {
        let place = state as usize + class as usize;
        self.table.get(place).map_or(0, |next| u32::from(u16::from_le_bytes(*next)))
    }

    fn settled(&self, state: u32) -> (u32, bool) {
        if state >= self.accepting { (0, true) } else { (state, false) }
    }
}

fn header(program: &[u8]) -> Option<[u32; 4]> {
    let words = program.get(..16)?.as_chunks::<4>().0;
    let word = |index: usize| words.get(index).map(|bytes| u32::from_le_bytes(*bytes));
    Some([word(0)?, word(1)?, word(2)?, word(3)?])
}

/// Validates a program, and returns its problem, if any.
pub(crate) fn validate(program: &[u8]) -> Result<(), &'static str> {
    let [states, classes, start, accepting] = header(program).ok_or("it has no header")?;
    let rest = program.get(16..).and_then(|rest| rest.split_first_chunk::<256>());
    let (class_of, table) = rest.ok_or("it has no classes")?;
    let entries = u64::from(states) * u64::from(classes);
    if entries > MOST_ENTRIES || classes == 0 || classes > 257 || entries * 2 != table.len() as u64 {
        return Err("its table is not as large as it says");
    }
    let exists = |state: u32| u64::from(state) < entries && state.is_multiple_of(classes);
    if class_of.iter().any(|class| u32::from(*class) >= classes - 1) {
        return Err("a byte has no class");
    }
    if !exists(start) || !(exists(accepting) && accepting > 0 || u64::from(accepting) == entries) {
        return Err("its start or its matching states do not exist");
    }
    if !table.as_chunks::<2>().0.iter().all(|next| exists(u32::from(u16::from_le_bytes(*next)))) {
        return Err("it goes to a state that does not exist");
    }
    Ok(())
}

/// Returns the length in bytes of an automaton of so many states and classes, the end of the text included.
#[must_use]
pub fn size(states: usize, classes: usize) -> usize {
    HEADER.saturating_add(states.saturating_mul(classes).saturating_mul(2))
}

/// Writes an automaton.
///
/// `next` has, for each state, the next state for each class; the last class is the end of the text. State 0 must lead
/// only to itself, and every state from `accepting` on matches. States times classes are at most 2¹⁶.
#[must_use]
pub fn write(classes: &[u8; 256], start: u32, accepting: u32, next: &[Vec<u16>]) -> Vec<u8> {
    let width = next.first().map_or(0, Vec::len);
    let row = |state: usize| state.saturating_mul(width);
    let mut program = Vec::with_capacity(size(next.len(), width));
    for word in [next.len(), width, row(start as usize), row(accepting as usize)] {
        program.extend_from_slice(&u32::try_from(word).unwrap_or(u32::MAX).to_le_bytes());
    }
    program.extend_from_slice(classes);
    // A name that does not fit means that the table has too many entries; reading such a program refuses it.
    let name = |state: &u16| u16::try_from(row(usize::from(*state))).unwrap_or(u16::MAX);
    program.extend(next.iter().flatten().flat_map(|state| name(state).to_le_bytes()));
    program
}
