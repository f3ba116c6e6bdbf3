//! Flagsmith's environment document, limited to the members that answers depend on.
//!
//! The parser skips all other members: organisation, dates, uuids of rows that have ids. [`crate::prune`] and
//! [`crate`] process the document further.

mod experiments;
mod identities;
mod identity_feature;
mod list;
mod original;
mod quote;
mod read;
mod scalar;

use serde::Deserialize;

pub use experiments::Experiment;
pub use identity_feature::Variants;
pub(crate) use list::list;
pub use original::Original;
pub use quote::{printable, quoted};
pub use read::{Error, parse};
use scalar::null_is_default;
pub use scalar::{ConditionValue, Number, Scalar};

/// An environment as Flagsmith sends it to server-side SDKs (specified by its `environment-document/` endpoint).
#[derive(Debug, Clone, Deserialize)]
pub struct Document {
    /// Flagsmith's id of the environment.
    pub id: Option<i64>,
    /// Client-side key, which is part of the hash of identifiers.
    pub api_key: String,
    /// Name of the environment.
    #[serde(default)]
    pub name: Option<String>,
    /// Time of the last change, in ISO 8601.
    #[serde(default)]
    updated_at: Option<String>,
    /// True if answers omit disabled flags. Without a value, the project's setting counts.
    #[serde(default)]
    pub hide_disabled_flags: Option<bool>,
    /// False if the server leaves the identity overrides out of the document, although its own answers have them.
    #[serde(default)]
    pub use_identity_overrides_in_local_eval: Option<bool>,
    /// Project of the environment.
    pub project: Project,
    /// Feature states, one per feature, in the order of the answers.
    pub feature_states: Vec<FeatureState>,
    /// Overrides for single identities.
    #[serde(default, deserialize_with = "null_is_default")]
    pub identity_overrides: Vec<Identity>,
}

/// A project. It contains the segments of all its environments.
#[derive(Debug, Clone, Deserialize)]
pub struct Project {
    /// True if answers omit disabled flags.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hide_disabled_flags: bool,
    /// Segments, in the order that decides between overrides of equal priority.
    #[serde(default, deserialize_with = "null_is_default")]
    pub segments: Vec<Segment>,
    /// Ids of the features that client-side keys do not see.
    #[serde(default, deserialize_with = "null_is_default")]
    pub server_key_only_feature_ids: Vec<i64>,
}

/// A segment and its overrides in this environment.
#[derive(Debug, Clone, Deserialize)]
pub struct Segment {
    /// Flagsmith's id, which is part of the hash of percentage splits.
    pub id: i64,
    /// Name of the segment.
    pub name: String,
    /// Rules, all of which must match.
    #[serde(default, deserialize_with = "null_is_default")]
    pub rules: Vec<Rule>,
    /// Overrides of the segment.
    #[serde(default, deserialize_with = "null_is_default")]
    pub feature_states: Vec<FeatureState>,
}

/// A rule of a segment.
#[derive(Debug, Clone, Deserialize)]
pub struct Rule {
    /// Type: `ALL`, `ANY` or `NONE`.
    #[serde(rename = "type")]
    pub junction: String,
    /// Conditions of the rule.
    #[serde(default, deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
    /// Nested rules.
    #[serde(default, deserialize_with = "null_is_default")]
    pub rules: Vec<Rule>,
}

/// A condition of a rule.
#[derive(Debug, Clone, Deserialize)]
pub struct Condition {
    /// One of Flagsmith's fourteen operators.
    pub operator: String,
    /// Value to compare with.
    #[serde(default)]
    pub value: ConditionValue,
    /// Name of a trait, or a JSONPath.
    #[serde(default, rename = "property_", deserialize_with = "null_is_default")]
    pub property: String,
}

/// Id, name and type of a feature.
#[derive(Debug, Clone, Deserialize)]
pub struct Feature {
    /// Flagsmith's id of the feature.
    pub id: i64,
    /// Name of the feature.
    pub name: String,
    /// Type: `STANDARD` or `MULTIVARIATE`.
    #[serde(default = "standard", rename = "type")]
    pub kind: String,
}

fn standard() -> String {
    "STANDARD".to_owned()
}

/// State of a feature, by default or by a segment's override.
#[derive(Debug, Clone, Deserialize)]
pub struct FeatureState {
    /// Feature of this state.
    pub feature: Feature,
    /// True if the feature is enabled.
    pub enabled: bool,
    /// Seed of the hash that chooses among variants.
    #[serde(default)]
    pub django_id: Option<i64>,
    /// Seed of that hash if `django_id` is missing or 0.
    #[serde(default)]
    pub featurestate_uuid: Option<String>,
    /// Value of the feature.
    #[serde(default)]
    pub feature_state_value: Scalar,
    /// Variants of the feature.
    #[serde(default, deserialize_with = "null_is_default")]
    pub multivariate_feature_state_values: Vec<VariantState>,
    /// Priority of a segment's override.
    #[serde(default)]
    pub feature_segment: Option<FeatureSegment>,
    /// Experiment that runs on the feature. Boxed, because few states have one.
    #[serde(default, rename = "metadata", deserialize_with = "experiments::of_metadata")]
    pub experiment: Option<Box<Experiment>>,
}

impl FeatureState {
    /// Returns the seed of the hash that chooses among variants.
    #[must_use]
    pub fn seed(&self) -> Option<String> {
        seed(self.django_id, self.featurestate_uuid.as_deref())
    }
}

/// Returns the seed of the hash that chooses among variants: the id, or the uuid if the id is missing or 0.
fn seed(django_id: Option<i64>, uuid: Option<&str>) -> Option<String> {
    match django_id {
        Some(id) if id != 0 => Some(id.to_string()),
        _ => uuid.map(str::to_owned),
    }
}

/// Priority of a segment's override.
#[derive(Debug, Clone, Deserialize)]
pub struct FeatureSegment {
    /// Priority as a number. The lowest wins.
    #[serde(default)]
    pub priority: Option<Number>,
}

/// A variant and its percentage.
#[derive(Debug, Clone, Deserialize)]
pub struct VariantState {
    /// Content of the variant.
    pub multivariate_feature_option: VariantOption,
    /// Share of identities that get the variant, in percent.
    pub percentage_allocation: Number,
    /// Id, by which variants are ordered for their percentage ranges.
    #[serde(default)]
    pub id: Option<i64>,
    /// Uuid, which orders the variant if `id` is missing or 0.
    #[serde(default)]
    pub mv_fs_value_uuid: Option<String>,
}

impl VariantState {
    /// Returns the sort key of the variant: its id, or its uuid as a number. Variants get their percentage ranges in
    /// this order.
    #[must_use]
    pub fn order(&self) -> Option<(bool, u128)> {
        match self.id {
            Some(id) if id < 0 => Some((false, u128::from(u64::MAX) - u128::from(id.unsigned_abs()))),
            Some(id) if id > 0 => Some((true, u128::from(id.unsigned_abs()))),
            _ => {
                let digits: String = self.mv_fs_value_uuid.as_deref()?.chars().filter(|c| *c != '-').collect();
                let number = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok()).flatten();
                number.map(|number| (true, number))
            }
        }
    }
}

/// Value and key of a variant.
#[derive(Debug, Clone, Deserialize)]
pub struct VariantOption {
    /// Value of the variant.
    #[serde(default)]
    pub value: Scalar,
    /// Key of the variant.
    #[serde(default)]
    pub key: Option<String>,
}

/// Overrides for one identity.
#[derive(Debug, Clone, Deserialize)]
pub struct Identity {
    /// Identifier of the identity.
    pub identifier: String,
    /// Flags that replace those of the environment.
    #[serde(default, deserialize_with = "null_is_default")]
    pub identity_features: Vec<IdentityFeature>,
}

/// One flag of an identity.
#[derive(Debug, Clone)]
pub struct IdentityFeature {
    /// Feature of the flag.
    pub feature: IdentityFeatureName,
    /// True if the feature is enabled.
    pub enabled: bool,
    /// Value of the feature.
    pub feature_state_value: Scalar,
    /// Variants of the feature. `None` for most flags, so they are stored apart.
    pub variants: Option<Box<Variants>>,
}

/// Feature of an identity's flag, by name only, because a document can have a million of these flags.
#[derive(Debug, Clone, Deserialize)]
pub struct IdentityFeatureName {
    /// Name of the feature.
    pub name: Box<str>,
}

impl Document {
    /// Returns the time of the last change, as Flagsmith writes it.
    #[must_use]
    pub fn updated_at(&self) -> Option<&str> {
        self.updated_at.as_deref()
    }

    /// Appends the identity overrides of a later page.
    ///
    /// # Errors
    /// The pages belong to different environments, or the environment changed between them. The document is unchanged
    /// then.
    pub fn append_page(&mut self, page: Document) -> Result<(), Error> {
        if page.api_key != self.api_key {
            return Err(Error::OtherEnvironment);
        }
        if page.updated_at != self.updated_at {
            return Err(Error::ChangedBetweenPages);
        }
        self.identity_overrides.extend(page.identity_overrides);
        Ok(())
    }

    /// Returns true if answers omit disabled flags.
    #[must_use]
    pub fn hides_disabled_flags(&self) -> bool {
        self.hide_disabled_flags.unwrap_or(self.project.hide_disabled_flags)
    }
}
