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

mod program;
mod search;

pub(crate) use program::validate;
pub use program::{Case, Instruction, MAX_SLOTS, write};
pub use search::{MAX_NESTING, MAX_STEPS, MAX_TRAIL};
pub(crate) use search::{SearchMemory, matches};
