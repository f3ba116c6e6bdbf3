//! Decides which override of each feature wins. The order of precedence is:
//!
//! 1. the identity's own override,
//! 2. the strongest override by a segment that the context matches,
//! 3. the default.
//!
//! A result that a condition has read comes before all of them, because it is final.
//!
//! All features are decided together by the override masks of the matching segments, up to 64 features at once. The
//! masks of all segments are stored with the strongest first, so the first matching mask with a feature decides it. A
//! single feature is decided by its list of overrides, which is stored with the strongest first, too.

use super::{
    evaluation::{Evaluation, Winner},
    owners::{Owner, Owners},
    resolution::Resolution,
};
use crate::format::{
    layout::{BLOCK, Feature, OverrideRun, Rank, Segment, Word},
    view::View,
};
use crate::values::rows::Table;

/// The decision for every feature.
#[derive(Debug, Default)]
pub(crate) struct Winners {
    /// One bit per override mask: the context matches the mask's segment.
    masks: Vec<u64>,
    owners: Owners,
}

impl Winners {
    pub(super) fn clear(&mut self, view: &View<'_>) {
        self.masks.clear();
        self.masks.resize(view.override_masks().len().div_ceil(BLOCK), 0);
        self.owners.clear(view.features().len());
    }

    /// Adds a matching segment.
    pub(super) fn add(&mut self, view: &View<'_>, segment: &Segment) {
        for Word { word: mask } in view.segment_masks().range(segment.masks.start, segment.masks.length).iter() {
            if let Some(masks) = self.masks.get_mut(mask as usize / BLOCK) {
                *masks |= 1 << (mask as usize % BLOCK);
            }
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
        for (first, masks) in (0_u32..).step_by(BLOCK).zip(&self.masks) {
            let mut masks = *masks;
            while masks != 0 {
                if let Some(mask) = view.override_masks().get(first + masks.trailing_zeros()) {
                    owners.assign(mask.block, mask.features, Owner::OverrideRun(mask.run));
                }
                masks &= masks - 1;
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

    /// Returns true if the context matches a segment, which must override a feature: others have no mask.
    pub(super) fn is_match(&self, view: &View<'_>, segment: &Segment) -> bool {
        view.segment_masks().get(segment.masks.start).is_some_and(|Word { word: mask }| {
            let masks = self.masks.get(mask as usize / BLOCK).copied().unwrap_or(0);
            segment.masks.length > 0 && masks >> (mask as usize % BLOCK) & 1 != 0
        })
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
