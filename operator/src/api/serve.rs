use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the sidecar answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Serve {
    /// What the answer to `GET /api/v1/flags/`, which knows no identity, applies.
    #[serde(default)]
    pub environment_flags: AppliedTo,
}

/// What applies to a request without an identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AppliedTo {
    /// The environment's own values, as Flagsmith's API answers.
    #[default]
    Plain,
    /// Also segments that are decided without an identity, such as those on the environment's name.
    IdentityFree,
    /// All segments, evaluated for an identity without key and traits.
    AllSegments,
}
