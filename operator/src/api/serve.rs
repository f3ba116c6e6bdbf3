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
    /// How flags are told to OpenFeature. A flag without a value always answers whether it is enabled.
    #[serde(default)]
    pub ofrep: Ofrep,
}

/// How flags are told to OpenFeature, where there is a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ofrep {
    /// What a flag answers whose value is a boolean.
    #[serde(default)]
    pub boolean_flags: BooleanFlags,
    /// What a disabled flag answers that has a value. Its reason is `DISABLED` in either case.
    #[serde(default)]
    pub disabled_flags: DisabledFlags,
    /// What a flag answers whose value is a text that is a JSON object, such as `{"perMinute": 120}`. Other texts,
    /// lists among them, are texts in either case.
    #[serde(default)]
    pub object_flags: ObjectFlags,
}

/// What a flag answers whose value is a boolean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BooleanFlags {
    /// Its value.
    #[default]
    Value,
    /// Whether it is enabled, as Flagsmith's own provider answers unless it is told `use_boolean_config_value`.
    Enabled,
}

/// What a disabled flag answers that has a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DisabledFlags {
    /// No value: the application's own default counts.
    #[default]
    CodeDefault,
    /// Its value all the same, as Flagsmith's own provider answers when it is told `return_value_for_disabled_flags`.
    Value,
}

/// What a flag answers whose value is a text that is a JSON object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ObjectFlags {
    /// The text: to applications that ask for a string.
    #[default]
    Text,
    /// The object: to applications that ask for an object, as Flagsmith's own provider answers those.
    Object,
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
