//! A budget in counted steps instead of time, so that the outcome is the same on every machine.

/// Remaining steps. One step takes a few nanoseconds: a character read, a range copied, a state visited.
#[derive(Debug)]
pub(super) struct StepBudget {
    left: u64,
}

/// Error: the budget has too few steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutOfSteps;

impl StepBudget {
    pub(super) fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Takes steps from the budget.
    ///
    /// # Errors
    /// The budget has too few steps. It is empty then.
    pub(super) fn take(&mut self, steps: usize) -> Result<(), OutOfSteps> {
        let left = self.left.checked_sub(steps as u64);
        self.left = left.unwrap_or(0);
        left.map(drop).ok_or(OutOfSteps)
    }

    /// Runs `job` with a budget of at most `most` steps that leaves at least `reserve` steps in this one.
    pub(super) fn with_part<T>(&mut self, most: u64, reserve: u64, job: impl FnOnce(&mut Self) -> T) -> T {
        let part = most.min(self.left.saturating_sub(reserve));
        let mut budget = Self { left: part };
        let done = job(&mut budget);
        self.left -= part - budget.left;
        done
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> u64 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_steps_leave_the_reserve() {
        let mut budget = StepBudget::new(100);
        assert_eq!(budget.with_part(50, 70, |budget| (budget.take(30), budget.take(1))), (Ok(()), Err(OutOfSteps)));
        assert_eq!(budget.left(), 70);
        assert_eq!(budget.with_part(50, 70, |budget| budget.take(1)), Err(OutOfSteps));
        assert_eq!((budget.take(70), budget.take(1)), (Ok(()), Err(OutOfSteps)));
    }
}
