use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is left out of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PruneRules {
    /// Which features to keep, by name; all by default.
    #[serde(default)]
    pub features: FeatureRules,
    /// Whether features for server-side keys only are kept. They are never shown to client-side keys.
    #[serde(default)]
    pub server_only_features: Keep,
    /// Whether overrides for single identities are kept.
    #[serde(default)]
    pub identity_overrides: Keep,
}

/// Globs on names of features: `*` is any run of characters, `?` is one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureRules {
    /// Keep only what matches one of these. Empty: keep all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    pub include: Vec<String>,
    /// Of what `include` keeps, drop what matches one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    pub exclude: Vec<String>,
}

/// To keep or to drop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Keep {
    /// It stays in the snapshot.
    #[default]
    Keep,
    /// It is left out.
    Drop,
}

impl Keep {
    /// Whether this says drop.
    pub fn is_drop(self) -> bool {
        self == Self::Drop
    }
}
