//! The requirements of a block of segments on one slot.

use std::collections::BTreeSet;

use super::conjuncts::{Conjunct, Family, Pattern, Places, Question};
use super::joint::{self, Joint as Joined, Work};
use crate::format::model::Rule;
use crate::regex::automaton;
use crate::segments::condition::accepts;

/// The requirements of the segments of a block, one bit each, on one slot.
#[derive(Default)]
pub(super) struct Conjuncts<'a>(Vec<(u64, &'a Conjunct<'a>)>);

/// All families of text look-ups. Values of other types have the same result in all families.
pub(super) const ALL: &[Family] = &[Family::Texts, Family::Versions, Family::Sets, Family::Patterns];
/// Families that numbers answer by their order. Patterns search the printed number.
pub(super) const ORDERED: &[Family] = &[Family::Texts, Family::Versions, Family::Sets];

impl<'a> Conjuncts<'a> {
    pub(super) fn push(&mut self, segment: u64, conjunct: &'a Conjunct<'a>) {
        self.0.push((segment, conjunct));
    }

    /// Returns the candidates, given the result of each question.
    pub(super) fn left(&self, families: &[Family], holds: impl Fn(&Question<'a>) -> bool) -> u64 {
        self.of(families).fold(u64::MAX, |left, (bit, conjunct)| {
            let is_left = conjunct.questions.iter().any(&holds) != conjunct.negated;
            if is_left { left } else { left & !bit }
        })
    }

    /// Returns the candidates for a value that is in no set and has this relation to the compared values. `None` as
    /// relation: the compared value cannot be cast to the value's type.
    pub(super) fn left_compared(&self, families: &[Family], relation: impl Fn(&Places<'a>) -> Option<u8>) -> u64 {
        self.left(families, |question| match question {
            Question::Set(set) => *set,
            Question::Compare(operator, places) => {
                relation(places).is_some_and(|relation| accepts(*operator as u8, relation))
            }
            Question::In(_) | Question::Has(_) | Question::Lacks(_) => false,
        })
    }

    /// Returns the candidates of pattern questions for a boolean, which is printed as `text`.
    pub(super) fn left_printed(&self, text: &[u8]) -> u64 {
        self.left(&[Family::Patterns], |question| match question {
            Question::Has(Pattern::Automaton(program)) => automaton::matches(program, text),
            _ => false, // a boolean is no text
        })
    }

    /// Combines the patterns of as many conjuncts as have room. The other conjuncts are removed and returned as rules.
    pub(super) fn join(&mut self, room: usize, work: &Work) -> (Option<Joined>, Vec<(u64, Rule)>) {
        let mut returned = Vec::new();
        loop {
            let patterns = self.patterns();
            if patterns.is_empty() {
                return (None, returned);
            }
            let joined = joint::join(&patterns, work).filter(|joined| joined.bytes() <= room);
            if joined.is_some() {
                return (joined, returned);
            }
            let mut left = if work.is_done() || room == 0 { 0 } else { self.of(&[Family::Patterns]).count() / 2 };
            self.0.retain(|(bit, conjunct)| {
                let stays = conjunct.family != Family::Patterns || left > 0;
                if !stays {
                    returned.push((*bit, conjunct.to_rule()));
                } else if conjunct.family == Family::Patterns {
                    left -= 1;
                }
                stays
            });
        }
    }

    /// Returns the distinct patterns.
    pub(super) fn patterns(&self) -> Vec<Pattern<'a>> {
        let patterns: BTreeSet<Pattern<'a>> = self
            .questions(&[Family::Patterns])
            .filter_map(|question| match question {
                Question::Has(pattern) | Question::Lacks(pattern) => Some(*pattern),
                _ => None,
            })
            .collect();
        patterns.into_iter().collect()
    }

    pub(super) fn of(&self, families: &[Family]) -> impl Iterator<Item = (u64, &'a Conjunct<'a>)> {
        self.0.iter().copied().filter(|(_, conjunct)| families.contains(&conjunct.family))
    }

    pub(super) fn questions(&self, families: &[Family]) -> impl Iterator<Item = &'a Question<'a>> {
        self.of(families).flat_map(|(_, conjunct)| &conjunct.questions)
    }
}
