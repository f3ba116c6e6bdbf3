//! Evaluation: decides which override of each feature wins, and with which result.

pub(crate) mod evaluation;
pub(crate) mod flag_overrides;
pub(crate) mod outcome;
pub(crate) mod owners;
pub(crate) mod resolution;
mod resolver;
pub(crate) mod splits;
pub(crate) mod visibility;
mod winners;

use crate::context::EvaluationContext;
use crate::format::view::View;
use crate::segments::{self, explain::Trace};
use crate::values::percentage::Hash;
use evaluation::{Evaluation, Winner};
use outcome::Outcome;
use owners::Owners;
use resolution::Resolution;
use resolver::Resolver;
use splits::SplitPlaces;
use winners::Winners;

/// Scratch memory of the decisions.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    winners: Winners,
    resolution: Resolution,
    places: SplitPlaces,
}

/// The decisions for all features of one request. Renderers read nothing else.
#[derive(Clone, Copy)]
pub(crate) struct Decisions<'a> {
    pub(crate) evaluation: Evaluation<'a>,
    context: &'a EvaluationContext,
    winners: &'a Winners,
    resolution: &'a Resolution,
    places: &'a SplitPlaces,
}

impl<'a> Evaluation<'a> {
    /// Decides all features.
    pub(crate) fn decide(
        self,
        context: &'a mut EvaluationContext,
        matching: &mut segments::Scratch,
        scratch: &'a mut Scratch,
    ) -> Decisions<'a> {
        let view = self.view();
        let Scratch { winners, resolution, places } = scratch;
        matching.clear();
        winners.clear(view);
        resolution.clear();
        places.clear();
        let mut flags = Resolver { evaluation: &self, resolution };
        self.segments.each_match(context, matching, &mut flags, |segment| winners.add(view, segment));
        winners.decide(&self, resolution);
        let splits = view.split_features();
        if context.is_identified && splits.len() > 0 {
            places.find(&self, context, &mut matching.hashing, winners.owners());
            winners.separate(splits);
        }
        Decisions { evaluation: self, context, winners, resolution, places }
    }

    /// Decides one feature, and evaluates only the segments that override it.
    pub(crate) fn decide_one(
        self,
        context: &'a mut EvaluationContext,
        matching: &mut segments::Scratch,
        scratch: &'a mut Scratch,
        number: u32,
    ) -> Option<Outcome<'a>> {
        if self.reads_flags {
            // The result of a cycle of flags depends on the order of all segments, so all features are decided.
            return self.decide(context, matching, scratch).outcome(number);
        }
        let Scratch { resolution, places, .. } = scratch;
        matching.clear();
        resolution.clear();
        places.clear();
        let feature = self.view().features().get(number)?;
        let mut flags = Resolver { evaluation: &self, resolution };
        let winner =
            self.first_match(&feature, |segment| self.segments.is_match(context, matching, &mut flags, segment));
        Outcome::of(&self, context, resolution, places, number, winner)
    }
}

impl Evaluation<'_> {
    /// Compares the requirements of a segment with the context. `scratch` has the flags that the last evaluation of the
    /// same context resolved.
    pub(crate) fn explain_segment(
        &self,
        context: &mut EvaluationContext,
        matching: &mut segments::Scratch,
        scratch: &mut Scratch,
        segment: u32,
    ) -> Option<Trace> {
        let mut flags = Resolver { evaluation: self, resolution: &mut scratch.resolution };
        self.segments.explain(context, matching, &mut flags, segment)
    }
}

impl<'a> Decisions<'a> {
    pub(crate) fn view(&self) -> &View<'a> {
        self.evaluation.view()
    }

    /// Returns the owners of all features.
    pub(crate) fn owners(&self) -> &'a Owners {
        self.winners.owners()
    }

    /// Returns true if the context matches a segment.
    pub(crate) fn is_match(&self, segment: u32) -> bool {
        self.view().segments().get(segment).is_some_and(|row| self.winners.is_match(self.view(), &row))
    }

    /// Returns the hash behind the identity's place in the split of a result. `None` if there is no split, or if it is
    /// the split of an identity override, whose variant is stored.
    pub(crate) fn hash(&self, outcome: &Outcome<'_>) -> Option<Hash> {
        let view = self.view();
        let context = match outcome.winner {
            Winner::Default => outcome.feature.context,
            Winner::Segment(rank) => self.evaluation.overrides_of(&outcome.feature).get(u32::from(rank))?.context,
            Winner::Identity(_) => return None,
        };
        let split = view.split(view.contexts().get(context)?).filter(|_| self.context.is_identified)?;
        let [a, b, c] = self.context.key(view);
        Some(Hash::of(&[view.bytes(split.seed), b",", a, b, c]))
    }

    /// Returns the result of a feature. Inlined, because callers that only render flags read few of its fields.
    #[inline(always)]
    pub(crate) fn outcome(&self, number: u32) -> Option<Outcome<'a>> {
        let winner = self.winners.winner(&self.evaluation, self.resolution, number);
        Outcome::of(&self.evaluation, self.context, self.resolution, self.places, number, winner)
    }
}
