//! `spec.serve`: answers of the sidecar where the protocols leave a choice.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Answers of the sidecar where Flagsmith's API, its edge proxy and OFREP leave a choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Serve {
    /// Serves `GET /api/v1/environment-document/` to requests with the server-side key; SDKs in local evaluation mode fetch it.
    /// The snapshot then contains the pruned document itself, with the rules of segments and the identifiers of identity
    /// overrides, neither of which it contains otherwise. Needs `spec.source.flagsmith`. Default: false.
    #[serde(default)]
    pub environment_document: bool,
    /// Segment overrides that `GET /api/v1/flags/` applies; the request has no identity. `Plain` (default): none, as
    /// Flagsmith's API. `IdentityFree`: those of segments whose conditions read no identity and no trait. `AllSegments`: those
    /// of all segments that match without an identity, as Flagsmith's edge proxy.
    #[serde(default)]
    pub environment_flags: EnvironmentFlags,
    /// Form of flags in OFREP. A flag without a value always returns whether it is enabled.
    #[serde(default)]
    pub ofrep: Ofrep,
}

/// Form of flags in OFREP where OpenFeature leaves a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ofrep {
    /// OFREP's answer for a flag whose value is a boolean. `Value` (default): the value. `Enabled`: whether the flag is
    /// enabled, as Flagsmith's own provider without `use_boolean_config_value`.
    #[serde(default)]
    pub boolean_flags: BooleanFlags,
    /// OFREP's answer for a disabled flag that has a value; the reason is `DISABLED` in either case. `CodeDefault`
    /// (default): no value, so that the application uses its own default. `Value`: the value, as Flagsmith's own
    /// provider with `return_value_for_disabled_flags`.
    #[serde(default)]
    pub disabled_flags: DisabledFlags,
    /// OFREP's answer for a flag whose value is a string holding a JSON object, such as `{"perMinute": 120}`. `Text` (default):
    /// the string. `Object`: the parsed object. Strings holding anything else, lists included, stay strings.
    #[serde(default)]
    pub object_flags: ObjectFlags,
}

/// OFREP's answer for a flag whose value is a boolean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BooleanFlags {
    /// The value.
    #[default]
    Value,
    /// Whether the flag is enabled, as Flagsmith's own provider without `use_boolean_config_value`.
    Enabled,
}

/// OFREP's answer for a disabled flag that has a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DisabledFlags {
    /// No value: the application uses its own default.
    #[default]
    CodeDefault,
    /// The value, as Flagsmith's own provider with `return_value_for_disabled_flags`.
    Value,
}

/// OFREP's answer for a flag whose value is a string holding a JSON object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ObjectFlags {
    /// The string, for applications that ask for a string.
    #[default]
    Text,
    /// The parsed object, for applications that ask for an object, as Flagsmith's own provider.
    Object,
}

/// Segment overrides that apply to a request without an identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EnvironmentFlags {
    /// None, as Flagsmith's API.
    #[default]
    Plain,
    /// Overrides of segments whose conditions read the environment or flags, and no identity or trait.
    IdentityFree,
    /// Overrides of all segments that match without an identity, as Flagsmith's edge proxy.
    AllSegments,
}
