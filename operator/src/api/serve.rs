use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the sidecar answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Serve {
    /// Also answer `GET /api/v1/environment-document/`, which SDKs in local evaluation fetch, to requests with the
    /// server-side key. The snapshot then has the document itself in it, less what is pruned: rules of segments, and
    /// the identifiers of identity overrides, which otherwise are not stored.
    #[serde(default)]
    pub environment_document: bool,
    /// What the answer to `GET /api/v1/flags/`, which knows no identity, applies.
    #[serde(default)]
    pub environment_flags: AppliedTo,
}

/// What applies to a request without an identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AppliedTo {
    /// No segments, as Flagsmith's API answers.
    #[default]
    Plain,
    /// Segments whose conditions all read the environment or flags, none an identity.
    IdentityFree,
    /// All segments, evaluated without an identity, as Flagsmith's edge proxy answers.
    AllSegments,
}
