//! The budget of one request: how much work its evaluation may take, whatever the snapshot and the request hold.
//!
//! Every part of an evaluation whose work is not a small constant charges the budget, in steps: one step of a backtracking
//! search, or anything else that takes about as long. Work that is linear in the
//! snapshot alone, such as the pass over all features, is bounded by the size of its files and is not charged.
//!
//! What happens beyond the budget is the same everywhere: **a segment that is not decided yet does not match**, whether its
//! rules are negated or not, and a split that is not decided yet gives its control value. Identity overrides apply, and
//! there is always an answer.

use std::cell::Cell;

use crate::values::rows::Span;

/// The steps that one request may take over all of its conditions: 8 ms of one core in the worst case that is known.
pub const MAX_STEPS: u32 = 1 << 19;

/// How many bytes one step passes over in a search: an automaton, a substring search, a hash, a parser.
pub(crate) const BYTES_A_STEP: usize = 4;

/// How many bytes one step hashes, and how many steps each hash takes beside.
const HASHED_BYTES_A_STEP: usize = 4;
const STEPS_A_HASH: usize = 16;

/// How many bytes one step compares or copies.
const COPIED_BYTES_A_STEP: usize = 128;

/// The steps that are left to a request.
///
/// Cells, so that work is charged where it is done, while the texts that it reads are borrowed.
#[derive(Debug)]
pub struct Budget {
    /// Below zero: the budget is used up, until the next evaluation.
    left: Cell<i64>,
    /// The steps that were taken to find traits by their names, before the evaluation.
    lookups: Cell<i64>,
    /// The condition that is being decided is not: its segment does not match.
    interrupted: Cell<bool>,
    /// Something was left undecided.
    overrun: Cell<Option<Undecided>>,
}

/// What was left undecided first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undecided {
    /// The program of a segment, by its entry.
    Program(u32),
    /// Segments of a block of the index, or a split.
    Others,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            left: Cell::new(i64::from(MAX_STEPS)),
            lookups: Cell::new(0),
            interrupted: Cell::new(false),
            overrun: Cell::new(None),
        }
    }
}

impl Budget {
    /// Starts a request.
    pub(crate) fn reset(&self) {
        self.lookups.set(0);
        self.start();
    }

    /// Starts an evaluation of the request, which has what its traits left.
    pub(crate) fn start(&self) {
        self.left.set(i64::from(MAX_STEPS) - self.lookups.get());
        self.interrupted.set(false);
        self.overrun.set(None);
    }

    /// Charges steps, and tells whether the budget has them.
    #[inline(always)]
    pub(crate) fn spend(&self, steps: usize) -> bool {
        let left = self.left.get() - steps as i64;
        self.left.set(left);
        left >= 0 || self.exhausted()
    }

    /// The budget is used up, and stays so. What was charged last is not done.
    #[cold]
    fn exhausted(&self) -> bool {
        self.left.set(-1);
        false
    }

    /// Charges the search through so many bytes.
    #[inline(always)]
    pub(crate) fn scan(&self, bytes: usize) -> bool {
        self.spend(1 + bytes / BYTES_A_STEP)
    }

    /// Charges a hash of a seed and of so many bytes, for a percentage.
    #[inline(always)]
    pub(crate) fn hash(&self, seed: Span, bytes: usize) -> bool {
        self.spend(STEPS_A_HASH + (seed.length as usize + bytes) / HASHED_BYTES_A_STEP)
    }

    /// Charges the comparison or the copy of so many bytes.
    #[inline(always)]
    pub(crate) fn copy(&self, bytes: usize) -> bool {
        self.spend(1 + bytes / COPIED_BYTES_A_STEP)
    }

    /// Charges the look-up of a trait, before the evaluation starts.
    pub(crate) fn spend_on_lookup(&self, steps: usize) -> bool {
        self.lookups.set(self.lookups.get() + steps as i64);
        self.lookups.get() <= i64::from(MAX_STEPS)
    }

    /// The steps that are left, at least none.
    pub(crate) fn left(&self) -> u32 {
        u32::try_from(self.left.get()).unwrap_or(0)
    }

    /// Leaves the condition that is being decided undecided.
    pub(crate) fn interrupt(&self) {
        self.interrupted.set(true);
    }

    /// Tells once whether a condition was left undecided.
    #[inline(always)]
    pub(crate) fn was_interrupted(&self) -> bool {
        self.interrupted.get() && self.interrupted.take()
    }

    /// Notes what was left undecided; the first one counts.
    #[cold]
    pub(crate) fn note(&self, undecided: Undecided) {
        if self.overrun.get().is_none() {
            self.overrun.set(Some(undecided));
        }
    }

    /// What was left undecided first, if anything was.
    #[inline(always)]
    pub(crate) fn overrun(&self) -> Option<Undecided> {
        self.overrun.get()
    }

    /// The steps that the evaluation took, the look-ups of its traits included.
    pub(crate) fn taken(&self) -> u64 {
        u64::try_from(i64::from(MAX_STEPS) - self.left.get()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
