//! Input of the writer: an environment whose meaning is resolved to values.
//!
//! Every interpretation happens before the writer: the target of a property, the numeric value of a string, the
//! automaton of a regular expression. The writer only lays out the result.

mod members;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use members::{Members, MembersBuilder, TooLong};

/// A value as one JSON token: `null`, `true`, `42`, `"x"`.
pub type Json = String;

/// An environment, ready to be written.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Name of the environment in the operator.
    pub name: String,
    /// Flagsmith's client key. It is hashed together with identifiers.
    pub client_key: String,
    /// Keys with access to server-only features. Only their hashes are stored.
    pub server_keys: Vec<String>,
    /// Features in the order of the answers.
    pub features: Vec<Feature>,
    /// Segments in the order of the document: the first of two equal priorities wins.
    pub segments: Vec<Segment>,
    /// Properties that conditions read.
    pub properties: Vec<Property>,
    /// Identity overrides, at most one per identifier.
    pub identity_overrides: Vec<IdentityOverride>,
    /// Experiments by the index of their feature.
    pub experiments: BTreeMap<usize, Experiment>,
    /// True if answers omit flags whose evaluated state is disabled.
    pub hide_disabled: bool,
    /// Segments that apply to the answer without an identity.
    pub environment_flags: EnvironmentFlags,
    /// Options of OFREP answers.
    pub ofrep: Ofrep,
    /// Warnings for people, one line each.
    pub notes: Vec<String>,
    /// The document itself, if it is served.
    pub document: Option<Compressed>,
}

/// An experiment on a feature: flags of identities have the variant, and the metadata of the state that won.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Experiment {
    /// Metadata of the feature's default.
    pub default: Option<Json>,
    /// Metadata of overrides, by the index of the segment and the position among its overrides.
    pub overrides: BTreeMap<(usize, usize), Json>,
}

/// A document, compressed with gzip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compressed {
    /// A gzip stream with one member, whose header has no optional fields. Its time is that of the document's last
    /// change, rounded up to whole seconds, or zero.
    pub gzip: Vec<u8>,
    /// Length of the uncompressed document in bytes.
    pub length: u64,
}

/// Options of OFREP answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ofrep {
    /// Value of a boolean flag.
    pub boolean_flags: BooleanFlags,
    /// Value of a disabled flag that has a value.
    pub disabled_flags: DisabledFlags,
    /// Value of a flag whose value is a string that holds a JSON object.
    pub object_flags: ObjectFlags,
}

/// OFREP result for a flag whose value is a boolean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BooleanFlags {
    /// The value.
    #[default]
    Value,
    /// The enabled state, which is the default of Flagsmith's own provider.
    Enabled,
}

/// OFREP result for a disabled flag that has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DisabledFlags {
    /// No value: the application uses its own default.
    #[default]
    CodeDefault,
    /// The value, as for an enabled flag.
    Value,
}

/// OFREP result for a flag whose value is a string that holds a JSON object. Other strings are always strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ObjectFlags {
    /// The string.
    #[default]
    Text,
    /// The parsed object.
    Object,
}

/// Segments that apply to `GET flags/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EnvironmentFlags {
    /// No segments, like Flagsmith's API.
    #[default]
    Plain,
    /// Segments whose conditions all read the environment or flags, like Flagsmith's engine crate 0.7.
    IdentityFree,
    /// All segments, without an identity: Flagsmith's edge proxy.
    AllSegments,
}

/// A feature and its default.
#[derive(Debug, Clone)]
pub struct Feature {
    /// Flagsmith's id.
    pub id: i64,
    /// Name, as in the document.
    pub name: String,
    /// `STANDARD` or `MULTIVARIATE`. Answers contain it; evaluation ignores it.
    pub kind: String,
    /// True if answers contain the feature. Otherwise only conditions read it.
    pub served: bool,
    /// True if the feature is hidden from client keys.
    pub server_only: bool,
    /// State without overrides.
    pub default: Context,
}

/// One state of a feature.
#[derive(Debug, Clone)]
pub struct Context {
    /// Enabled or disabled.
    pub enabled: bool,
    /// Value; the control value if there are variants.
    pub value: Json,
    /// Variants, if any.
    pub split: Option<Split>,
}

/// The variants of a context.
#[derive(Debug, Clone)]
pub struct Split {
    /// First id of the hash.
    pub seed: String,
    /// Variants, in the order in which percentages are assigned.
    pub variants: Vec<Variant>,
}

/// One variant of a split.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Weight in percent.
    pub weight: f64,
    /// Weight as printed in a reason.
    pub weight_text: String,
    /// Value of the variant.
    pub value: Json,
    /// Name of the variant.
    pub key: Option<String>,
}

/// A segment and its overrides.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Flagsmith's id as text, because it is hashed.
    pub id: String,
    /// Name of the segment.
    pub name: String,
    /// Rules, all of which must match. A segment without rules never matches.
    pub rules: Vec<Rule>,
    /// Overrides of the segment.
    pub overrides: Vec<Override>,
    /// True if all conditions read the environment or flags.
    pub identity_free: bool,
}

/// A segment's override of one feature.
#[derive(Debug, Clone)]
pub struct Override {
    /// Index in [`Environment::features`].
    pub feature: usize,
    /// Priority. The lowest wins; no priority loses against any.
    pub priority: Option<f64>,
    /// State of the feature under this override.
    pub context: Context,
}

/// Junction of a rule. A rule combines conditions and sub-rules separately, each with this junction, and both
/// must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Junction {
    /// Every part holds.
    All,
    /// At least one part holds.
    Any,
    /// No part holds.
    None,
}

/// A rule. A rule without conditions and sub-rules matches.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Junction of its parts.
    pub junction: Junction,
    /// Conditions of the rule itself.
    pub conditions: Vec<Condition>,
    /// Sub-rules.
    pub rules: Vec<Rule>,
}

/// One condition.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Index in [`Environment::properties`].
    pub property: usize,
    /// Test of the property's value.
    pub test: Test,
}

/// The test of a condition.
#[derive(Debug, Clone)]
pub enum Test {
    /// A known result.
    Constant(bool),
    /// `EQUAL` and the other comparisons.
    Compare(Comparison, Comparand),
    /// `CONTAINS`.
    Contains(Comparand),
    /// `NOT_CONTAINS`.
    NotContains(Comparand),
    /// `REGEX`.
    Matches(Pattern),
    /// `MODULO`. Neither number is NaN, and the divisor is not zero.
    Modulo {
        /// Divisor of the value.
        divisor: f64,
        /// Required remainder.
        remainder: f64,
    },
    /// `IN`.
    In(Members),
    /// `PERCENTAGE_SPLIT`. The segment's id is hashed with the property.
    Percentage {
        /// Maximum percentage, inclusive.
        threshold: f64,
    },
    /// `IS_SET`.
    IsSet,
    /// `IS_NOT_SET`.
    IsNotSet,
}

/// The operator of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `EQUAL`
    Equal,
    /// `NOT_EQUAL`
    NotEqual,
    /// `GREATER_THAN`
    Greater,
    /// `GREATER_THAN_INCLUSIVE`
    GreaterOrEqual,
    /// `LESS_THAN`
    Less,
    /// `LESS_THAN_INCLUSIVE`
    LessOrEqual,
}

/// A condition's value in each type that the left side may have. If it cannot be cast to a type, every comparison with
/// a left side of that type is false.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparand {
    /// The value as a boolean.
    pub boolean: bool,
    /// The value as an integer, in canonical digits.
    pub integer: Option<String>,
    /// The value as a float.
    pub float: Option<f64>,
    /// The value as a string, without its suffix if `semver`.
    pub text: String,
    /// True if the value ended in `:semver`.
    pub semver: bool,
}

/// A compiled regular expression. Conditions with the same pattern share its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// An automaton in the format of the module `automaton`.
    Automaton(Arc<[u8]>),
    /// A program for the backtracking engine, in the format of the module `backtrack`.
    Backtracking(Arc<[u8]>),
}

/// A property that conditions read: the trait of this name if it is set, otherwise the derived value.
#[derive(Debug, Clone, PartialEq)]
pub struct Property {
    /// The property as the condition names it. `None`: no trait can replace the derived value.
    pub name: Option<String>,
    /// Value without such a trait.
    pub derivation: Derivation,
}

/// Value of a property without a trait of its name.
#[derive(Debug, Clone, PartialEq)]
pub enum Derivation {
    /// Not set.
    Plain,
    /// The identity's identifier.
    Identifier,
    /// The identity's key: client key, underscore, identifier.
    IdentityKey,
    /// The value of another property with a smaller index (`$.identity.traits.x` is `x`).
    SameAs(usize),
    /// A constant of the environment, as a JSON token. Many properties may have the same one.
    Constant(Arc<str>),
    /// A member of another flag's result.
    Flag {
        /// Index in [`Environment::features`].
        feature: usize,
        /// Member of the result.
        field: FlagField,
    },
}

/// A member of a flag's result that a condition can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagField {
    /// `enabled`
    Enabled = 0,
    /// `value`
    Value = 1,
    /// `variant`
    Variant = 2,
    /// `reason`
    Reason = 3,
    /// `name`
    Name = 4,
    /// `metadata.id`
    Id = 5,
    /// Any other member, which is never set. The flag is resolved nevertheless, which may close a cycle.
    Other = 6,
}

/// The override of one identity.
#[derive(Debug, Clone, PartialEq)]
pub struct IdentityOverride {
    /// Identifier of the identity. It is stored as a hash.
    pub identifier: String,
    /// Flags of the override, at most one per feature.
    pub flags: Vec<IdentityFlag>,
}

/// One flag of an identity override.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdentityFlag {
    /// Flagsmith's id of the feature.
    pub feature: i64,
    /// Enabled or disabled.
    pub enabled: bool,
    /// Value of the flag.
    pub value: Json,
    /// Variant of the flag, if it has variants. The writer's caller chooses it, because the identity is known. Boxed,
    /// because an environment can have a million flags, and few of them have variants.
    pub variant: Option<Box<IdentityVariant>>,
}

/// The variant of an identity override.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdentityVariant {
    /// No variant: the flag has its own value.
    Control,
    /// A variant, whose value the flag has.
    Variant {
        /// Name of the variant.
        key: Option<String>,
        /// Weight as printed in a reason.
        weight_text: String,
    },
}
