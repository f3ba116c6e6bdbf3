//! Splits: which variant of a state an identity gets, by its place between 0 and 100 percent.

use super::{evaluation::Evaluation, owners::Owners};
use crate::budget::Undecided;
use crate::context::EvaluationContext;
use crate::format::{
    layout::{Context, Split, Variant, Word},
    view::View,
};
use crate::values::percentage::{HashBuffers, IdSource, Percentages, UNDECIDED, percentage};

/// Number of variants per charged step.
const VARIANTS_A_STEP: usize = 8;

/// The identity's place in the split of each feature's default, by row of the split features; NaN if it has not been
/// computed.
#[derive(Debug, Default)]
pub(crate) struct SplitPlaces(Vec<f64>);

/// The part of a split in which an identity is.
pub(crate) enum Bucket<'a> {
    /// The state has no split, or the request has no identity.
    None,
    /// No variant: the control value.
    Control { percentage: f64 },
    /// A variant.
    Variant { percentage: f64, key: &'a [u8], weight: &'a [u8] },
}

impl SplitPlaces {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Computes the places in the splits of all defaults that apply, hashed in batches.
    pub(super) fn find(
        &mut self,
        evaluation: &Evaluation<'_>,
        context: &EvaluationContext,
        hashing: &mut Option<Box<HashBuffers>>,
        owners: &Owners,
    ) {
        let (view, budget) = (evaluation.view(), evaluation.budget());
        let splits = view.split_features();
        self.0.resize(splits.len(), f64::NAN);
        let mut report = |row: usize, percentage| {
            self.0.get_mut(row).into_iter().for_each(|place| *place = percentage);
        };
        let mut percentages = Percentages::new(hashing.take());
        for (row, Word { word: feature }) in splits.iter().enumerate() {
            if !owners.has(feature)
                && let Some(split) = split_of_default(view, feature)
            {
                if !budget.hash(split.seed, context.key_length(view)) {
                    budget.note(Undecided::Others);
                    report(row, UNDECIDED);
                    continue;
                }
                percentages.request(row, view.head(split.seed), IdSource::Identity, context.key(view), &mut report);
            }
        }
        *hashing = Some(percentages.finish(&mut report));
    }

    /// Returns the place in the split of a feature's default, if it has been computed.
    pub(super) fn place(&self, view: &View<'_>, feature: u32) -> Option<f64> {
        let features = view.split_features();
        let row = features.partition_point(|other| other.word < feature);
        let place = self.0.get(row as usize).copied().filter(|place| !place.is_nan())?;
        (features.get(row)?.word == feature).then_some(place)
    }
}

fn split_of_default(view: &View<'_>, feature: u32) -> Option<Split> {
    let feature = view.features().get(feature)?;
    view.split(view.contexts().get(feature.context)?)
}

/// Returns the bucket of the identity in a state's split, and the value and digest there. Not inlined, because splits
/// are few.
#[inline(never)]
pub(super) fn bucket<'a>(
    evaluation: &Evaluation<'a>,
    context: &EvaluationContext,
    state: Context,
    place: Option<f64>,
) -> (Bucket<'a>, Option<(&'a [u8], u64)>) {
    let (view, budget) = (evaluation.view(), evaluation.budget());
    let Some(split) = view.split(state) else { return (Bucket::None, None) };
    let percentage = place.unwrap_or_else(|| {
        if !budget.hash(split.seed, context.key_length(view)) {
            budget.note(Undecided::Others);
            return UNDECIDED;
        }
        let [a, b, c] = context.key(view);
        percentage(&[view.bytes(split.seed), b",", a, b, c])
    });
    match variant(evaluation, split, percentage) {
        None => (Bucket::Control { percentage }, None),
        Some(Variant { value, key, weight, digest, .. }) => {
            let bucket = Bucket::Variant { percentage, key: view.bytes(key), weight: view.bytes(weight) };
            (bucket, Some((view.bytes(value), digest)))
        }
    }
}

/// Returns the variant of a split at this place. `None` stands for the control value.
fn variant(evaluation: &Evaluation<'_>, split: Split, place: f64) -> Option<Variant> {
    if !evaluation.budget().spend(split.length as usize / VARIANTS_A_STEP) {
        evaluation.budget().note(Undecided::Others);
        return None;
    }
    let mut start = 0.0;
    evaluation.view().variants().range(split.variants, split.length).iter().find(|variant| {
        let begin = std::mem::replace(&mut start, variant.limit);
        begin <= place && place < variant.limit
    })
}
