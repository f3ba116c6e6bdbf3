//! The input of an evaluation.

use crate::budget::StepBudget;
use crate::format::{
    layout::{Feature, Item, SegmentOverride},
    view::View,
};
use crate::segments::Segments;
use crate::values::rows::Table;

/// The snapshot's input of an evaluation. The request's input is the [`EvaluationContext`].
///
/// [`EvaluationContext`]: crate::context::EvaluationContext
#[derive(Clone, Copy)]
pub(crate) struct Evaluation<'a> {
    pub(crate) segments: Segments<'a>,
    pub(crate) identity_override: Option<IdentityOverride<'a>>,
    /// True if a slot of the snapshot reads a flag.
    pub(crate) reads_flags: bool,
}

/// The identity override of a request, sorted by feature id.
#[derive(Clone, Copy)]
pub(crate) struct IdentityOverride<'a> {
    pub(crate) items: Table<'a, Item, 16>,
    pub(crate) blob: &'a [u8],
}

/// The source of a feature's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Winner {
    /// The default: no override applies.
    Default,
    /// The override of a segment, by its rank among the overrides of the feature.
    Segment(u16),
    /// The identity's own override, by its row.
    Identity(u32),
}

impl<'a> Evaluation<'a> {
    pub(crate) fn view(&self) -> &View<'a> {
        &self.segments.view
    }

    pub(crate) fn budget(&self) -> &'a StepBudget {
        self.segments.budget
    }

    /// Returns the identity's own override of a feature.
    pub(super) fn identity_winner(&self, feature: &Feature) -> Option<Winner> {
        let items = self.identity_override?.items;
        let row = items.partition_point(|item| item.feature < feature.id);
        items.get(row).filter(|item| item.feature == feature.id).map(|_| Winner::Identity(row))
    }

    /// Returns the overrides of a feature by segments, strongest first.
    pub(crate) fn overrides_of(&self, feature: &Feature) -> Table<'a, SegmentOverride, 8> {
        self.view().segment_overrides().range(feature.overrides, feature.overrides_length)
    }
}
