//! The predicates of a block of segments on one slot.

use std::collections::BTreeSet;

use super::combined_dfa::{self, Combined, Work};
use super::predicates::{ComparedValue, Lookup, Pattern, Predicate, ValueTest};
use crate::format::model::Rule;
use crate::regex::automaton;
use crate::segments::condition::accepts;

/// The predicates of the segments of a block, one bit each, on one slot.
#[derive(Default)]
pub(super) struct SlotPredicates<'a>(Vec<(u64, &'a Predicate<'a>)>);

/// All look-ups of texts. Values of other types have the same result in all look-ups.
pub(super) const ALL: &[Lookup] = &[Lookup::Texts, Lookup::Versions, Lookup::Sets, Lookup::Patterns];
/// Look-ups that numbers answer by their order. Patterns search the printed number.
pub(super) const ORDERED: &[Lookup] = &[Lookup::Texts, Lookup::Versions, Lookup::Sets];

impl<'a> SlotPredicates<'a> {
    pub(super) fn push(&mut self, segment: u64, predicate: &'a Predicate<'a>) {
        self.0.push((segment, predicate));
    }

    /// Returns the candidates, given the result of each test.
    pub(super) fn candidates(&self, lookups: &[Lookup], holds: impl Fn(&ValueTest<'a>) -> bool) -> u64 {
        self.of(lookups).fold(u64::MAX, |candidates, (bit, predicate)| {
            let is_candidate = predicate.tests.iter().any(&holds) != predicate.negated;
            if is_candidate { candidates } else { candidates & !bit }
        })
    }

    /// Returns the candidates for a value that is in no set and has this relation to the compared values. `None` as
    /// relation: the compared value cannot be cast to the value's type.
    pub(super) fn candidates_compared(
        &self,
        lookups: &[Lookup],
        relation: impl Fn(&ComparedValue<'a>) -> Option<u8>,
    ) -> u64 {
        self.candidates(lookups, |test| match test {
            ValueTest::Set(set) => *set,
            ValueTest::Compare(operator, compared) => {
                relation(compared).is_some_and(|relation| accepts(*operator as u8, relation))
            }
            ValueTest::In(_) | ValueTest::Has(_) | ValueTest::Lacks(_) => false,
        })
    }

    /// Returns the candidates of pattern tests for a boolean, which is printed as `text`.
    pub(super) fn candidates_printed(&self, text: &[u8]) -> u64 {
        self.candidates(&[Lookup::Patterns], |test| match test {
            ValueTest::Has(Pattern::Automaton(program)) => automaton::matches(program, text),
            _ => false, // a boolean is no text
        })
    }

    /// Combines the patterns of as many predicates as have room. The other predicates are removed and returned as rules.
    pub(super) fn join(&mut self, room: usize, work: &Work) -> (Option<Combined>, Vec<(u64, Rule)>) {
        let mut returned = Vec::new();
        loop {
            let patterns = self.patterns();
            if patterns.is_empty() {
                return (None, returned);
            }
            let joined = combined_dfa::join(&patterns, work).filter(|joined| joined.bytes() <= room);
            if joined.is_some() {
                return (joined, returned);
            }
            let mut kept = if work.is_done() || room == 0 { 0 } else { self.of(&[Lookup::Patterns]).count() / 2 };
            self.0.retain(|(bit, predicate)| {
                let stays = predicate.lookup != Lookup::Patterns || kept > 0;
                if !stays {
                    returned.push((*bit, predicate.to_rule()));
                } else if predicate.lookup == Lookup::Patterns {
                    kept -= 1;
                }
                stays
            });
        }
    }

    /// Returns the distinct patterns.
    pub(super) fn patterns(&self) -> Vec<Pattern<'a>> {
        let patterns: BTreeSet<Pattern<'a>> = self
            .tests(&[Lookup::Patterns])
            .filter_map(|test| match test {
                ValueTest::Has(pattern) | ValueTest::Lacks(pattern) => Some(*pattern),
                _ => None,
            })
            .collect();
        patterns.into_iter().collect()
    }

    pub(super) fn of(&self, lookups: &[Lookup]) -> impl Iterator<Item = (u64, &'a Predicate<'a>)> {
        self.0.iter().copied().filter(|(_, predicate)| lookups.contains(&predicate.lookup))
    }

    pub(super) fn tests(&self, lookups: &[Lookup]) -> impl Iterator<Item = &'a ValueTest<'a>> {
        self.of(lookups).flat_map(|(_, predicate)| &predicate.tests)
    }
}
