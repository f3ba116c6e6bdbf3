//! Renders flags as OFREP.
//!
//! A feature with a value returns the value; a feature without a value returns if it is enabled. A disabled feature
//! with a value returns no value, and the application uses its own default. An environment may choose otherwise, and
//! may return strings that hold JSON objects as objects (`model::Ofrep`). Without variants, the variant is empty and
//! not absent: absent is correct as well, but openfeature-provider-ofrep 0.3.0 (Python) then returns the default
//! instead of the value.

mod object;

use super::flagsmith::MAX_ANSWER;
use crate::budget::Undecided;
use crate::evaluate::{
    Decisions, evaluation::Evaluation, outcome::Outcome, pod_overrides::PodOverrides, visibility::Role,
};
use crate::format::layout::{OFREP_BOOLEANS_ENABLED, OFREP_DISABLED_VALUES, OFREP_OBJECTS};

/// Result of a request for one flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfrepFlag {
    /// The flag was appended.
    Written {
        /// Number of its feature, in the order of the answers.
        feature: u32,
    },
    /// The role sees no such flag.
    Unknown,
    /// Percentages of identities choose the value, and the request has no identity.
    NeedsTargetingKey,
}

/// Appends the flag of the feature with this number, if it can be returned.
pub(crate) fn write_flag<'a>(
    evaluation: &Evaluation<'a>,
    feature: u32,
    outcome: Option<Outcome<'a>>,
    overrides: Option<&'a PodOverrides>,
    role: Role,
    out: &mut Vec<u8>,
) -> OfrepFlag {
    let own = overrides.and_then(|overrides| overrides.get(feature));
    let outcome = match own {
        None => outcome,
        Some(own) => outcome.map(|outcome| outcome.overridden(own)),
    };
    match outcome {
        Some(outcome) if outcome.is_visible(evaluation.view(), role) => {
            if outcome.needs_identity() {
                return OfrepFlag::NeedsTargetingKey;
            }
            write(evaluation, &outcome, own.is_some(), out);
            OfrepFlag::Written { feature }
        }
        _ => OfrepFlag::Unknown,
    }
}

/// Appends all flags that the role sees, separated by commas, and returns the sum of their digests.
pub(crate) fn write_flags(decisions: &Decisions<'_>, role: Role, out: &mut Vec<u8>) -> u64 {
    write_all(decisions, role, out, |_, outcome| (outcome, false))
}

/// Appends the same flags with pod overrides.
#[cold]
pub(crate) fn write_overridden_flags<'a>(
    decisions: &Decisions<'a>,
    overrides: &'a PodOverrides,
    role: Role,
    out: &mut Vec<u8>,
) -> u64 {
    write_all(decisions, role, out, |feature, outcome| match overrides.get(feature) {
        Some(own) => (outcome.overridden(own), true),
        None => (outcome, false),
    })
}

/// Appends what `replace` returns of each outcome: another outcome, and if it is a pod override.
#[inline(always)]
fn write_all<'a>(
    decisions: &Decisions<'a>,
    role: Role,
    out: &mut Vec<u8>,
    replace: impl Fn(u32, Outcome<'a>) -> (Outcome<'a>, bool),
) -> u64 {
    let view = decisions.view();
    let mut first = true;
    let mut digest = 0_u64;
    for feature in 0..view.features().len() as u32 {
        if out.len() > MAX_ANSWER {
            break;
        }
        let Some((outcome, is_overridden)) = decisions.outcome(feature).map(|outcome| replace(feature, outcome)) else {
            continue;
        };
        if outcome.is_visible(view, role) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            write(&decisions.evaluation, &outcome, is_overridden, out);
            digest = digest.wrapping_add(outcome.digest);
        }
    }
    digest
}

/// Returns true if the budget allows to search a value for an object. Otherwise a string stays a string.
fn is_affordable(evaluation: &Evaluation<'_>, value: &[u8]) -> bool {
    let affordable = evaluation.budget().scan(value.len());
    if !affordable {
        evaluation.budget().note(Undecided::Others);
    }
    affordable
}

#[inline(always)]
fn write(evaluation: &Evaluation<'_>, outcome: &Outcome<'_>, is_overridden: bool, out: &mut Vec<u8>) {
    let view = evaluation.view();
    let enabled: &[u8] = if outcome.enabled { b"true" } else { b"false" };
    out.extend_from_slice(view.bytes(outcome.feature.ofrep_head));
    let chosen = |option| view.origin().flags & option != 0;
    let value = match (outcome.value, outcome.enabled) {
        (b"null", _) => Some(enabled),
        (b"true" | b"false", _) if chosen(OFREP_BOOLEANS_ENABLED) => Some(enabled),
        (value, true) => Some(value),
        (value, false) => chosen(OFREP_DISABLED_VALUES).then_some(value),
    };
    if let Some(value) = value {
        out.extend_from_slice(b",\"value\":");
        if !(chosen(OFREP_OBJECTS) && is_affordable(evaluation, value) && object::append(value, out)) {
            out.extend_from_slice(value);
        }
    }
    out.extend_from_slice(b",\"reason\":\"");
    let reason = if is_overridden && outcome.enabled { "TARGETING_MATCH" } else { outcome.openfeature_reason() };
    out.extend_from_slice(reason.as_bytes());
    out.push(b'"');
    out.extend_from_slice(b",\"variant\":");
    out.extend_from_slice(outcome.variant_json().unwrap_or(b"\"\""));
    out.extend_from_slice(view.bytes(outcome.feature.ofrep_tail));
    out.extend_from_slice(enabled);
    if is_overridden {
        out.extend_from_slice(br#","overriddenBy":"pod""#);
    }
    out.extend_from_slice(b"}}");
}
