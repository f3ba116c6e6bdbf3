//! The budget of one request: limits the work of its evaluation for every snapshot and every request.
//!
//! Every part of an evaluation that takes more than constant work charges the budget in steps. A step is one step of a
//! backtracking search, or other work that takes about as long. Work that is linear in the snapshot alone, such as the
//! pass over all features, is bounded by the size of the files and is not charged.
//!
//! The result of an exhausted budget is the same everywhere: **an undecided segment does not match**, even if its rules
//! are negated, and an undecided split gives its control value. Identity overrides apply, and a request always gets an
//! answer.

use std::cell::Cell;

use crate::values::rows::Span;

/// Maximum number of steps of one request over all of its conditions: below 20 ms of one core in the worst known case.
pub const MAX_STEPS: u32 = 1 << 19;

/// Number of bytes per step in a search: an automaton, a substring search, a hash, a parser.
pub(crate) const BYTES_A_STEP: usize = 4;

/// Charge for the look-ups of one value, in bytes that take as long to scan: among the breakpoints of its type and in a
/// hash table, or among the results of flags.
pub(crate) const LOOK_UPS: usize = 32;

/// Number of hashed bytes per step, and number of steps that each hash takes in addition.
const HASHED_BYTES_A_STEP: usize = 4;
const STEPS_A_HASH: usize = 16;

/// Number of compared or copied bytes per step.
const COPIED_BYTES_A_STEP: usize = 128;

/// The remaining steps of a request.
///
/// The fields are cells, so that work is charged where it is done, while the texts that it reads are borrowed.
#[derive(Debug)]
pub struct StepBudget {
    /// Remaining steps. Below zero: the budget is exhausted, until the next evaluation.
    left: Cell<i64>,
    /// Steps taken before the evaluation, to find traits by their names.
    lookups: Cell<i64>,
    /// True if the current condition is undecided, so that its segment does not match.
    interrupted: Cell<bool>,
    /// The first undecided work, if any.
    overrun: Cell<Option<Undecided>>,
}

/// Undecided work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undecided {
    /// The program of a segment, by its entry.
    Program(u32),
    /// Segments of a block of the index, or a split.
    Others,
}

impl Default for StepBudget {
    fn default() -> Self {
        Self {
            left: Cell::new(i64::from(MAX_STEPS)),
            lookups: Cell::new(0),
            interrupted: Cell::new(false),
            overrun: Cell::new(None),
        }
    }
}

impl StepBudget {
    /// Starts a request with a full budget.
    pub(crate) fn reset(&self) {
        self.lookups.set(0);
        self.start();
    }

    /// Starts an evaluation of the request, with the budget that the look-ups of its traits did not use.
    pub(crate) fn start(&self) {
        self.left.set(i64::from(MAX_STEPS) - self.lookups.get());
        self.interrupted.set(false);
        self.overrun.set(None);
    }

    /// Charges steps. Returns false if the budget is exhausted.
    #[inline(always)]
    pub(crate) fn spend(&self, steps: usize) -> bool {
        let left = self.left.get() - steps as i64;
        self.left.set(left);
        left >= 0 || self.exhausted()
    }

    /// Marks the budget as exhausted. The work that was charged last is not done.
    #[cold]
    fn exhausted(&self) -> bool {
        self.left.set(-1);
        false
    }

    /// Charges a search through this number of bytes.
    #[inline(always)]
    pub(crate) fn scan(&self, bytes: usize) -> bool {
        self.spend(1 + bytes / BYTES_A_STEP)
    }

    /// Charges a hash of a seed and of this number of bytes, for a percentage.
    #[inline(always)]
    pub(crate) fn hash(&self, seed: Span, bytes: usize) -> bool {
        self.spend(STEPS_A_HASH + (seed.length as usize + bytes) / HASHED_BYTES_A_STEP)
    }

    /// Charges a comparison or a copy of this number of bytes.
    #[inline(always)]
    pub(crate) fn copy(&self, bytes: usize) -> bool {
        self.spend(1 + bytes / COPIED_BYTES_A_STEP)
    }

    /// Charges the look-up of a trait, before the evaluation starts.
    pub(crate) fn spend_on_lookup(&self, steps: usize) -> bool {
        self.lookups.set(self.lookups.get() + steps as i64);
        self.lookups.get() <= i64::from(MAX_STEPS)
    }

    /// Returns the remaining steps, or zero.
    pub(crate) fn left(&self) -> u32 {
        u32::try_from(self.left.get()).unwrap_or(0)
    }

    /// Marks the current condition as undecided.
    pub(crate) fn interrupt(&self) {
        self.interrupted.set(true);
    }

    /// Returns true if a condition was undecided, and resets the mark.
    #[inline(always)]
    pub(crate) fn was_interrupted(&self) -> bool {
        self.interrupted.get() && self.interrupted.take()
    }

    /// Records undecided work. The first record counts.
    #[cold]
    pub(crate) fn note(&self, undecided: Undecided) {
        if self.overrun.get().is_none() {
            self.overrun.set(Some(undecided));
        }
    }

    /// Returns the first undecided work, if any.
    #[inline(always)]
    pub(crate) fn overrun(&self) -> Option<Undecided> {
        self.overrun.get()
    }

    /// Returns the steps that the evaluation took, including the look-ups of its traits.
    pub(crate) fn taken(&self) -> u64 {
        u64::try_from(i64::from(MAX_STEPS) - self.left.get()).unwrap_or(0)
    }
}

/// Counts work in tests, apart from the budget: visits of rows (a step of a search visits
/// its instruction), bytes that automata read, bytes of hashed values, and characters of
/// compared names. The counts belong to the thread of the test.
#[cfg(test)]
pub(crate) mod work {
    use std::cell::Cell;

    thread_local! {
        static DONE: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts units of work.
    pub(crate) fn add(units: usize) {
        DONE.with(|done| done.set(done.get() + units as u64));
    }

    /// Returns the work since the previous call.
    pub(crate) fn take() -> u64 {
        DONE.take()
    }
}

#[cfg(test)]
mod tests;
