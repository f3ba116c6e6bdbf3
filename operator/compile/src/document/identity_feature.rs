//! Parses the flags of identities. A document can have a million of them, so each of them holds little.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{IdentityFeature, IdentityFeatureName, Scalar, VariantState, scalar::null_is_default, seed};

/// Variants of an identity's flag. The dashboard's "select variation" gives one of them 100 percent.
#[derive(Debug, Clone)]
pub struct Variants {
    /// Seed of the hash that chooses among the variants.
    pub seed: Option<String>,
    /// Variants and their percentages.
    pub states: Vec<VariantState>,
}

/// One variant, as far as answers depend on it.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Content<'a> {
    order: Option<(bool, u128)>,
    weight: &'a str,
    value: &'a str,
    key: Option<&'a str>,
}

impl Variants {
    /// Returns the part of the variants that answers depend on, which is equal for equal answers.
    pub(super) fn content(&self) -> (Option<&str>, Vec<Content<'_>>) {
        let mut contents: Vec<Content<'_>> = self.states.iter().map(Content::from).collect();
        contents.sort_by_key(|content| content.order);
        (self.seed.as_deref(), contents)
    }
}

impl<'a> From<&'a VariantState> for Content<'a> {
    fn from(state: &'a VariantState) -> Self {
        let option = &state.multivariate_feature_option;
        Self {
            order: state.order(),
            weight: &state.percentage_allocation.text,
            value: option.value.token(),
            key: option.key.as_deref(),
        }
    }
}

/// A flag as the document has it.
#[derive(Deserialize)]
struct State<'a> {
    feature: IdentityFeatureName,
    enabled: bool,
    #[serde(default)]
    feature_state_value: Scalar,
    #[serde(default)]
    django_id: Option<i64>,
    /// Parsed only if the flag has variants.
    #[serde(default, borrow)]
    featurestate_uuid: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "null_is_default")]
    multivariate_feature_state_values: Vec<VariantState>,
}

impl<'de> Deserialize<'de> for IdentityFeature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let state = State::deserialize(deserializer)?;
        let states = state.multivariate_feature_state_values;
        let mut variants = None;
        if !states.is_empty() {
            let uuid: Option<String> = match state.featurestate_uuid {
                Some(uuid) => serde_json::from_str(uuid.get()).map_err(D::Error::custom)?,
                None => None,
            };
            variants = Some(Box::new(Variants { seed: seed(state.django_id, uuid.as_deref()), states }));
        }
        Ok(Self {
            feature: state.feature,
            enabled: state.enabled,
            feature_state_value: state.feature_state_value,
            variants,
        })
    }
}
