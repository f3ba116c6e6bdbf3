//! Renders flags as OFREP.
//!
//! A feature with a value returns the value; a feature without a value returns if it is enabled. A disabled feature
//! with a value returns no value, and the application uses its own default. An environment may choose otherwise, and
//! may return strings that hold JSON objects as objects (`model::Ofrep`). Without variants, the variant is empty and
//! not absent: absent is correct as well, but openfeature-provider-ofrep 0.3.0 (Python) then returns the default
//! instead of the value.

mod object;

use crate::budget::Undecided;
use crate::evaluate::{evaluation::Evaluation, role::Role, subject::Subject};
use crate::format::layout::{OFREP_BOOLEANS_ENABLED, OFREP_DISABLED_VALUES, OFREP_OBJECTS};
use crate::render::answer::{MAX_ANSWER, Outcome};

/// Result of a request for one flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfrepFlag {
    /// The flag was appended.
    Written,
    /// The role sees no such flag.
    Unknown,
    /// Percentages of identities choose the value, and the request has no identity.
    NeedsTargetingKey,
}

/// Appends one flag, if it can be returned.
pub(crate) fn write_flag(
    evaluation: &Evaluation<'_>,
    subject: &mut Subject,
    role: Role,
    feature: u32,
    out: &mut Vec<u8>,
) -> OfrepFlag {
    let winner = evaluation.winner(subject, feature);
    match Outcome::of(evaluation, subject, feature, winner) {
        Some(outcome) if outcome.is_visible(&evaluation.view, role) => {
            if outcome.needs_identity() {
                return OfrepFlag::NeedsTargetingKey;
            }
            write(evaluation, subject, &outcome, out);
            OfrepFlag::Written
        }
        _ => OfrepFlag::Unknown,
    }
}

/// Appends all flags that the role sees, separated by commas, and returns the sum of their digests.
pub(crate) fn write_flags(evaluation: &Evaluation<'_>, subject: &mut Subject, role: Role, out: &mut Vec<u8>) -> u64 {
    evaluation.choose(subject);
    let mut first = true;
    let mut digest = 0_u64;
    for feature in 0..evaluation.view.features().len() as u32 {
        if out.len() > MAX_ANSWER {
            break;
        }
        let outcome = Outcome::of(evaluation, subject, feature, evaluation.chosen(subject, feature));
        if let Some(outcome) = outcome.filter(|outcome| outcome.is_visible(&evaluation.view, role)) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            write(evaluation, subject, &outcome, out);
            digest = digest.wrapping_add(outcome.digest);
        }
    }
    digest
}

/// Returns true if the budget allows to search a value for an object. Otherwise a string stays a string.
fn is_affordable(subject: &Subject, value: &[u8]) -> bool {
    let affordable = subject.budget.scan(value.len());
    if !affordable {
        subject.budget.note(Undecided::Others);
    }
    affordable
}

fn write(evaluation: &Evaluation<'_>, subject: &Subject, outcome: &Outcome<'_>, out: &mut Vec<u8>) {
    let view = &evaluation.view;
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
        if !(chosen(OFREP_OBJECTS) && is_affordable(subject, value) && object::append(value, out)) {
            out.extend_from_slice(value);
        }
    }
    out.extend_from_slice(b",\"reason\":\"");
    out.extend_from_slice(outcome.openfeature_reason().as_bytes());
    out.push(b'"');
    out.extend_from_slice(b",\"variant\":");
    out.extend_from_slice(outcome.variant_json().unwrap_or(b"\"\""));
    out.extend_from_slice(view.bytes(outcome.feature.ofrep_tail));
    out.extend_from_slice(enabled);
    out.extend_from_slice(b"}}");
}
