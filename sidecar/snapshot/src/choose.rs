//! Choosing what decides each feature: segments one after another, so that the work is what they override, not the
//! whole environment.

use crate::evaluation::{Evaluation, Winner};
use crate::layout::{BLOCK, Target};
use crate::resolve;
use crate::subject::Subject;

/// What decides each feature that is not simply its default.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// A bit a feature: its answer may differ from the default.
    touched: Vec<u64>,
    /// By feature: the rank of a segment, [`DEFAULT`], or [`INDIVIDUAL`] and a row.
    winners: Vec<u32>,
}

/// Nothing overrides it: weaker than every rank.
const DEFAULT: u32 = u32::MAX;
/// The identity's own override, by its row.
const INDIVIDUAL: u32 = 1 << 31;

impl Choice {
    fn clear(&mut self, features: usize) {
        self.touched.clear();
        self.touched.resize(features.div_ceil(64), 0);
        self.winners.clear();
        self.winners.resize(features, DEFAULT);
    }

    fn touch(&mut self, feature: u32) {
        if let Some(word) = self.touched.get_mut(feature as usize / 64) {
            *word |= 1 << (feature % 64);
        }
    }

    fn set(&mut self, feature: u32, winner: Winner) {
        if let Some(place) = self.winners.get_mut(feature as usize) {
            *place = match winner {
                Winner::Default => DEFAULT,
                Winner::Segment(rank) => u32::from(rank),
                Winner::Individual(row) => INDIVIDUAL | row,
            };
            self.touch(feature);
        }
    }

    /// A segment's override counts if it is stronger than what was found so far.
    #[inline(always)]
    fn propose(&mut self, Target { feature, rank }: Target) {
        if let Some(held) = self.winners.get_mut(usize::from(feature)).filter(|held| u32::from(rank) < **held) {
            *held = u32::from(rank);
            self.touch(u32::from(feature));
        }
    }

    #[inline(always)]
    pub(crate) fn winner(&self, feature: u32) -> Winner {
        match self.winners.get(feature as usize).copied().unwrap_or(DEFAULT) {
            DEFAULT => Winner::Default,
            row if row & INDIVIDUAL != 0 => Winner::Individual(row & !INDIVIDUAL),
            rank => Winner::Segment(rank as u16), // it was one
        }
    }

    /// What a condition has read of a feature stands, whatever was chosen since.
    pub(crate) fn settle(&mut self, feature: u32, winner: Winner) {
        if self.winner(feature) != winner {
            self.set(feature, winner);
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
                subject.choice.touch(feature.word);
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
                    subject.choice.set(feature, Winner::Individual(row));
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
                subject.choice.propose(target);
            }
        }
    }
}
