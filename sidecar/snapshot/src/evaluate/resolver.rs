//! Conditions that read other flags (`$.flags.<name>.<field>`): a result is resolved when it is first read, and a cycle
//! is cut where it closes, like in Flagsmith's engine 11.

use super::{
    evaluation::{Evaluation, Winner},
    outcome::Outcome,
    resolution::Resolution,
    splits::SplitPlaces,
};
use crate::budget::LOOK_UPS;
use crate::context::{EvaluationContext, Value};
use crate::format::{layout::FLAG, model::FlagField, view::View};
use crate::segments::{Flags, Scratch};
use crate::values::number::Integer;

/// Resolves the flags that conditions read.
pub(super) struct Resolver<'r, 'a> {
    pub(super) evaluation: &'r Evaluation<'a>,
    pub(super) resolution: &'r mut Resolution,
}

impl Flags for Resolver<'_, '_> {
    #[inline(never)]
    fn read(&mut self, context: &mut EvaluationContext, scratch: &mut Scratch, slot: u16) -> Value {
        let (view, budget) = (self.evaluation.view(), self.evaluation.budget());
        // The segment that reads the flag stays undecided, whatever the flag is.
        if !budget.spend(0) {
            return Value::Null;
        }
        let Some(slot) = view.slots().get(u32::from(slot)).filter(|slot| slot.derivation == FLAG) else {
            return Value::Null;
        };
        let feature = slot.argument & 0x00ff_ffff;
        if self.resolution.result(feature).is_none() && self.resolution.start(feature, budget) {
            let winner = self.strongest(context, scratch, feature);
            // A result is final, and this one may lack overrides that apply: it was found without a budget.
            match budget.spend(0) {
                true => self.resolution.end(feature, winner),
                false => self.resolution.abandon(),
            }
        }
        let Some(winner) = self.resolution.result(feature) else { return Value::Null };
        // No place in a split is known yet: splits of defaults are hashed after all segments are matched.
        let places = SplitPlaces::default();
        let outcome = Outcome::of(self.evaluation, context, self.resolution, &places, feature, winner);
        let Some(outcome) = outcome else { return Value::Null };
        // The value is copied, so its length is charged.
        if !budget.scan(LOOK_UPS + outcome.length(view)) {
            return Value::Null;
        }
        member(view, context, &outcome, slot.argument >> 24)
    }

    fn cuts(&self) -> u32 {
        self.resolution.cuts()
    }
}

impl Resolver<'_, '_> {
    /// Evaluates every segment that overrides the feature, in the document's order, because the order decides which
    /// cycles are cut.
    fn strongest(&mut self, context: &mut EvaluationContext, scratch: &mut Scratch, feature: u32) -> Winner {
        let Some(row) = self.evaluation.view().features().get(feature) else { return Winner::Default };
        if !self.evaluation.budget().spend(1 + row.overrides_length as usize) {
            return Winner::Default;
        }
        let ranked = self.evaluation.overrides_of(&row);
        let start = self.resolution.push_overrides(ranked.iter().map(|ranked| ranked.segment).zip(0..));
        let mut best: Option<u16> = None;
        let mut own: Option<(u32, u16)> = None;
        for at in start..start + ranked.len() {
            let Some((segment, rank)) = self.resolution.pushed(at) else { break };
            // A segment that overrides the feature twice is evaluated twice: the second time, the cycle may already be
            // cut. If it matches, all of its overrides count, of which the strongest comes first.
            let (_, strongest) = *own.insert(own.filter(|(same, _)| *same == segment).unwrap_or((segment, rank)));
            if self.is_match(context, scratch, segment) {
                best = Some(best.map_or(strongest, |held| held.min(strongest)));
            }
        }
        self.resolution.pop_overrides(start);
        self.evaluation.winner_among(&row, || best)
    }

    fn is_match(&mut self, context: &mut EvaluationContext, scratch: &mut Scratch, segment: u32) -> bool {
        if let Some(verdict) = self.resolution.verdict(segment) {
            return verdict;
        }
        let cuts = self.cuts();
        let segments = &self.evaluation.segments;
        let verdict = segments.is_match(context, scratch, self, segment);
        if self.cuts() != cuts {
            return false; // not stored: another path may not close a cycle
        }
        self.resolution.keep_verdict(segment, verdict);
        verdict
    }
}

/// Returns a member of a flag's result.
fn member(view: &View<'_>, context: &mut EvaluationContext, outcome: &Outcome<'_>, field: u32) -> Value {
    const ENABLED: u32 = FlagField::Enabled as u32;
    const VALUE: u32 = FlagField::Value as u32;
    const VARIANT: u32 = FlagField::Variant as u32;
    const REASON: u32 = FlagField::Reason as u32;
    const NAME: u32 = FlagField::Name as u32;
    const ID: u32 = FlagField::Id as u32;
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    match field {
        ENABLED => outcome.enabled.into(),
        VALUE => context.token(text(outcome.value)),
        VARIANT => outcome.variant_json().map_or(Value::Null, |json| context.token(text(json))),
        REASON => context.coerced(&outcome.reason(view)),
        NAME => context.coerced(view.text(outcome.feature.name)),
        ID => context.integer(Integer::Small(outcome.feature.id)),
        _ => Value::Null,
    }
}
