//! A sweep over the positions of a scale computes the candidates at each position. It computes only the changes between
//! positions, so that many tests about many values cost their sum and not their product.

use super::predicates::{Lookup, ValueTest};
use super::slot_predicates::SlotPredicates;
use crate::format::layout::BLOCK;

/// The predicates of a block, at one position of a scale of `P`.
pub(super) struct Sweep<P> {
    predicates: Vec<State>,
    /// Number of predicates that do not hold, by segment.
    failing: [u32; BLOCK],
    /// Candidates: the segments whose predicates all hold.
    pub(super) candidates: u64,
    /// Changes sorted by position: the predicate, and the change of the number of its tests that hold from there on.
    turns: Vec<(P, u32, i32)>,
    next: usize,
    #[cfg(test)]
    changes: usize,
}

struct State {
    segment: usize,
    negated: bool,
    /// Number of tests that hold.
    holding: i32,
}

/// The changes of one predicate.
pub(super) struct Turns<'a, P> {
    turns: &'a mut Vec<(P, u32, i32)>,
    predicate: u32,
}

impl<P> Turns<'_, P> {
    /// Records a change of an answer at a position.
    pub(super) fn turn(&mut self, place: P, from: bool, to: bool) {
        if from != to {
            self.turns.push((place, self.predicate, i32::from(to) - i32::from(from)));
        }
    }
}

impl<P: Ord + Copy> Sweep<P> {
    /// Starts before the first position. `first` returns the answer of a test there, and records its changes.
    pub(super) fn new<'a>(
        predicates: &SlotPredicates<'a>,
        lookups: &[Lookup],
        first: impl Fn(&'a ValueTest<'a>, &mut Turns<'_, P>) -> bool,
    ) -> Self {
        let mut sweep = Self {
            predicates: Vec::new(),
            failing: [0; BLOCK],
            candidates: u64::MAX,
            turns: Vec::new(),
            next: 0,
            #[cfg(test)]
            changes: 0,
        };
        for ((bit, predicate), number) in predicates.of(lookups).zip(0..) {
            let mut turns = Turns { turns: &mut sweep.turns, predicate: number };
            let holding = predicate.tests.iter().map(|test| i32::from(first(test, &mut turns))).sum();
            let state = State { segment: bit.trailing_zeros() as usize, negated: predicate.negated, holding };
            if !state.holds() {
                sweep.fail(state.segment, true);
            }
            sweep.predicates.push(state);
        }
        sweep.turns.sort_unstable_by_key(|(place, predicate, _)| (*place, *predicate));
        sweep
    }

    /// Advances to a position and returns the candidates there. Positions must ascend.
    pub(super) fn advance(&mut self, place: P) -> u64 {
        while let Some((next, predicate, change)) = self.turns.get(self.next).copied()
            && next <= place
        {
            self.change(predicate, change);
            self.next += 1;
        }
        self.candidates
    }

    /// Returns the candidates at a single position, if changes apply to their own position only.
    pub(super) fn at(&mut self, place: P) -> u64 {
        let start = self.turns.partition_point(|(other, ..)| *other < place);
        let turns =
            |sweep: &Self, step: usize| sweep.turns.get(start + step).copied().filter(|(other, ..)| *other == place);
        let mut steps = 0;
        while let Some((_, predicate, change)) = turns(self, steps) {
            self.change(predicate, change);
            steps += 1;
        }
        let candidates = self.candidates;
        for step in 0..steps {
            if let Some((_, predicate, change)) = turns(self, step) {
                self.change(predicate, -change);
            }
        }
        candidates
    }

    fn change(&mut self, predicate: u32, change: i32) {
        let Some(state) = self.predicates.get_mut(predicate as usize) else { return };
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

    /// Counts one failing predicate of a segment more or less.
    fn fail(&mut self, segment: usize, one_more: bool) {
        let Some(count) = self.failing.get_mut(segment) else { return };
        *count = if one_more { *count + 1 } else { count.saturating_sub(1) };
        match *count {
            0 => self.candidates |= 1 << segment,
            _ => self.candidates &= !(1 << segment),
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
    use crate::write::predicates::{Extraction, Predicate};

    #[test]
    fn sweep_over_many_equalities_changes_each_twice() {
        let equal = |number: usize| {
            let comparand = Comparand { text: format!("v{number:05}"), ..Comparand::default() };
            Condition { property: 0, test: Test::Compare(Comparison::Equal, comparand) }
        };
        let count = 10_000;
        let rules = [Rule { junction: Junction::Any, conditions: (0..count).map(equal).collect(), rules: Vec::new() }];
        let mut extraction =
            Extraction { fingerprint: Fingerprint::of("k"), predicates: Vec::new(), computed: Vec::new() };
        assert!(extraction.extract(&rules).is_empty());
        let mut predicates = SlotPredicates::default();
        let taken: Vec<Predicate<'_>> = extraction.predicates;
        for predicate in &taken {
            predicates.push(1, predicate);
        }
        let mut sweep = Sweep::new(&predicates, &[Lookup::Sets], |test, turns| {
            if let ValueTest::Compare(_, compared) = test {
                turns.turn(compared.key, false, true);
            }
            false
        });
        assert_eq!(sweep.candidates & 1, 0, "nothing else equals one of them");
        for number in 0..count {
            let key = Fingerprint::of("k").member_key(format!("v{number:05}").as_bytes());
            assert_eq!(sweep.at(key) & 1, 1);
        }
        assert_eq!(sweep.changes, 2 * count);
    }
}
