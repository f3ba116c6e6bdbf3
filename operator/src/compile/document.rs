//! Flagsmith's environment document, as far as answers depend on it.
//!
//! Members that no answer depends on are passed over while reading: organisation, dates, uuids of rows that have ids.
//! [`crate::compile::prune`] and [`crate::compile`] take it from here.

mod identities;
mod list;
mod original;
mod quote;
mod read;
mod scalar;

use serde::Deserialize;

pub(crate) use list::list;
pub use original::Original;
pub(crate) use quote::{printable, quoted};
pub use read::{Error, parse};
use scalar::null_is_default;
pub use scalar::{ConditionValue, Number, Scalar};

/// An environment as Flagsmith tells it to server-side SDKs (specified by its `environment-document/` endpoint).
#[derive(Debug, Clone, Deserialize)]
pub struct Document {
    /// Flagsmith's id of the environment.
    pub id: Option<i64>,
    /// The client key: what identifiers are hashed with.
    pub api_key: String,
    /// The environment's name.
    #[serde(default)]
    pub name: Option<String>,
    /// When it last changed, ISO 8601.
    #[serde(default)]
    updated_at: Option<String>,
    /// Leave disabled flags out; without a value, the project's setting counts.
    #[serde(default)]
    pub hide_disabled_flags: Option<bool>,
    /// The project it belongs to.
    pub project: Project,
    /// One a feature, in the order of the answers.
    pub feature_states: Vec<FeatureState>,
    /// What single identities have instead.
    #[serde(default, deserialize_with = "null_is_default")]
    pub identity_overrides: Vec<Identity>,
}

/// A project, which has the segments of all its environments.
#[derive(Debug, Clone, Deserialize)]
pub struct Project {
    /// Leave disabled flags out.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hide_disabled_flags: bool,
    /// In the order in which ties are decided.
    #[serde(default, deserialize_with = "null_is_default")]
    pub segments: Vec<Segment>,
    /// Features that client keys do not see.
    #[serde(default, deserialize_with = "null_is_default")]
    pub server_key_only_feature_ids: Vec<i64>,
}

/// A segment and what it overrides in this environment.
#[derive(Debug, Clone, Deserialize)]
pub struct Segment {
    /// Flagsmith's id, which percentage splits are hashed with.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// All of these must match.
    #[serde(default, deserialize_with = "null_is_default")]
    pub rules: Vec<Rule>,
    /// What it overrides.
    #[serde(default, deserialize_with = "null_is_default")]
    pub feature_states: Vec<FeatureState>,
}

/// A rule of a segment.
#[derive(Debug, Clone, Deserialize)]
pub struct Rule {
    /// `ALL`, `ANY` or `NONE`.
    #[serde(rename = "type")]
    pub junction: String,
    /// Its own conditions.
    #[serde(default, deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
    /// Its sub-rules.
    #[serde(default, deserialize_with = "null_is_default")]
    pub rules: Vec<Rule>,
}

/// A condition of a rule.
#[derive(Debug, Clone, Deserialize)]
pub struct Condition {
    /// One of Flagsmith's fourteen.
    pub operator: String,
    /// What is compared with.
    #[serde(default)]
    pub value: ConditionValue,
    /// A trait's name or a JSONPath.
    #[serde(default, rename = "property_", deserialize_with = "null_is_default")]
    pub property: String,
}

/// A feature's name and id.
#[derive(Debug, Clone, Deserialize)]
pub struct Feature {
    /// Flagsmith's id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// `STANDARD` or `MULTIVARIATE`.
    #[serde(default = "standard", rename = "type")]
    pub kind: String,
}

fn standard() -> String {
    "STANDARD".to_owned()
}

/// What a feature is, by default or by a segment's override.
#[derive(Debug, Clone, Deserialize)]
pub struct FeatureState {
    /// Of which feature.
    pub feature: Feature,
    /// On or off.
    pub enabled: bool,
    /// The first id of the hash that chooses among variants.
    #[serde(default)]
    pub django_id: Option<i64>,
    /// The same, where there is no `django_id`.
    #[serde(default)]
    pub featurestate_uuid: Option<String>,
    /// Its value.
    #[serde(default)]
    pub feature_state_value: Scalar,
    /// Its variants.
    #[serde(default, deserialize_with = "null_is_default")]
    pub multivariate_feature_state_values: Vec<VariantState>,
    /// How strong a segment's override is.
    #[serde(default)]
    pub feature_segment: Option<FeatureSegment>,
}

/// How strong a segment's override is.
#[derive(Debug, Clone, Deserialize)]
pub struct FeatureSegment {
    /// The lowest wins.
    #[serde(default)]
    pub priority: Option<Number>,
}

/// A variant and its share.
#[derive(Debug, Clone, Deserialize)]
pub struct VariantState {
    /// What it is.
    pub multivariate_feature_option: VariantOption,
    /// Its share in percent.
    pub percentage_allocation: Number,
    /// Variants get their shares in the order of ids.
    #[serde(default)]
    pub id: Option<i64>,
    /// The same, where there is no id.
    #[serde(default)]
    pub mv_fs_value_uuid: Option<String>,
}

/// A variant's value and name.
#[derive(Debug, Clone, Deserialize)]
pub struct VariantOption {
    /// Its value.
    #[serde(default)]
    pub value: Scalar,
    /// Its name.
    #[serde(default)]
    pub key: Option<String>,
}

/// An identity with overrides of its own.
#[derive(Debug, Clone, Deserialize)]
pub struct Identity {
    /// Whose.
    pub identifier: String,
    /// What it has instead.
    #[serde(default, deserialize_with = "null_is_default")]
    pub identity_features: Vec<IdentityFeature>,
}

/// One flag of an identity.
#[derive(Debug, Clone, Deserialize)]
pub struct IdentityFeature {
    /// Of which feature.
    pub feature: IdentityFeatureName,
    /// On or off.
    pub enabled: bool,
    /// Its value.
    #[serde(default)]
    pub feature_state_value: Scalar,
}

/// The feature of an identity's flag. There can be a million of these: only the name, by which it is found.
#[derive(Debug, Clone, Deserialize)]
pub struct IdentityFeatureName {
    /// Its name.
    pub name: Box<str>,
}

impl Document {
    /// When it last changed, as Flagsmith words it.
    #[must_use]
    pub fn updated_at(&self) -> Option<&str> {
        self.updated_at.as_deref()
    }

    /// Appends the identity overrides of a later page.
    ///
    /// # Errors
    /// If the pages are not of one environment at one time; the document is as it was.
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

    /// Are disabled flags left out of answers?
    #[must_use]
    pub fn hides_disabled_flags(&self) -> bool {
        self.hide_disabled_flags.unwrap_or(self.project.hide_disabled_flags)
    }
}
