//! Splits of a cohort: flags for which the identity's place decides between variants. Everything else about them is
//! looked up in advance.

use super::{Cohort, Gap, Own};
use crate::budget::Undecided;
use crate::evaluate::{
    evaluation::{Evaluation, Winner},
    role::Role,
    subject::Subject,
};
use crate::format::{
    layout::{Context, Split},
    view::View,
};
use crate::render::answer::{Array, Last, write_object};
use crate::values::{
    percentage::{Percentages, UNDECIDED, Whose},
    rows::Span,
};

/// A flag with a split.
#[derive(Debug)]
pub(crate) struct SplitFlag {
    /// Head of the flag's object.
    head: Span,
    context: Context,
    split: Split,
    /// Row of the default's split, if the split is a default.
    default: Option<u32>,
    /// Digest of the feature's default, as part of the sum of digests.
    digest: u64,
}

impl SplitFlag {
    /// Returns the flag if a split decides the feature, and the role sees it.
    pub(super) fn of(evaluation: &Evaluation<'_>, role: Role, number: u32, winner: Winner) -> Option<Self> {
        let (view, visibility) = (&evaluation.view, evaluation.view.visibility(role));
        let (feature, context, split) = evaluation.split(number, winner)?;
        if !visibility.sees(&feature, context.is_enabled()) {
            return None;
        }
        let digest = view.default_digest(visibility, &feature);
        let row = view.split_features().partition_point(|feature| feature.word < number);
        let default = (winner == Winner::Default).then_some(row);
        Some(Self { head: feature.flagsmith_head, context, split, default, digest })
    }

    /// Appends the flag at this place in its split, and returns its digest minus the default's digest.
    pub(crate) fn write(&self, view: &View<'_>, subject: &Subject, place: f64, array: &mut Array<'_>) -> u64 {
        let (value, digest) = match view.variant(subject, self.split, place) {
            Some(variant) => (view.bytes(variant.value), variant.digest),
            None => (self.context.value(view.blob), self.context.digest),
        };
        write_object(view.bytes(self.head), self.context.is_enabled(), value, array.go_on(Last::Comma));
        digest.wrapping_sub(self.digest)
    }
}

impl Cohort {
    /// Returns the subject's place in the split of each gap, in the memory of `room`.
    pub(crate) fn places(
        &self,
        gaps: &[Gap],
        evaluation: &Evaluation<'_>,
        subject: &mut Subject,
        mut room: Vec<f64>,
    ) -> Vec<f64> {
        let view = &evaluation.view;
        room.clear();
        room.resize(gaps.len(), f64::NAN);
        let mut tell = |gap: usize, place| room.get_mut(gap).into_iter().for_each(|room| *room = place);
        let mut percentages = None;
        for (number, gap) in gaps.iter().enumerate() {
            let Own::Split(split) = gap.own else { continue };
            let Some(flag) = self.splits.get(split as usize) else { continue };
            let known = flag.default.and_then(|row| subject.default_places.get(row as usize)).copied();
            match known.filter(|place| !place.is_nan()) {
                Some(place) => tell(number, place),
                None => {
                    let percentages = percentages.get_or_insert_with(|| Percentages::within(subject.hashing.take()));
                    let (seed, ids) = (view.head(flag.split.seed), subject.key(view));
                    if !subject.budget.hash(flag.split.seed, subject.key_length(view)) {
                        subject.budget.note(Undecided::Others);
                        tell(number, UNDECIDED);
                        continue;
                    }
                    percentages.ask(number, seed, Whose::Identity, ids, &mut tell);
                }
            }
        }
        if let Some(percentages) = percentages {
            subject.hashing = Some(percentages.tell(&mut tell));
        }
        room
    }
}
