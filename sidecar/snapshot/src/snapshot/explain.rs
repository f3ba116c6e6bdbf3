//! Explanations: the reason for each flag of a request, as the evaluation itself determines it, and the requirements of
//! the segments that override a flag.

use crate::RequestState;
use crate::Snapshot;
use crate::evaluate::{evaluation::Winner, splits::Bucket};
use crate::segments::explain::Trace;
use crate::values::percentage::Hash;

/// The result of one feature, and its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Name of the feature.
    pub feature: String,
    /// Enabled or disabled.
    pub enabled: bool,
    /// Value as JSON.
    pub value: String,
    /// Reason in the words of Flagsmith's engine.
    pub reason: String,
    /// Name of the variant as JSON.
    pub variant: Option<String>,
    /// The source of the result.
    pub decision: Decision,
    /// Place of the identity in the split, in percent. `None` for an identity override, whose variant is stored.
    pub percentage: Option<f64>,
    /// The hash behind the percentage.
    pub hash: Option<Hash>,
    /// True if the feature is hidden from client keys.
    pub server_only: bool,
}

/// The source of a feature's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// No override applies.
    Default,
    /// The identity's own override.
    IdentityOverride,
    /// The override of a segment.
    Segment {
        /// Name of the segment.
        name: String,
        /// Number of stronger overrides of this feature, none of which matched.
        rank: u16,
    },
}

/// A segment that overrides a feature, compared with a request.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentExplanation {
    /// Name of the segment.
    pub name: String,
    /// Priority of its override among the overrides of the feature; 0 is the strongest.
    pub rank: u16,
    /// True if the evaluation found that the request matches the segment.
    pub is_match: bool,
    /// The segment's requirements and their results.
    pub trace: Trace,
}

impl<B: AsRef<[u8]>> Snapshot<B> {
    /// Explains the segments that override a feature, strongest first. Empty if there is no such feature.
    pub fn explain_segments(&self, request: &mut RequestState, feature: &str) -> Vec<SegmentExplanation> {
        let Some(number) = self.view().feature_named(feature.as_bytes(), &request.budget) else { return Vec::new() };
        let decisions = self.decide(request);
        let Some(row) = decisions.view().features().get(number) else { return Vec::new() };
        let overrides = decisions.evaluation.overrides_of(&row);
        let decided: Vec<(u32, bool)> =
            overrides.iter().map(|row| (row.segment, decisions.is_match(row.segment))).collect();
        let explained = (0_u16..).zip(decided).filter_map(|(rank, (segment, is_match))| {
            let RequestState { context, budget, matching, deciding } = &mut *request;
            // Each segment gets a full budget, so that those after an expensive one are explained, too.
            let evaluation = self.start(context, budget);
            matching.clear();
            let trace = evaluation.explain_segment(context, matching, deciding, segment)?;
            let name = self.view().segments().get(segment).map(|row| self.view().text(row.name).to_owned())?;
            Some(SegmentExplanation { name, rank, is_match, trace })
        });
        explained.collect()
    }

    /// Explains every feature for the request, in the order of the answers.
    pub fn explain(&self, request: &mut RequestState) -> Vec<Explanation> {
        let decisions = self.decide(request);
        let view = decisions.view();
        let outcomes = (0..view.features().len() as u32).filter_map(|feature| decisions.outcome(feature));
        outcomes
            .map(|outcome| Explanation {
                hash: decisions.hash(&outcome),
                feature: view.text(outcome.feature.name).to_owned(),
                enabled: outcome.enabled,
                value: String::from_utf8_lossy(outcome.value).into_owned(),
                reason: outcome.reason(view),
                variant: outcome.variant_json().map(|json| String::from_utf8_lossy(json).into_owned()),
                decision: match outcome.winner {
                    Winner::Default => Decision::Default,
                    Winner::Identity(_) => Decision::IdentityOverride,
                    Winner::Segment(rank) => Decision::Segment {
                        name: outcome
                            .segment
                            .and_then(|segment| view.segments().get(segment))
                            .map_or_else(String::new, |row| view.text(row.name).to_owned()),
                        rank,
                    },
                },
                percentage: match outcome.split {
                    Bucket::None => None,
                    Bucket::Control { percentage } | Bucket::Variant { percentage, .. } => {
                        Some(percentage).filter(|percentage| !percentage.is_nan())
                    }
                },
                server_only: outcome.feature.flags & crate::format::layout::SERVER_ONLY != 0,
            })
            .collect()
    }
}
