//! Choosing what decides each feature: segments one after another, so that the work is what they override, not the
//! whole environment.

use crate::evaluation::{Evaluation, Winner};
use crate::layout::BLOCK;
use crate::resolve;
use crate::subject::Subject;

/// What decides each feature that is not simply its default.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// A bit a feature: its answer may differ from the default.
    touched: Vec<u64>,
    /// By feature; only meaningful where `touched`.
    winners: Vec<Winner>,
}

impl Choice {
    fn clear(&mut self, features: usize) {
        self.touched.clear();
        self.touched.resize(features.div_ceil(64), 0);
        // What is left from an earlier request is never read: `touched` says what was written in this one.
        self.winners.resize(features, Winner::Default);
    }

    fn is_touched(&self, feature: u32) -> bool {
        self.touched.get(feature as usize / 64).is_some_and(|word| word & (1 << (feature % 64)) != 0)
    }

    fn touch(&mut self, feature: u32, winner: Winner) {
        if let (Some(word), Some(place)) =
            (self.touched.get_mut(feature as usize / 64), self.winners.get_mut(feature as usize))
        {
            *word |= 1 << (feature % 64);
            *place = winner;
        }
    }

    /// A segment's override counts if it is stronger than what was found so far.
    fn propose(&mut self, feature: u32, rank: u16) {
        match self.winner(feature) {
            Winner::Segment(held) if held <= rank => {}
            _ => self.touch(feature, Winner::Segment(rank)),
        }
    }

    pub(crate) fn winner(&self, feature: u32) -> Winner {
        if !self.is_touched(feature) {
            return Winner::Default;
        }
        self.winners.get(feature as usize).copied().unwrap_or(Winner::Default)
    }

    /// What a condition has read of a feature stands, whatever was chosen since.
    pub(crate) fn settle(&mut self, feature: u32, winner: Winner) {
        if self.winner(feature) != winner {
            self.touch(feature, winner);
        }
    }

    /// The first feature from this one on whose answer may differ from the default.
    pub(crate) fn next_touched(&self, from: u32) -> Option<u32> {
        let mut at = from as usize / 64;
        let mut word = self.touched.get(at)? & (u64::MAX << (from % 64));
        while word == 0 {
            at += 1;
            word = *self.touched.get(at)?;
        }
        Some(at as u32 * 64 + word.trailing_zeros())
    }
}

impl Evaluation<'_> {
    /// Chooses for all features; the result is in `subject.choice`.
    pub(crate) fn choose(&self, subject: &mut Subject) {
        let view = &self.view;
        subject.choice.clear(view.features.len());
        if subject.identified {
            for feature in view.split_features.iter() {
                subject.choice.touch(feature.word, Winner::Default);
            }
        }
        for block in 0..view.blocks.len() {
            let mut left = self.candidates(subject, block);
            while left != 0 {
                self.propose(subject, (block * BLOCK) as u32 + left.trailing_zeros());
                left &= left - 1;
            }
        }
        if let Some(individual) = self.individual {
            for (row, item) in (0_u32..).zip(individual.items.iter()) {
                if let Some(feature) = view.feature_with_id(item.feature) {
                    subject.choice.touch(feature, Winner::Individual(row));
                }
            }
        }
        resolve::settle(subject);
    }
    /// Proposes what a segment overrides, if the subject belongs to it.
    fn propose(&self, subject: &mut Subject, segment: u32) {
        let hits = subject.resolution.cycle_hits;
        let matched = self.is_in(subject, segment);
        // A verdict that was reached by cutting a cycle of flags is no verdict.
        if !matched || subject.resolution.cycle_hits != hits {
            return;
        }
        if let Some(row) = self.view.segments.get(segment) {
            for target in self.view.targets.range(row.targets, row.targets_length).iter() {
                subject.choice.propose(u32::from(target.feature), target.rank);
            }
        }
    }
}
