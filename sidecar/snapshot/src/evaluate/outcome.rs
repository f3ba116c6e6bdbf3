//! The result of a feature.

use super::{
    evaluation::{Evaluation, IdentityOverride, Winner},
    flag_overrides::FlagOverride,
    resolution::Resolution,
    splits::{Bucket, SplitPlaces, bucket},
    visibility::{Role, Visibility},
};
use crate::context::EvaluationContext;
use crate::format::{
    layout::{
        CONTROL, ENABLED, EXPERIMENT, Feature, HAS_VARIANT, LENGTH_MASK, MULTIVARIATE, TARGETED, WEIGHT, WEIGHT_MASK,
        experiment_variant, write_experiment,
    },
    view::View,
};
use crate::values::{hash::digest_of, rows::Span};

/// The result of a feature.
pub(crate) struct Outcome<'a> {
    pub(crate) feature: Feature,
    pub(crate) winner: Winner,
    pub(crate) enabled: bool,
    /// Value as JSON.
    pub(crate) value: &'a [u8],
    pub(crate) split: Bucket<'a>,
    /// See [`digest_of`]. `None` if it is not stored: it is then computed for a flag that is written.
    digest: Option<u64>,
    /// Row of the segment that decided.
    pub(crate) segment: Option<u32>,
    cyclic: bool,
    /// True if the context has a split and the request has no identity.
    unsplit: bool,
    /// True if the flag has the members of an experiment.
    pub(crate) has_experiment: bool,
}

impl<'a> Outcome<'a> {
    /// Returns the result of a decided feature. Inlined, because callers that only render flags read few of its fields.
    #[inline(always)]
    pub(super) fn of(
        evaluation: &Evaluation<'a>,
        context: &EvaluationContext,
        resolution: &Resolution,
        places: &SplitPlaces,
        number: u32,
        winner: Winner,
    ) -> Option<Self> {
        let view = evaluation.view();
        let feature = view.features().get(number)?;
        let mut outcome = Self {
            feature,
            winner,
            enabled: false,
            value: b"null",
            split: Bucket::None,
            digest: None,
            segment: None,
            cyclic: resolution.is_cyclic(number),
            unsplit: false,
            has_experiment: feature.flags & EXPERIMENT != 0 && context.is_identified,
        };
        let state = match winner {
            Winner::Default => view.contexts().get(feature.context)?,
            Winner::Segment(rank) => {
                let ranked = evaluation.overrides_of(&feature).get(u32::from(rank))?;
                outcome.segment = Some(ranked.segment);
                view.contexts().get(ranked.context)?
            }
            Winner::Identity(row) => {
                let identity_override = evaluation.identity_override?;
                let item = identity_override.items.get(row)?;
                outcome.enabled = item.value_length & ENABLED != 0;
                outcome.value =
                    Span { start: item.value, length: item.value_length & LENGTH_MASK }.of(identity_override.blob);
                if item.value_length & HAS_VARIANT != 0 {
                    outcome.split = identity_override.variant(row + 1);
                }
                return Some(outcome);
            }
        };
        outcome.enabled = state.is_enabled();
        outcome.value = state.value(view.blob);
        outcome.digest = Some(state.digest);
        if state.split != 0 {
            outcome.unsplit = !context.is_identified;
            if context.is_identified {
                let place = if winner == Winner::Default { places.place(view, number) } else { None };
                let (bucket, chosen) = bucket(evaluation, context, state, place);
                outcome.split = bucket;
                if let Some((value, digest)) = chosen {
                    (outcome.value, outcome.digest) = (value, Some(digest));
                }
            }
        }
        Some(outcome)
    }

    /// Replaces state and value by those of a flag override. The flag is no part of an experiment then.
    #[cold]
    pub(crate) fn overridden(mut self, by: &'a FlagOverride) -> Self {
        self.enabled = by.enabled.unwrap_or(self.enabled);
        if let Some(value) = &by.value {
            self.value = value.as_bytes();
            self.split = Bucket::None;
            self.unsplit = false;
        }
        self.cyclic = false;
        self.has_experiment = false;
        self.digest = None;
        self
    }

    /// Returns the digest of the flag, and may hash the whole value for it. Only a flag that is written needs it: then
    /// the work is no more than that of writing the value.
    #[inline(always)]
    pub(crate) fn digest(&self, view: &View<'_>) -> u64 {
        match self.digest {
            Some(digest) => digest,
            None if self.has_experiment => self.digest_with_experiment(view),
            None => digest_of(self.feature.id, self.enabled, self.value),
        }
    }

    /// Returns an upper bound for the length in bytes of any text that a condition can read from the result.
    pub(crate) fn length(&self, view: &View<'_>) -> usize {
        let segment = self.segment.and_then(|segment| view.segments().get(segment));
        let bucket = match self.split {
            Bucket::Variant { key, weight, .. } => key.len() + weight.len(),
            Bucket::None | Bucket::Control { .. } => 0,
        };
        self.value.len()
            + bucket
            + self.feature.name.length as usize
            + segment.map_or(0, |row| row.name.length as usize)
    }

    /// Returns true if a request with this role may see the feature.
    pub(crate) fn is_visible(&self, view: &View<'_>, role: Role) -> bool {
        Visibility::of(view, role).sees(&self.feature, self.enabled)
    }

    /// Returns true if an identity is needed to choose between variants, and the request has none.
    pub(crate) fn needs_identity(&self) -> bool {
        self.enabled && self.unsplit
    }

    /// Appends the members of the feature's experiment.
    #[cold]
    pub(crate) fn write_experiment(&self, view: &View<'_>, out: &mut Vec<u8>) {
        let (chosen, has_split) = match self.split {
            Bucket::None => (None, false),
            Bucket::Control { .. } => (None, true),
            Bucket::Variant { .. } => (Some(self.variant_json()), true),
        };
        let variant = experiment_variant(chosen, has_split, self.feature.flags & MULTIVARIATE != 0);
        write_experiment(variant, self.metadata(view), out);
    }

    /// Returns the metadata of the state that won. Identity overrides have none.
    fn metadata<'v>(&self, view: &View<'v>) -> &'v [u8] {
        let feature = &self.feature;
        let context = match self.winner {
            Winner::Default => Some(feature.context),
            Winner::Segment(rank) => {
                let overrides = view.segment_overrides().range(feature.overrides, feature.overrides_length);
                overrides.get(u32::from(rank)).map(|row| row.context)
            }
            Winner::Identity(_) => None,
        };
        context.and_then(|row| view.contexts().get(row)).map_or(b"", |context| context.metadata(view.blob))
    }

    /// Returns the digest of a flag with the members of an experiment.
    #[cold]
    fn digest_with_experiment(&self, view: &View<'_>) -> u64 {
        let mut content = self.value.to_vec();
        self.write_experiment(view, &mut content);
        digest_of(self.feature.id, self.enabled, &content)
    }

    /// Returns the variant's name as JSON.
    pub(crate) fn variant_json(&self) -> Option<&'a [u8]> {
        match self.split {
            Bucket::None => None,
            Bucket::Control { .. } => Some(CONTROL),
            Bucket::Variant { key, .. } => (!key.is_empty()).then_some(key),
        }
    }

    /// Returns the reason in the words of Flagsmith's engine 11.
    pub(crate) fn reason(&self, view: &View<'_>) -> String {
        if self.cyclic {
            return "ERROR; code=CIRCULAR_DEPENDENCY".to_owned();
        }
        if let Bucket::Variant { weight, .. } = self.split {
            return format!("SPLIT; weight={}", String::from_utf8_lossy(weight));
        }
        match self.winner {
            Winner::Identity(_) => "TARGETING_MATCH; segment=identity_overrides".to_owned(),
            Winner::Segment(_) => {
                let name = self
                    .segment
                    .and_then(|segment| view.segments().get(segment))
                    .map_or("", |segment| view.text(segment.name));
                format!("TARGETING_MATCH; segment={name}")
            }
            Winner::Default if self.feature.flags & TARGETED != 0 => "DEFAULT".to_owned(),
            Winner::Default => "STATIC".to_owned(),
        }
    }

    /// Returns the reason of OpenFeature.
    pub(crate) fn openfeature_reason(&self) -> &'static str {
        match (self.enabled, self.cyclic, &self.split, self.winner) {
            (_, true, ..) => "ERROR",
            (false, ..) => "DISABLED",
            (_, _, Bucket::Variant { .. }, _) => "SPLIT",
            (_, _, _, Winner::Segment(_) | Winner::Identity(_)) => "TARGETING_MATCH",
            _ => "STATIC",
        }
    }
}

impl<'a> IdentityOverride<'a> {
    /// Returns the variant that an item describes. The percentage is not known: the compiler has hashed the identity.
    #[cold]
    fn variant(&self, row: u32) -> Bucket<'a> {
        let Some(item) = self.items.get(row) else { return Bucket::None };
        let length = item.value_length & LENGTH_MASK;
        let weight =
            Span { start: item.value.saturating_add(length), length: item.value_length >> WEIGHT & WEIGHT_MASK };
        if weight.length == 0 {
            return Bucket::Control { percentage: f64::NAN };
        }
        let key = Span { start: item.value, length }.of(self.blob);
        Bucket::Variant { percentage: f64::NAN, key, weight: weight.of(self.blob) }
    }
}
