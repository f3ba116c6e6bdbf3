//! The segments that override a flag: the result of each, and the requirements behind it, in lines of text.

use remora_snapshot::{Check, Decision, SegmentExplanation};

/// The result of a segment for a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The segment matches, and its override is the flag's result.
    Decides,
    /// The segment matches, and a stronger override is the flag's result.
    Matches,
    /// A requirement or the rules do not hold.
    NoMatch,
    /// The segment has no rules.
    NoRules,
    /// The segment needs an identity, and the request has none.
    NeedsIdentity,
    /// The segment reads a flag that depends on the segment itself.
    Cyclic,
    /// The evaluation had used up its steps.
    Undecided,
}

impl Verdict {
    /// Returns the result of a segment, given the source of the flag's result.
    pub fn of(segment: &SegmentExplanation, decision: &Decision) -> Self {
        let trace = &segment.trace;
        let decides = matches!(decision, Decision::Segment { rank, .. } if *rank == segment.rank);
        match segment.is_match {
            _ if decides => Self::Decides,
            true => Self::Matches,
            false if trace.is_empty => Self::NoRules,
            false if trace.is_out_of_scope => Self::NeedsIdentity,
            false if trace.is_match() => Self::Undecided,
            false if trace.is_cyclic => Self::Cyclic,
            false => Self::NoMatch,
        }
    }

    fn sentence(self, decision: &Decision) -> &'static str {
        match (self, decision) {
            (Self::Decides, _) => "matches, and its override is the result",
            (Self::Matches, Decision::IdentityOverride) => "matches, but the override of the identity is stronger",
            (Self::Matches, _) => "matches, but another override is stronger",
            (Self::NoMatch, _) => "does not match",
            (Self::NoRules, _) => "has no rules, so that no identity matches it",
            (Self::NeedsIdentity, _) => "needs an identity, and the request has none",
            (Self::Cyclic, _) => "does not match, because it reads a flag that depends on this segment",
            (Self::Undecided, _) => "was not decided, because the evaluation had used up its steps",
        }
    }
}

/// Describes the segments that override a flag, strongest first.
pub(super) fn lines(segments: &[SegmentExplanation], decision: &Decision) -> Vec<String> {
    let mut lines = Vec::new();
    for (place, segment) in (1..).zip(segments) {
        let verdict = Verdict::of(segment, decision).sentence(decision);
        lines.push(format!("  {place}. segment {:?} {verdict}", segment.name));
        let trace = &segment.trace;
        lines.extend(trace.requirements.iter().map(|check| format!("     {} {}", mark(check), described(check))));
        if let Some(accepted) = trace.accepted {
            let result = if accepted { "accept" } else { "do not accept" };
            lines.push(format!("     {} its other rules {result} the identity", if accepted { "yes" } else { "no " }));
            lines.extend(trace.conditions.iter().map(|check| format!("         {} {}", mark(check), described(check))));
        }
        if trace.skipped > 0 {
            lines.push(format!("         {} more conditions were not needed", trace.skipped));
        }
    }
    lines
}

fn mark(check: &Check) -> &'static str {
    if check.holds { "yes" } else { "no " }
}

fn described(check: &Check) -> String {
    let Check { attribute, value, comparison, hash, .. } = check;
    let is = value.as_ref().map_or("is not set".to_owned(), |value| format!("is {}", super::super::shortened(value)));
    let hash = hash.as_ref().map(|hash| format!("; {}", super::hashed(hash))).unwrap_or_default();
    format!("{attribute} {is}: {comparison}{hash}")
}
