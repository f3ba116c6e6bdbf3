//! The state of a request: its context, and the scratch memory of each stage.

use crate::budget::StepBudget;
use crate::context::EvaluationContext;
use crate::{evaluate, segments};

/// The identity and the traits of one request, bound to the slots of one snapshot, and the memory of its evaluation.
/// Reuse it for the next request: after the first few requests it does not allocate memory any more.
#[derive(Debug, Default)]
pub struct RequestState {
    pub(super) context: EvaluationContext,
    pub(super) budget: StepBudget,
    pub(super) matching: segments::Scratch,
    pub(super) deciding: evaluate::Scratch,
}

impl RequestState {
    /// Clears the request, keeps the allocated buffers, and resets the budget.
    pub fn clear(&mut self) {
        self.budget.reset();
        self.forget();
    }

    /// Clears the identity and its traits within a request. Charged steps stay charged.
    pub fn forget(&mut self) {
        self.context.clear();
    }

    /// Number of steps of [`crate::MAX_STEPS`] that the last evaluation took, including the look-ups of traits. A
    /// number beyond the maximum means that the budget was exhausted.
    pub fn steps(&self) -> u64 {
        self.budget.taken()
    }
}
