//! What the writer is given: an environment whose meaning is settled, in values.
//!
//! Everything that takes judgement (what a property refers to, what a string is as a number, which automaton a regular
//! expression is) is decided before; the writer only lays it out.

mod members;

use std::sync::Arc;

pub use members::{Members, MembersBuilder, TooLong};

/// A value as one JSON token or text: `null`, `true`, `42`, `"x"`.
pub type Json = String;

/// An environment, ready to be written.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// The name that the operator knows it by.
    pub name: String,
    /// Flagsmith's client key: it is hashed together with identifiers.
    pub client_key: String,
    /// Keys that may see server-only features. Only their hashes are stored.
    pub server_keys: Vec<String>,
    /// In the order of the answers.
    pub features: Vec<Feature>,
    /// In the order of the document: the first of two equal priorities wins.
    pub segments: Vec<Segment>,
    /// What conditions read.
    pub properties: Vec<Property>,
    /// One an identifier.
    pub identity_overrides: Vec<IdentityOverride>,
    /// Leave flags out whose evaluated state is disabled.
    pub hide_disabled: bool,
    /// What the answer without an identity applies.
    pub environment_flags: EnvironmentFlags,
    /// How flags are told to OpenFeature.
    pub ofrep: Ofrep,
    /// What people should know of it, a line each.
    pub notes: Vec<String>,
    /// The document itself, where it is served.
    pub document: Option<Compressed>,
}

/// A document, compressed with gzip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compressed {
    /// A gzip stream of one member, whose header has no optional fields.
    pub gzip: Vec<u8>,
    /// How many bytes the document has.
    pub length: u64,
}

/// How flags are told to OpenFeature, where there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ofrep {
    /// A flag whose value is a boolean.
    pub boolean_flags: BooleanFlags,
    /// A disabled flag that has a value.
    pub disabled_flags: DisabledFlags,
    /// A flag whose value is a text that is a JSON object.
    pub object_flags: ObjectFlags,
}

/// What a flag whose value is a boolean answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BooleanFlags {
    /// Its value.
    #[default]
    Value,
    /// Whether it is enabled, as Flagsmith's own provider does unless it is told otherwise.
    Enabled,
}

/// What a disabled flag that has a value answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DisabledFlags {
    /// Nothing: the application's own default counts.
    #[default]
    CodeDefault,
    /// Its value all the same.
    Value,
}

/// What a flag whose value is a text that is a JSON object answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ObjectFlags {
    /// The text.
    #[default]
    Text,
    /// The object.
    Object,
}

/// What `GET flags/` applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EnvironmentFlags {
    /// No segments: Flagsmith's API.
    #[default]
    Plain,
    /// Segments whose conditions all read the environment or flags: Flagsmith's engine crate 0.7.
    IdentityFree,
    /// All segments, without an identity: Flagsmith's edge proxy.
    AllSegments,
}

/// A feature and its default.
#[derive(Debug, Clone)]
pub struct Feature {
    /// Flagsmith's id.
    pub id: i64,
    /// Its name, as in the document.
    pub name: String,
    /// `STANDARD` or `MULTIVARIATE`; only told, it does not change the evaluation.
    pub kind: String,
    /// In answers at all; else it is only there for conditions that read it.
    pub served: bool,
    /// Not shown to client keys.
    pub server_only: bool,
    /// What it is when nothing overrides it.
    pub default: Context,
}

/// One state that a feature can have.
#[derive(Debug, Clone)]
pub struct Context {
    /// On or off.
    pub enabled: bool,
    /// Its value; the control value where there are variants.
    pub value: Json,
    /// Its variants.
    pub split: Option<Split>,
}

/// The variants of a context.
#[derive(Debug, Clone)]
pub struct Split {
    /// The first id of the hash.
    pub seed: String,
    /// In the order in which percentages are handed out.
    pub variants: Vec<Variant>,
}

/// One outcome of a split.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Its share in percent.
    pub weight: f64,
    /// The share as it is printed in a reason.
    pub weight_text: String,
    /// Its value.
    pub value: Json,
    /// Its name.
    pub key: Option<String>,
}

/// A segment and what it overrides.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Flagsmith's id, as text: it is hashed.
    pub id: String,
    /// Its name.
    pub name: String,
    /// All of these must match; without any, it never does.
    pub rules: Vec<Rule>,
    /// What it overrides.
    pub overrides: Vec<Override>,
    /// All its conditions read the environment or flags.
    pub identity_free: bool,
}

/// A segment's override of one feature.
#[derive(Debug, Clone)]
pub struct Override {
    /// Index in [`Environment::features`].
    pub feature: usize,
    /// The lowest wins; none loses against any.
    pub priority: Option<f64>,
    /// What the feature then is.
    pub context: Context,
}

/// How a rule joins its parts. It joins conditions and sub-rules apart, by the same junction, and needs both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Junction {
    /// Every part.
    All,
    /// At least one part.
    Any,
    /// No part.
    None,
}

/// A rule. Without conditions and sub-rules it matches.
#[derive(Debug, Clone)]
pub struct Rule {
    /// How its parts are joined.
    pub junction: Junction,
    /// Its own conditions.
    pub conditions: Vec<Condition>,
    /// Its sub-rules.
    pub rules: Vec<Rule>,
}

/// One condition.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Index in [`Environment::properties`].
    pub property: usize,
    /// What is asked of it.
    pub test: Test,
}

/// The question of a condition.
#[derive(Debug, Clone)]
pub enum Test {
    /// Known without looking.
    Constant(bool),
    /// `EQUAL` and its like.
    Compare(Comparison, Comparand),
    /// `CONTAINS`.
    Contains(Comparand),
    /// `NOT_CONTAINS`.
    NotContains(Comparand),
    /// `REGEX`.
    Matches(Pattern),
    /// `MODULO`; neither is NaN and the divisor is not zero.
    Modulo {
        /// Divided by this,
        divisor: f64,
        /// this must remain.
        remainder: f64,
    },
    /// `IN`.
    In(Members),
    /// `PERCENTAGE_SPLIT`; the segment's id is hashed with the property.
    Percentage {
        /// At most this.
        threshold: f64,
    },
    /// `IS_SET`.
    IsSet,
    /// `IS_NOT_SET`.
    IsNotSet,
}

/// An order that is asked for.
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

/// A condition's value in each type that the left side may have. A type that it cannot be cast to makes any comparison
/// with a left side of that type false.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparand {
    /// As a boolean.
    pub boolean: bool,
    /// As an integer, in canonical digits.
    pub integer: Option<String>,
    /// As a float.
    pub float: Option<f64>,
    /// As a string; without its suffix where `semver`.
    pub text: String,
    /// It ended in `:semver`.
    pub semver: bool,
}

/// A regular expression, compiled. Conditions with the same pattern share the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// An automaton, in the format of the module `automaton`.
    Automaton(Arc<[u8]>),
    /// A program for the backtracking engine, in the format of the module `backtrack`.
    Backtracking(Arc<[u8]>),
}

/// Something that conditions read: the trait of this name if it is set, else what it is derived from.
#[derive(Debug, Clone, PartialEq)]
pub struct Property {
    /// The property as the condition has it; `None`: no trait can stand in for it.
    pub name: Option<String>,
    /// What it is without such a trait.
    pub derivation: Derivation,
}

/// What a property is when no trait has its name.
#[derive(Debug, Clone, PartialEq)]
pub enum Derivation {
    /// Nothing: it is not set.
    Plain,
    /// The identity's identifier.
    Identifier,
    /// The identity's key: client key, underscore, identifier.
    IdentityKey,
    /// Another property, with a smaller index (`$.identity.traits.x` is `x`).
    SameAs(usize),
    /// A constant of the environment: a JSON token.
    Constant(Json),
    /// A member of another flag's result.
    Flag {
        /// Index in [`Environment::features`].
        feature: usize,
        /// Which member.
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
    /// Anything else, which is never set. The flag is resolved nevertheless, and that may close a cycle.
    Other = 6,
}

/// What one identity has instead.
#[derive(Debug, Clone, PartialEq)]
pub struct IdentityOverride {
    /// Whose. It is stored as a hash.
    pub identifier: String,
    /// At most one a feature.
    pub flags: Vec<IdentityFlag>,
}

/// One flag of an identity override.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdentityFlag {
    /// Flagsmith's id of the feature.
    pub feature: i64,
    /// On or off.
    pub enabled: bool,
    /// The value.
    pub value: Json,
}
