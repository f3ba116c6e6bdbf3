//! Decides which override of each feature wins. The order of precedence is:
//!
//! 1. the identity's own override,
//! 2. the strongest override by a segment that the context matches,
//! 3. the default.
//!
//! A result that a condition has read comes before all of them, because it is final.
//!
//! All features are decided together by the override masks of the matching segments, up to 64 features at once. The
//! masks of all segments are stored with the strongest first, so the first mask with a feature decides it. A single feature is decided
//! by its list of overrides, which is stored with the strongest first, too.

use super::{
    evaluation::{Evaluation, Winner},
    owners::{Owner, Owners},
    resolution::Resolution,
};
use crate::format::{
    layout::{BLOCK, Feature, OverrideRun, Rank, Word},
    view::View,
};
use crate::values::rows::Table;

/// The decision for every feature.
#[derive(Debug, Default)]
pub(crate) struct Winners {
    /// One bit per segment: the context matches the segment.
    matches: Vec<u64>,
    owners: Owners,
}

impl Winners {
    pub(super) fn clear(&mut self, view: &View<'_>) {
        self.matches.clear();
        self.matches.resize(view.blocks().len(), 0);
        self.owners.clear(view.features().len());
    }

    /// Adds the matching segments of a block, one bit each.
    pub(super) fn add(&mut self, block: usize, matches: u64) {
        if let Some(place) = self.matches.get_mut(block) {
            *place = matches;
        }
    }

    /// Decides all features.
    pub(super) fn decide(&mut self, evaluation: &Evaluation<'_>, resolution: &Resolution) {
        let (view, owners) = (evaluation.view(), &mut self.owners);
        for feature in resolution.features() {
            owners.assign_one(feature, Owner::Resolved);
        }
        if let Some(identity_override) = evaluation.identity_override {
            for item in identity_override.items.iter() {
                if let Some(feature) = view.feature_with_id(item.feature) {
                    owners.assign_one(feature, Owner::Identity);
                }
            }
        }
        for mask in view.override_masks().iter() {
            let block = self.matches.get(mask.segment as usize / BLOCK).copied().unwrap_or(0);
            if block >> (mask.segment as usize % BLOCK) & 1 != 0 {
                owners.assign(mask.block, mask.features, Owner::OverrideRun(mask.run));
            }
        }
    }

    /// Makes the default the owner of undecided features whose default has variants. Such a default is not one stored
    /// object, so it must not be copied together with its neighbours.
    pub(super) fn separate(&mut self, splits: Table<'_, Word, 4>) {
        for feature in splits.iter() {
            self.owners.assign_one(feature.word, Owner::Default);
        }
    }

    pub(super) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Returns the winner of a feature.
    pub(super) fn winner(&self, evaluation: &Evaluation<'_>, resolution: &Resolution, feature: u32) -> Winner {
        let view = evaluation.view();
        let winner = match self.owners.owner(feature) {
            Owner::Default => None,
            Owner::OverrideRun(number) => {
                view.override_runs().get(number).and_then(|OverrideRun { feature: first, ranks, .. }| {
                    let ranks = view.ranks().range(ranks.start, ranks.length);
                    ranks.get(feature.checked_sub(first)?).map(|Rank { rank }| Winner::Segment(rank))
                })
            }
            Owner::Identity => view.features().get(feature).and_then(|row| evaluation.identity_winner(&row)),
            Owner::Resolved => resolution.result(feature),
        };
        winner.unwrap_or(Winner::Default)
    }
}

impl Evaluation<'_> {
    /// Decides one feature by its overrides. `is_match` tells if the context matches a segment; it is called for the
    /// strongest first, up to the first match.
    pub(super) fn first_match(&self, feature: &Feature, mut is_match: impl FnMut(u32) -> bool) -> Winner {
        let ranked = self.overrides_of(feature);
        let matches = |rank: &usize| ranked.get(*rank as u32).is_some_and(|row| is_match(row.segment));
        self.winner_among(feature, || {
            let rank = (0..ranked.len()).find(matches)?;
            u16::try_from(rank).ok()
        })
    }

    /// Decides one feature by the rank of its strongest override by a matching segment. `strongest` is not called if
    /// the identity's own override wins.
    pub(super) fn winner_among(&self, feature: &Feature, strongest: impl FnOnce() -> Option<u16>) -> Winner {
        let own = self.identity_winner(feature);
        own.or_else(|| strongest().map(Winner::Segment)).unwrap_or(Winner::Default)
    }
}
