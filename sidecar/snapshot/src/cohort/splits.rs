//! Flags between whose variants the identity decides, with every variant's object put together before it is asked for.

use std::ops::Range;

use crate::answer::write_object;
use crate::evaluation::{Evaluation, Winner};
use crate::layout::{Context, Feature, Span, Split, Variant};
use crate::percentage::{Percentages, Whose};
use crate::role::Role;
use crate::subject::Subject;

/// The splits of a cohort.
#[derive(Debug, Default)]
pub(crate) struct Splits {
    rows: Vec<Prepared>,
    outcomes: Vec<Outcome>,
    /// What they give, one behind another, each with a comma.
    objects: Vec<u8>,
}

/// One of them.
#[derive(Debug)]
struct Prepared {
    /// The first id of its hash.
    seed: Span,
    /// Where it is among the splits of defaults, if it is one.
    default: Option<u32>,
    /// Those of its variants, and behind them what it gives to whom none is chosen for.
    outcomes: Range<usize>,
}

/// What a split may give.
#[derive(Debug)]
struct Outcome {
    /// As in [`Variant`].
    limit: f64,
    object: Range<usize>,
    /// By how much its digest differs from that of the default.
    difference: u64,
}

impl Splits {
    /// How much memory they take.
    pub(crate) fn size(&self) -> usize {
        size_of_val(self.rows.as_slice()) + size_of_val(self.outcomes.as_slice()) + self.objects.len()
    }

    /// Gives back what is not needed.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.rows.shrink_to_fit();
        self.outcomes.shrink_to_fit();
        self.objects.shrink_to_fit();
    }

    /// Adds what may become of a feature, and returns the split's number. `None` if nobody decides between variants, or none
    /// of them is seen.
    pub(crate) fn add(&mut self, evaluation: &Evaluation<'_>, role: Role, number: u32, winner: Winner) -> Option<u32> {
        let (view, visibility) = (&evaluation.view, evaluation.view.visibility(role));
        let (feature, context, split) = evaluation.split(number, winner)?;
        let enabled = context.is_enabled();
        if !visibility.sees(&feature, enabled) {
            return None;
        }
        let before = view.default_digest(visibility, &feature);
        let first = self.outcomes.len();
        let variants = view.variants().range(split.variants, split.length);
        let variants = variants.iter().map(|Variant { limit, value, digest, .. }| (limit, view.bytes(value), digest));
        for (limit, value, digest) in variants.chain([(f64::INFINITY, context.value(view.blob), context.digest)]) {
            let start = self.objects.len();
            write_object(view, &feature, enabled, value, &mut self.objects);
            let object = start..self.objects.len();
            self.outcomes.push(Outcome { limit, object, difference: digest.wrapping_sub(before) });
        }
        let defaults = view.split_features();
        let row = defaults.partition_point(|default| default.word < number);
        let default = (winner == Winner::Default && defaults.get(row).is_some_and(|default| default.word == number))
            .then_some(row);
        self.rows.push(Prepared { seed: split.seed, default, outcomes: first..self.outcomes.len() });
        u32::try_from(self.rows.len() - 1).ok()
    }

    /// Where the subject is in those of these splits that are wanted, in the room that is given.
    pub(crate) fn places(
        &self,
        evaluation: &Evaluation<'_>,
        subject: &mut Subject,
        wanted: impl Iterator<Item = Option<u32>>,
        mut room: Vec<f64>,
    ) -> Vec<f64> {
        let view = &evaluation.view;
        room.clear();
        let mut percentages = None;
        for (number, split) in wanted.enumerate() {
            room.push(f64::NAN);
            let Some(row) = split.and_then(|split| self.rows.get(split as usize)) else { continue };
            let known = row.default.and_then(|row| subject.splits.get(row as usize)).copied();
            let mut tell = |number: usize, place| room.get_mut(number).into_iter().for_each(|room| *room = place);
            match known.filter(|place| !place.is_nan()) {
                Some(place) => tell(number, place),
                None => {
                    let percentages = percentages.get_or_insert_with(|| Percentages::within(subject.hashing.take()));
                    let (seed, ids) = (view.head(row.seed), subject.key(view));
                    percentages.ask(number, seed, Whose::Identity, ids, &mut tell);
                }
            }
        }
        if let Some(percentages) = percentages {
            subject.hashing =
                percentages.tell(&mut |number, place| room.get_mut(number).into_iter().for_each(|room| *room = place));
        }
        room
    }

    /// What a split gives to whom has this place in it: the object, and by how much its digest differs.
    pub(crate) fn given(&self, number: u32, place: f64) -> Option<(&[u8], u64)> {
        let outcomes = self.outcomes.get(self.rows.get(number as usize)?.outcomes.clone())?;
        let (rest, variants) = outcomes.split_last()?;
        let mut start = 0.0;
        let chosen = variants.iter().find(|variant| {
            let begins = start;
            start = variant.limit;
            begins <= place && place < variant.limit
        });
        let outcome = chosen.unwrap_or(rest);
        Some((self.objects.get(outcome.object.clone())?, outcome.difference))
    }
}

impl Evaluation<'_> {
    /// A feature, what it is by this, and between what the identity decides there, if it does.
    fn split(&self, number: u32, winner: Winner) -> Option<(Feature, Context, Split)> {
        let feature = self.view.features().get(number)?;
        let context = match winner {
            Winner::Default => feature.context,
            Winner::Segment(rank) => self.ranked(&feature).get(u32::from(rank))?.context,
            Winner::Individual(_) => return None,
        };
        let context = self.view.contexts().get(context)?;
        Some((feature, context, self.view.split(context)?))
    }
}
