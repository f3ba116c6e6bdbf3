//! Why a feature is what it is for a subject, told by the evaluation itself.

use crate::Snapshot;
use crate::Subject;
use crate::evaluate::evaluation::Winner;
use crate::render::answer::{Bucket, Outcome};

/// What one feature is, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The feature's name.
    pub feature: String,
    /// On or off.
    pub enabled: bool,
    /// The value as JSON.
    pub value: String,
    /// The reason as Flagsmith's engine words it.
    pub reason: String,
    /// The variant's name, as JSON.
    pub variant: Option<String>,
    /// What decided.
    pub decision: Decision,
    /// Where in the split the identity is, in percent.
    pub percentage: Option<f64>,
    /// Client keys do not see it.
    pub server_only: bool,
}

/// What decided a feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing overrides it.
    Default,
    /// The identity has its own.
    IdentityOverride,
    /// A segment's override.
    Segment {
        /// The segment's name.
        name: String,
        /// How many overrides of this feature are stronger, and did not match.
        rank: u16,
    },
}

impl<B: AsRef<[u8]>> Snapshot<B> {
    /// Explains every feature for the subject, in the order of the answers.
    pub fn explain(&self, subject: &mut Subject) -> Vec<Explanation> {
        let evaluation = self.evaluation(subject);
        evaluation.choose(subject);
        let view = &evaluation.view;
        let outcomes = (0..view.features().len() as u32)
            .filter_map(|feature| Outcome::of(&evaluation, subject, feature, evaluation.chosen(subject, feature)));
        outcomes
            .map(|outcome| Explanation {
                feature: view.text(outcome.feature.name).to_owned(),
                enabled: outcome.enabled,
                value: String::from_utf8_lossy(outcome.value).into_owned(),
                reason: outcome.reason(view),
                variant: outcome.variant_json().map(|json| String::from_utf8_lossy(json).into_owned()),
                decision: match outcome.winner {
                    Winner::Default => Decision::Default,
                    Winner::Individual(_) => Decision::IdentityOverride,
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
                    Bucket::Control { percentage } | Bucket::Variant { percentage, .. } => Some(percentage),
                },
                server_only: outcome.feature.flags & crate::format::layout::SERVER_ONLY != 0,
            })
            .collect()
    }
}
