//! Changes that do not move a document's `updated_at` in Flagsmith's API: a request with `If-Modified-Since` gets 304
//! although the document is another one.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::document::FlagChange;
use super::ordered_object::OrderedObject;

/// Change that does not move `updated_at`, by its kind.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum SilentChange {
    /// A variant of a feature gets another value.
    VariantValue {
        /// Name of the feature.
        feature: String,
        /// ID of the variant's option.
        option: i64,
        /// New value.
        value: Value,
    },
    /// The override of an identity switches to another variant.
    OverrideVariant {
        /// Identifier of the identity.
        identifier: String,
        /// Name of the feature.
        feature: String,
        /// ID of the variant's option, which gets 100 %.
        option: i64,
    },
    /// An identity is deleted together with its overrides.
    IdentityDeleted {
        /// Identifier of the identity.
        identifier: String,
    },
    /// The project's `hide_disabled_flags` changes.
    HideDisabledFlags {
        /// New setting.
        hide: bool,
    },
    /// A scheduled version of a feature goes live.
    VersionLive {
        /// Name of the feature.
        feature: String,
        /// State of the feature in the new version.
        change: FlagChange,
    },
}

impl SilentChange {
    /// Applies the change to the members of a document and to its identity overrides.
    ///
    /// # Errors
    ///
    /// Returns an error if the document lacks the changed part, or its shape is not Flagsmith's.
    pub(super) fn apply(&self, members: &mut OrderedObject, overrides: &mut Vec<OrderedObject>) -> anyhow::Result<()> {
        match self {
            Self::VariantValue { feature, option, value } => in_states(members, "feature_states", feature, |state| {
                in_variant(state, *option, |variant| {
                    let mut found: OrderedObject = variant.get(OPTION)?.context("a variant without its option")?;
                    found.set("value", value)?;
                    Ok(variant.set(OPTION, &found)?)
                })
            }),
            Self::OverrideVariant { identifier, feature, option } => {
                let identity = identity(overrides, identifier)?;
                in_states(identity, "identity_features", feature, |state| select(state, *option))
            }
            Self::IdentityDeleted { identifier } => {
                identity(overrides, identifier)?;
                overrides.retain(|own| !is_identity(own, identifier));
                Ok(())
            }
            Self::HideDisabledFlags { hide } => {
                let mut project: OrderedObject = members.get("project")?.context("the document has no `project`")?;
                project.set("hide_disabled_flags", hide)?;
                Ok(members.set("project", &project)?)
            }
            Self::VersionLive { feature, change } => {
                in_states(members, "feature_states", feature, |state| change.apply(state))
            }
        }
    }
}

const OPTION: &str = "multivariate_feature_option";
const VARIANTS: &str = "multivariate_feature_state_values";

fn is_identity(identity: &OrderedObject, identifier: &str) -> bool {
    identity.get::<String>("identifier").is_ok_and(|own| own.as_deref() == Some(identifier))
}

fn identity<'a>(overrides: &'a mut [OrderedObject], identifier: &str) -> anyhow::Result<&'a mut OrderedObject> {
    let found = overrides.iter_mut().find(|identity| is_identity(identity, identifier));
    found.with_context(|| format!("no identity `{identifier}` with overrides in the document"))
}

/// Changes the state of the feature with this name in a list of states.
pub(super) fn in_states(
    parent: &mut OrderedObject,
    list: &str,
    name: &str,
    change: impl FnOnce(&mut OrderedObject) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut states: Vec<OrderedObject> = parent.get(list)?.with_context(|| format!("the document has no `{list}`"))?;
    let mut names = Vec::new();
    for state in &mut states {
        let feature: OrderedObject = state.get("feature")?.context("a feature state without `feature`")?;
        let own: String = feature.get("name")?.context("a feature without `name`")?;
        if own == name {
            change(state)?;
            return Ok(parent.set(list, &states)?);
        }
        names.push(own);
    }
    anyhow::bail!("no feature `{name}` in the document; it has: {}", names.join(", "))
}

fn option_of(variant: &OrderedObject) -> anyhow::Result<Option<i64>> {
    let option: OrderedObject = variant.get(OPTION)?.context("a variant without its option")?;
    Ok(option.get("id")?)
}

fn in_variant(
    state: &mut OrderedObject,
    option: i64,
    change: impl FnOnce(&mut OrderedObject) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut variants: Vec<OrderedObject> = state.get(VARIANTS)?.unwrap_or_default();
    for variant in &mut variants {
        if option_of(variant)? == Some(option) {
            change(variant)?;
            return Ok(state.set(VARIANTS, &variants)?);
        }
    }
    anyhow::bail!("the feature has no variant with the option {option}")
}

/// Gives the variant with this option 100 %, and the others nothing.
fn select(state: &mut OrderedObject, option: i64) -> anyhow::Result<()> {
    in_variant(state, option, |_| Ok(()))?;
    let mut variants: Vec<OrderedObject> = state.get(VARIANTS)?.unwrap_or_default();
    for variant in &mut variants {
        let share = if option_of(variant)? == Some(option) { 100.0 } else { 0.0 };
        variant.set("percentage_allocation", &share)?;
    }
    Ok(state.set(VARIANTS, &variants)?)
}
