//! Conditions that read other flags (`$.flags.<name>.<field>`): a result is resolved when it is first read, and a cycle
//! is cut where it closes, like in Flagsmith's engine 11.

use std::collections::{HashMap, HashSet};

use crate::evaluate::{
    choose::Owner,
    evaluation::{Evaluation, Winner},
    subject::{Subject, Value},
};
use crate::format::{layout::FLAG, model::FlagField};
use crate::render::answer::Outcome;
use crate::values::number::Integer;

/// Charge for the look-up of a flag's result, in bytes that take as long to scan.
const LOOK_UPS: usize = 32;

/// Maximum length of a chain of flags. The operator reports longer chains; here the flag at the end of a longer chain
/// is not set.
pub const MAX_CHAIN: usize = 64;

/// Maximum number of flags that one evaluation resolves for conditions; later ones are not set. If flags read each
/// other in a cycle, a flag may be resolved once per path to it, and the number of paths may exceed the time of any
/// evaluation.
const MAX_RESOLUTIONS: u32 = 1 << 14;

/// The resolved flags of one evaluation.
#[derive(Debug, Default)]
pub(crate) struct Resolution {
    /// Results that conditions have read. They are final, even if another order of evaluation would give other results.
    resolved: HashMap<u32, Winner>,
    /// Features that are being resolved, outermost first.
    resolving: Vec<u32>,
    /// Features that are part of a cycle.
    cyclic: HashSet<u32>,
    /// Segment matches that were computed during resolution.
    verdicts: HashMap<u32, bool>,
    /// Number of cut cycles.
    pub(crate) cycle_hits: u32,
    /// Number of resolved flags.
    resolutions: u32,
}

impl Resolution {
    pub(crate) fn clear(&mut self) {
        self.resolved.clear();
        self.resolving.clear();
        self.cyclic.clear();
        self.verdicts.clear();
        self.cycle_hits = 0;
        self.resolutions = 0;
    }

    pub(crate) fn is_cyclic(&self, feature: u32) -> bool {
        !self.cyclic.is_empty() && self.cyclic.contains(&feature)
    }

    /// Returns the result of a feature, if it is resolved.
    pub(crate) fn result(&self, feature: u32) -> Option<Winner> {
        self.resolved.get(&feature).copied()
    }
}

/// Returns true if any slot of this environment reads a flag.
pub(crate) fn is_needed(evaluation: &Evaluation<'_>) -> bool {
    evaluation
        .view
        .derived()
        .iter()
        .any(|word| evaluation.view.slots().get(word.word).is_some_and(|slot| slot.derivation == FLAG))
}

/// Makes the results that conditions have read the decision, before any other claim.
pub(crate) fn settle(subject: &mut Subject) {
    let Subject { choice, resolution, .. } = subject;
    for feature in resolution.resolved.keys() {
        choice.claim_one(*feature, Owner::Resolved);
    }
}

/// Returns the value of a slot that is derived from a flag.
#[inline(never)]
pub(crate) fn flag(evaluation: &Evaluation<'_>, subject: &mut Subject, slot: u16) -> Value {
    let Some(slot) = evaluation.view.slots().get(u32::from(slot)).filter(|slot| slot.derivation == FLAG) else {
        return Value::Null;
    };
    let feature = slot.argument & 0x00ff_ffff;
    if subject.resolution.result(feature).is_none() {
        resolve(evaluation, subject, feature);
    }
    let Some(winner) = subject.resolution.result(feature) else { return Value::Null };
    let Some(outcome) = Outcome::of(evaluation, subject, feature, winner) else { return Value::Null };
    // The value is copied, so its length is charged.
    if !subject.budget.scan(LOOK_UPS + outcome.length(&evaluation.view)) {
        return Value::Null;
    }
    member(evaluation, subject, &outcome, slot.argument >> 24)
}

fn member(evaluation: &Evaluation<'_>, subject: &mut Subject, outcome: &Outcome<'_>, field: u32) -> Value {
    const ENABLED: u32 = FlagField::Enabled as u32;
    const VALUE: u32 = FlagField::Value as u32;
    const VARIANT: u32 = FlagField::Variant as u32;
    const REASON: u32 = FlagField::Reason as u32;
    const NAME: u32 = FlagField::Name as u32;
    const ID: u32 = FlagField::Id as u32;
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    match field {
        ENABLED => outcome.enabled.into(),
        VALUE => subject.token(text(outcome.value)),
        VARIANT => outcome.variant_json().map_or(Value::Null, |json| subject.token(text(json))),
        REASON => subject.coerced(&outcome.reason(&evaluation.view)),
        NAME => subject.coerced(evaluation.view.text(outcome.feature.name)),
        ID => subject.integer(Integer::Small(outcome.feature.id)),
        _ => Value::Null,
    }
}

fn resolve(evaluation: &Evaluation<'_>, subject: &mut Subject, feature: u32) {
    let resolution = &mut subject.resolution;
    if let Some(start) = resolution.resolving.iter().position(|other| *other == feature) {
        let cycle = resolution.resolving.get(start..).unwrap_or_default();
        subject.budget.spend(cycle.len());
        resolution.cyclic.extend(cycle);
        resolution.cycle_hits += 1;
        return;
    }
    if resolution.resolving.len() >= MAX_CHAIN || resolution.resolutions >= MAX_RESOLUTIONS {
        return;
    }
    resolution.resolutions += 1;
    resolution.resolving.push(feature);
    let winner = strongest(evaluation, subject, feature);
    subject.resolution.resolving.pop();
    if !subject.resolution.is_cyclic(feature) {
        subject.resolution.resolved.insert(feature, winner);
    }
}

/// Evaluates every segment that overrides the feature, in the document's order, because the order decides which cycles
/// are cut.
fn strongest(evaluation: &Evaluation<'_>, subject: &mut Subject, feature: u32) -> Winner {
    let Some(row) = evaluation.view.features().get(feature) else { return Winner::Default };
    if !subject.budget.spend(1 + row.ranked_length as usize) {
        return Winner::Default;
    }
    let mut overrides: Vec<(u32, u16)> =
        evaluation.ranked(&row).iter().zip(0_u16..).map(|(ranked, rank)| (ranked.segment, rank)).collect();
    overrides.sort_unstable();
    let mut best: Option<u16> = None;
    for own in overrides.chunk_by(|(one, _), (next, _)| one == next) {
        let Some((segment, strongest)) = own.first().copied() else { continue };
        // A segment that overrides the feature twice is evaluated twice: the second time, the cycle may already be cut.
        // If it matches, all of its overrides count.
        for _ in own {
            if is_in(evaluation, subject, segment) {
                best = Some(best.map_or(strongest, |held| held.min(strongest)));
            }
        }
    }
    evaluation.individually(&row).unwrap_or_else(|| best.map_or(Winner::Default, Winner::Segment))
}

fn is_in(evaluation: &Evaluation<'_>, subject: &mut Subject, segment: u32) -> bool {
    if let Some(verdict) = subject.resolution.verdicts.get(&segment) {
        return *verdict;
    }
    let hits = subject.resolution.cycle_hits;
    let verdict = evaluation.is_in(subject, segment);
    if subject.resolution.cycle_hits != hits {
        return false; // not stored: another path may not close a cycle
    }
    subject.resolution.verdicts.insert(segment, verdict);
    verdict
}
