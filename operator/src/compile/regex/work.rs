//! Work budget in counted steps instead of time, so that the outcome is the same on every machine.

/// Remaining steps. One step takes a few nanoseconds: a character read, a range copied, a state visited.
#[derive(Debug)]
pub(super) struct Work {
    left: u64,
}

/// Error: the budget has too few steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spent;

impl Work {
    pub(super) fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Takes steps from the budget.
    ///
    /// # Errors
    /// The budget has too few steps. It is empty then.
    pub(super) fn take(&mut self, steps: usize) -> Result<(), Spent> {
        let left = self.left.checked_sub(steps as u64);
        self.left = left.unwrap_or(0);
        left.map(drop).ok_or(Spent)
    }

    /// Runs `job` with a budget of at most `most` steps that leaves at least `reserve` steps in this one.
    pub(super) fn lend<T>(&mut self, most: u64, reserve: u64, job: impl FnOnce(&mut Self) -> T) -> T {
        let lent = most.min(self.left.saturating_sub(reserve));
        let mut work = Self { left: lent };
        let done = job(&mut work);
        self.left -= lent - work.left;
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
        let mut work = Work::new(100);
        assert_eq!(work.lend(50, 70, |work| (work.take(30), work.take(1))), (Ok(()), Err(Spent)));
        assert_eq!(work.left(), 70);
        assert_eq!(work.lend(50, 70, |work| work.take(1)), Err(Spent));
        assert_eq!((work.take(70), work.take(1)), (Ok(()), Err(Spent)));
    }
}
