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
//! | 4 | number of slots for positions: two for each group, its start and its end, and one for each repetition whose part can be empty |
//! | 12 × instructions | operation, first and second operand. The number of an operation is its place in [`Instruction`], from 0; that of a rule of case, its place in [`Case`] |
//! | 8 × … | ranges of code points (first and last), to which sets refer by first row and count. The ranges of a set are sorted and disjoint |
//!
//! A program must have at most [`MAX_SLOTS`] slots. Every place, slot and range of an operand must exist, a group must have
//! both slots, and the place of a look-around or an atomic group must be after its own. A reader refuses other programs. A
//! search that goes to a place after the last instruction fails there.
//!
//! # Search
//!
//! A search has a place, a position in bytes, the saved positions (none at first), and a *trail* of entries that are taken
//! back in reverse order. Each step runs the instruction at the place. `Split` continues at its first place, and adds an
//! entry for its second place and the position. `Save` adds an entry with the old content of the slot. If an instruction
//! does not match, the search takes entries back: one of `Save` restores the slot, one of `Split` continues at its place
//! and position. The search fails when no entry is left, and succeeds at `Match`.
//!
//! Look-around and atomic groups run a *part* of the program: a search of its own, from the next instruction to the first
//! `Match` that it reaches. It takes back only entries of its own.
//!
//! | instruction | the part matches | the part fails |
//! |---|---|---|
//! | `Ahead`, `Behind` | continues at the place, at the position before the part | fails |
//! | `NotAhead`, `NotBehind` | fails | continues at the place, at the position before the part |
//! | `Atomic` | continues at the place, at the position where the part ended | fails |
//!
//! A part that fails has taken back all of its saved positions. Where `Ahead`, `Behind` and `Atomic` continue, the saved
//! positions of the part stay, and so do their entries in the trail; entries of its `Split` instructions are dropped.
//! `NotAhead` and `NotBehind` keep nothing. `Behind` and `NotBehind` go back their number of characters first; if the text
//! before is shorter, the part fails.
//!
//! A back-reference fails if one of the slots of its group has no position, or if the end is before the start. Rule 1 of
//! case compares the first character of the lower-case forms of both characters, as in Unicode 17.0.0
//! ([`char::to_lowercase`]).
//!
//! ## Example
//!
//! `(a+)b\1` is a program of two slots. Its search in `aabaa` reads these instructions:
//!
//! ```text
//! place 0 at 0: Save(0)
//! place 1 at 0: Character('a')
//! place 2 at 1: Split(1, 3)
//! place 1 at 1: Character('a')
//! place 2 at 2: Split(1, 3)
//! place 1 at 2: Character('a') fails
//! place 3 at 2: Save(1)
//! place 4 at 2: Character('b')
//! place 5 at 3: Backreference(0, Exact)
//! place 6 at 5: Match
//! ```
//!
//! The `Split` at position 2 added the entry that the failure takes back: place 3, position 2. The `Split` at position 1
//! added one that is never taken back. The back-reference compares `aa`, from slot 0 to slot 1, with the text from 3 on.

mod program;
mod search;

pub(crate) use program::validate;
pub use program::{Case, Instruction, MAX_SLOTS, write};
pub use search::{MAX_NESTING, MAX_STEPS, MAX_TRAIL};
pub(crate) use search::{SearchMemory, matches};
