//! `spec.prune`: parts of the document that the snapshot does not need.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parts of the document that the operator leaves out of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PruneRules {
    /// Features to keep, selected by name. Default: all.
    #[serde(default)]
    pub features: FeatureRules,
    /// Features that Flagsmith marks as server-side only. `Keep` (default): the sidecar serves them to requests with the
    /// server-side key, never to others. `Drop`: they are not part of the snapshot.
    #[serde(default)]
    pub server_only_features: Keep,
    /// Overrides for single identities. `Keep` (default): the sidecar applies them. `Drop`: they are not part of the snapshot,
    /// and every identity gets what the environment and its segments give.
    #[serde(default)]
    pub identity_overrides: Keep,
}

/// Globs on feature names: `*` matches any run of characters, `?` matches one character. Both lists have at most 4,096
/// characters together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.include) ? self.include.map(glob, size(glob)).sum() : 0) + (has(self.exclude) ? self.exclude.map(glob, size(glob)).sum() : 0) <= 4096")
    .message("include and exclude have more than 4,096 characters together; write fewer or shorter globs, as checkout_* for all that begin alike"))]
pub struct FeatureRules {
    /// Globs of the features to keep, for example `checkout_*`. Default: empty, which keeps all features.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    pub include: Vec<String>,
    /// Globs of features to drop from those that `include` keeps, for example `legacy_*`. Default: empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    pub exclude: Vec<String>,
}

/// Whether to keep a kind of content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Keep {
    /// The content is part of the snapshot.
    #[default]
    Keep,
    /// The content is not part of the snapshot.
    Drop,
}

impl Keep {
    /// True for `Drop`.
    pub fn is_drop(self) -> bool {
        self == Self::Drop
    }
}
