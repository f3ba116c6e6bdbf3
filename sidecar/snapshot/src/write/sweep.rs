//! A sweep over the positions of a scale computes the candidates at each position. It computes only the changes between
//! positions, so that many questions about many values cost their sum and not their product.

use super::block::Conjuncts;
use super::conjuncts::{Family, Question};
use crate::format::layout::BLOCK;

/// The conjuncts of a block, at one position of a scale of `P`.
pub(super) struct Sweep<P> {
    conjuncts: Vec<State>,
    /// Number of conjuncts that do not hold, by segment.
    failing: [u32; BLOCK],
    /// Candidates: the segments whose conjuncts all hold.
    pub(super) left: u64,
    /// Changes sorted by position: the conjunct, and the change of the number of its questions that hold from there on.
    turns: Vec<(P, u32, i32)>,
    next: usize,
    #[cfg(test)]
    changes: usize,
}

struct State {
    segment: usize,
    negated: bool,
    /// Number of questions that hold.
    holding: i32,
}

/// The changes of one conjunct.
pub(super) struct Turns<'a, P> {
    turns: &'a mut Vec<(P, u32, i32)>,
    conjunct: u32,
}

impl<P> Turns<'_, P> {
    /// Records a change of an answer at a position.
    pub(super) fn turn(&mut self, place: P, from: bool, to: bool) {
        if from != to {
            self.turns.push((place, self.conjunct, i32::from(to) - i32::from(from)));
        }
    }
}

impl<P: Ord + Copy> Sweep<P> {
    /// Starts before the first position. `first` returns the answer of a question there, and records its changes.
    pub(super) fn new<'a>(
        conjuncts: &Conjuncts<'a>,
        families: &[Family],
        first: impl Fn(&'a Question<'a>, &mut Turns<'_, P>) -> bool,
    ) -> Self {
        let mut sweep = Self {
            conjuncts: Vec::new(),
            failing: [0; BLOCK],
            left: u64::MAX,
            turns: Vec::new(),
            next: 0,
            #[cfg(test)]
            changes: 0,
        };
        for ((bit, conjunct), number) in conjuncts.of(families).zip(0..) {
            let mut turns = Turns { turns: &mut sweep.turns, conjunct: number };
            let holding = conjunct.questions.iter().map(|question| i32::from(first(question, &mut turns))).sum();
            let state = State { segment: bit.trailing_zeros() as usize, negated: conjunct.negated, holding };
            if !state.holds() {
                sweep.fail(state.segment, true);
            }
            sweep.conjuncts.push(state);
        }
        sweep.turns.sort_unstable_by_key(|(place, conjunct, _)| (*place, *conjunct));
        sweep
    }

    /// Advances to a position and returns the candidates there. Positions must ascend.
    pub(super) fn advance(&mut self, place: P) -> u64 {
        while let Some((next, conjunct, change)) = self.turns.get(self.next).copied()
            && next <= place
        {
            self.change(conjunct, change);
            self.next += 1;
        }
        self.left
    }

    /// Returns the candidates at a single position, if changes apply to their own position only.
    pub(super) fn at(&mut self, place: P) -> u64 {
        let start = self.turns.partition_point(|(other, ..)| *other < place);
        let turns =
            |sweep: &Self, step: usize| sweep.turns.get(start + step).copied().filter(|(other, ..)| *other == place);
        let mut steps = 0;
        while let Some((_, conjunct, change)) = turns(self, steps) {
            self.change(conjunct, change);
            steps += 1;
        }
        let left = self.left;
        for step in 0..steps {
            if let Some((_, conjunct, change)) = turns(self, step) {
                self.change(conjunct, -change);
            }
        }
        left
    }

    fn change(&mut self, conjunct: u32, change: i32) {
        let Some(state) = self.conjuncts.get_mut(conjunct as usize) else { return };
        #[cfg(test)]
        {
            self.changes += 1;
        }
        let held = state.holds();
        state.holding += change;
        let (holds, segment) = (state.holds(), state.segment);
        if held != holds {
            self.fail(segment, !holds);
        }
    }

    /// Counts one failing conjunct of a segment more or less.
    fn fail(&mut self, segment: usize, one_more: bool) {
        let Some(count) = self.failing.get_mut(segment) else { return };
        *count = if one_more { *count + 1 } else { count.saturating_sub(1) };
        match *count {
            0 => self.left |= 1 << segment,
            _ => self.left &= !(1 << segment),
        }
    }
}

impl State {
    fn holds(&self) -> bool {
        (self.holding > 0) != self.negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::model::{Comparand, Comparison, Condition, Junction, Rule, Test};
    use crate::values::hash::Fingerprint;
    use crate::write::conjuncts::{Conjunct, Taking};

    #[test]
    fn sweep_over_many_equalities_changes_each_twice() {
        let equal = |number: usize| {
            let comparand = Comparand { text: format!("v{number:05}"), ..Comparand::default() };
            Condition { property: 0, test: Test::Compare(Comparison::Equal, comparand) }
        };
        let count = 10_000;
        let rules = [Rule { junction: Junction::Any, conditions: (0..count).map(equal).collect(), rules: Vec::new() }];
        let mut taking = Taking { fingerprint: Fingerprint::of("k"), conjuncts: Vec::new(), computed: Vec::new() };
        assert!(taking.take(&rules).is_empty());
        let mut conjuncts = Conjuncts::default();
        let taken: Vec<Conjunct<'_>> = taking.conjuncts;
        for conjunct in &taken {
            conjuncts.push(1, conjunct);
        }
        let mut sweep = Sweep::new(&conjuncts, &[Family::Sets], |question, turns| {
            if let Question::Compare(_, places) = question {
                turns.turn(places.token, false, true);
            }
            false
        });
        assert_eq!(sweep.left & 1, 0, "nothing else equals one of them");
        for number in 0..count {
            let token = Fingerprint::of("k").token(format!("v{number:05}").as_bytes());
            assert_eq!(sweep.at(token) & 1, 1);
        }
        assert_eq!(sweep.changes, 2 * count);
    }
}
