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
    Decisions,
    evaluation::Evaluation,
    flag_overrides::{FlagOverrides, OverriddenBy},
    outcome::Outcome,
    visibility::{Role, Visibility},
};
use crate::format::{
    layout::{OFREP_BOOLEANS_ENABLED, OFREP_DISABLED_VALUES, OFREP_OBJECTS},
    view::View,
};

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

/// The environment's choices for OFREP, decoded once per answer.
#[derive(Clone, Copy)]
struct OfrepOptions {
    visibility: Visibility,
    /// True if the value of a boolean flag is its state.
    booleans_enabled: bool,
    /// True if disabled features have their values.
    disabled_values: bool,
    /// True if a string that holds a JSON object is returned as the object.
    objects: bool,
}

impl OfrepOptions {
    fn of(view: &View<'_>, role: Role) -> Self {
        let flags = view.origin().flags;
        Self {
            visibility: Visibility::of(view, role),
            booleans_enabled: flags & OFREP_BOOLEANS_ENABLED != 0,
            disabled_values: flags & OFREP_DISABLED_VALUES != 0,
            objects: flags & OFREP_OBJECTS != 0,
        }
    }
}

/// Appends the flag of the feature with this number, if it can be returned.
pub(crate) fn write_flag<'a>(
    evaluation: &Evaluation<'a>,
    feature: u32,
    outcome: Option<Outcome<'a>>,
    overrides: Option<&'a FlagOverrides>,
    role: Role,
    out: &mut Vec<u8>,
) -> OfrepFlag {
    let own = overrides.and_then(|overrides| overrides.get(feature));
    let outcome = match own {
        None => outcome,
        Some(own) => outcome.map(|outcome| outcome.overridden(own)),
    };
    let options = OfrepOptions::of(evaluation.view(), role);
    match outcome {
        Some(outcome) if options.visibility.sees(&outcome.feature, outcome.enabled) => {
            if outcome.needs_identity() {
                return OfrepFlag::NeedsTargetingKey;
            }
            write(evaluation, options, &outcome, own.map(|own| own.by), out);
            OfrepFlag::Written { feature }
        }
        _ => OfrepFlag::Unknown,
    }
}

/// Appends all flags that the role sees, separated by commas, and returns the sum of their digests.
pub(crate) fn write_flags(decisions: &Decisions<'_>, role: Role, out: &mut Vec<u8>) -> u64 {
    write_all(decisions, role, out, |_, outcome| (outcome, None))
}

/// Appends the same flags with flag overrides.
#[cold]
pub(crate) fn write_overridden_flags<'a>(
    decisions: &Decisions<'a>,
    overrides: &'a FlagOverrides,
    role: Role,
    out: &mut Vec<u8>,
) -> u64 {
    write_all(decisions, role, out, |feature, outcome| match overrides.get(feature) {
        Some(own) => (outcome.overridden(own), Some(own.by)),
        None => (outcome, None),
    })
}

/// Appends what `replace` returns of each outcome: another outcome, and the author of its override.
#[inline(always)]
fn write_all<'a>(
    decisions: &Decisions<'a>,
    role: Role,
    out: &mut Vec<u8>,
    replace: impl Fn(u32, Outcome<'a>) -> (Outcome<'a>, Option<OverriddenBy>),
) -> u64 {
    let view = decisions.view();
    let options = OfrepOptions::of(view, role);
    let mut first = true;
    let mut digest = 0_u64;
    for feature in 0..view.features().len() as u32 {
        if out.len() > MAX_ANSWER {
            break;
        }
        let Some((outcome, by)) = decisions.outcome(feature).map(|outcome| replace(feature, outcome)) else {
            continue;
        };
        if options.visibility.sees(&outcome.feature, outcome.enabled) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            write(&decisions.evaluation, options, &outcome, by, out);
            digest = digest.wrapping_add(outcome.digest(view));
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
fn write(
    evaluation: &Evaluation<'_>,
    options: OfrepOptions,
    outcome: &Outcome<'_>,
    by: Option<OverriddenBy>,
    out: &mut Vec<u8>,
) {
    let view = evaluation.view();
    let enabled: &[u8] = if outcome.enabled { b"true" } else { b"false" };
    out.extend_from_slice(view.bytes(outcome.feature.ofrep_head));
    let value = match (outcome.value, outcome.enabled) {
        (b"null", _) => Some(enabled),
        (b"true" | b"false", _) if options.booleans_enabled => Some(enabled),
        (value, true) => Some(value),
        (value, false) => options.disabled_values.then_some(value),
    };
    if let Some(value) = value {
        out.extend_from_slice(b",\"value\":");
        if !(options.objects && is_affordable(evaluation, value) && object::append(value, out)) {
            out.extend_from_slice(value);
        }
    }
    out.extend_from_slice(b",\"reason\":\"");
    let reason = if by.is_some() && outcome.enabled { "TARGETING_MATCH" } else { outcome.openfeature_reason() };
    out.extend_from_slice(reason.as_bytes());
    out.push(b'"');
    out.extend_from_slice(b",\"variant\":");
    out.extend_from_slice(outcome.variant_json().unwrap_or(b"\"\""));
    out.extend_from_slice(view.bytes(outcome.feature.ofrep_tail));
    out.extend_from_slice(enabled);
    if let Some(by) = by {
        out.extend_from_slice(b",\"overriddenBy\":\"");
        out.extend_from_slice(by.word().as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b"}}");
}
