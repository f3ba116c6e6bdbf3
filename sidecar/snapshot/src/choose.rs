//! Choosing what decides each feature: segments one after another, so that the work is what they override, not the
//! whole environment.

use crate::evaluation::{Evaluation, Winner};
use crate::layout::{BLOCK, NO_RANK, RANKS, Rank, Run, Table};
use crate::resolve;
use crate::subject::Subject;

/// What decides each feature that is not simply its default.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// A bit a feature: its answer may differ from the default.
    touched: Vec<u64>,
    /// By feature: the rank of a segment, [`NO_RANK`], or [`INDIVIDUAL`].
    winners: Vec<u16>,
}

/// The identity has its own. No segment has this rank.
const INDIVIDUAL: u16 = RANKS as u16;

impl Choice {
    fn clear(&mut self, features: usize) {
        self.touched.clear();
        self.touched.resize(features.div_ceil(64), 0);
        self.winners.clear();
        self.winners.resize(features, NO_RANK);
    }

    /// These features may differ from their defaults.
    fn touch(&mut self, first: u32, length: u32) {
        let (mut at, end) = (u64::from(first), u64::from(first) + u64::from(length));
        while at < end {
            let (bit, next) = (at % 64, (at | 63) + 1);
            let above = if next <= end { 0 } else { next - end };
            if let Some(word) = self.touched.get_mut(at as usize / 64) {
                *word |= u64::MAX << bit & u64::MAX >> above;
            }
            at = next;
        }
    }

    /// This decides, whatever was proposed.
    pub(crate) fn set(&mut self, feature: u32, winner: Winner) {
        if let Some(place) = self.winners.get_mut(feature as usize) {
            *place = match winner {
                Winner::Default => NO_RANK,
                Winner::Segment(rank) => rank,
                Winner::Individual(_) => INDIVIDUAL,
            };
            self.touch(feature, 1);
        }
    }

    /// The overrides of a segment count where they are stronger than what was found so far: one comparison for several
    /// features at once, as processors have it.
    #[inline(always)]
    fn propose(&mut self, first: u32, ranks: Table<'_, Rank, 2>) {
        let start = first as usize;
        if let Some(held) = self.winners.get_mut(start..start.saturating_add(ranks.len())) {
            for (held, Rank { rank }) in held.iter_mut().zip(ranks.iter()) {
                *held = rank.min(*held);
            }
            self.touch(first, ranks.len() as u32);
        }
    }

    /// The rank of the segment that decides.
    #[inline(always)]
    pub(crate) fn rank(&self, feature: u32) -> Option<u16> {
        self.winners.get(feature as usize).copied().filter(|rank| *rank < INDIVIDUAL)
    }

    /// The features whose answers may differ from the default, 64 a word.
    pub(crate) fn touched(&self) -> &[u64] {
        &self.touched
    }
}

impl Evaluation<'_> {
    /// Chooses for all features; the result is in `subject.choice`.
    pub(crate) fn choose(&self, subject: &mut Subject) {
        let view = &self.view;
        subject.choice.clear(view.features.len());
        if subject.identified {
            for feature in view.split_features.iter() {
                subject.choice.touch(feature.word, 1);
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

    /// What was chosen for a feature.
    pub(crate) fn chosen(&self, subject: &Subject, feature: u32) -> Winner {
        match subject.choice.winners.get(feature as usize).copied() {
            None | Some(NO_RANK) => Winner::Default,
            Some(INDIVIDUAL) => {
                let row = self.view.features.get(feature);
                row.and_then(|row| self.individually(&row)).unwrap_or(Winner::Default)
            }
            Some(rank) => Winner::Segment(rank),
        }
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
            for Run { feature, ranks } in self.view.runs.range(row.runs, row.runs_length).iter() {
                subject.choice.propose(feature, self.view.ranks.range(ranks.start, ranks.length));
            }
        }
    }
}
