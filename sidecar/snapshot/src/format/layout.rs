//! Where things are in the bytes: the header, the sections, and the rows of each table.
//!
//! Both sides use these types: the writer encodes rows, the reader decodes them in place. The crate's documentation has
//! the same as tables for people.

use crate::format::model::Comparison;
use crate::values::hash::Label;
use crate::values::rows::{Row, Span};

/// A reader refuses every other major. Where rows change, this does, too: names of published objects carry it, so that
/// running sidecars keep what they can read.
pub const FORMAT_MAJOR: u16 = 2;
/// Minors only add: a reader ignores what it does not know of a higher one.
pub const FORMAT_MINOR: u16 = 0;
/// The required-feature bits that this reader has.
pub(crate) const SUPPORTED_FEATURES: u32 = 0;

pub(crate) const CORE_MAGIC: [u8; 8] = *b"REMORA\x1aC";
pub(crate) const DOCUMENT_MAGIC: [u8; 8] = *b"REMORA\x1aD";

/// The bytes before the checksum's end are not under the checksum.
pub(crate) const CHECKED_FROM: usize = 40;
pub(crate) const HEADER: usize = 64;

/// The sections of a core file, in the order of its section table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Blob,
    Features,
    FeatureNames,
    FeatureIds,
    SplitFeatures,
    Answers,
    Bounds,
    Contexts,
    Splits,
    Variants,
    Segments,
    Blocks,
    Columns,
    Moduli,
    Shares,
    Marks,
    Listed,
    Joints,
    Finds,
    Wants,
    Claiming,
    Claims,
    Runs,
    Ranks,
    Edges,
    Ranked,
    Code,
    Slots,
    TraitNames,
    Derived,
    BigIntegers,
    Members,
    Patterns,
    Programs,
    Keys,
    Origin,
    Literals,
    Notes,
    Overrides,
}

/// How many sections there are.
pub(crate) const SECTIONS: usize = Section::Overrides as usize + 1;
pub(crate) const CORE_START: usize = HEADER + SECTIONS * 8;

/// Where the bytes of a document begin in its file, behind the header and the [`Part`].
pub(crate) const DOCUMENT_START: usize = HEADER + 40;

/// Reads the fields of a row one after another. Rows are short and their sizes are constants, so a field beyond the end
/// is a fault of this file alone; it reads as zero.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    #[inline(always)]
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((field, rest)) => {
                self.0 = rest;
                *field
            }
            None => [0; N],
        }
    }
    #[inline(always)]
    fn u8(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }
    #[inline(always)]
    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }
    #[inline(always)]
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    #[inline(always)]
    fn i64(&mut self) -> i64 {
        i64::from_le_bytes(self.take())
    }
    #[inline(always)]
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
    #[inline(always)]
    fn f64(&mut self) -> f64 {
        f64::from_le_bytes(self.take())
    }
    #[inline(always)]
    fn span(&mut self) -> Span {
        Span { start: self.u32(), length: self.u32() }
    }
}

/// Writes the fields of a row one after another.
struct Pen<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Pen<N> {
    fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }
    fn put(mut self, field: &[u8]) -> Self {
        let end = self.at + field.len();
        if let Some(place) = self.bytes.get_mut(self.at..end) {
            place.copy_from_slice(field);
        }
        self.at = end;
        self
    }
    fn span(self, span: Span) -> Self {
        self.put(&span.start.to_le_bytes()).put(&span.length.to_le_bytes())
    }
}

/// `row!` declares a row: its fields in the order in which they are stored, and its size, which is checked.
macro_rules! row {
    ($(#[$doc:meta])* $name:ident, $size:literal, { $($(#[$field_doc:meta])* $field:ident: $kind:tt),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        pub(crate) struct $name { $($(#[$field_doc])* pub(crate) $field: row!(@type $kind)),+ }
        impl Row<$size> for $name {
            fn encode(&self) -> [u8; $size] {
                const { assert!($(row!(@size $kind) +)+ 0 == $size, "the fields do not fill the row") };
                let pen = Pen::<$size>::new();
                $(let pen = row!(@put pen, $kind, self.$field);)+
                pen.bytes
            }
            #[inline(always)]
            fn decode(bytes: &[u8; $size]) -> Self {
                let mut fields = Fields(bytes);
                Self { $($field: row!(@take fields, $kind)),+ }
            }
        }
    };
    (@type u8) => { u8 }; (@type u16) => { u16 }; (@type u32) => { u32 }; (@type u64) => { u64 }; (@type i64) => { i64 }; (@type f64) => { f64 };
    (@type span) => { Span }; (@type hash96) => { [u8; 12] }; (@type hash128) => { [u8; 16] };
    (@size u8) => { 1 }; (@size u16) => { 2 }; (@size u32) => { 4 }; (@size u64) => { 8 }; (@size i64) => { 8 }; (@size f64) => { 8 };
    (@size span) => { 8 }; (@size hash96) => { 12 }; (@size hash128) => { 16 };
    (@put $pen:ident, span, $value:expr) => { $pen.span($value) };
    (@put $pen:ident, hash96, $value:expr) => { $pen.put(&$value) };
    (@put $pen:ident, hash128, $value:expr) => { $pen.put(&$value) };
    (@put $pen:ident, $kind:tt, $value:expr) => { $pen.put(&$value.to_le_bytes()) };
    (@take $fields:ident, hash96) => { $fields.take() }; (@take $fields:ident, hash128) => { $fields.take() };
    (@take $fields:ident, $kind:tt) => { $fields.$kind() };
}

// Behind the macro, which it uses.
mod index;
mod overrides;

pub(crate) use index::{BLOCK, Block, Column, Find, Joint, Listed, Mark, Modulus, Share, Want};
pub(crate) use overrides::{
    Bucket, ENABLED, Entry, Item, LENGTH_MASK, OVERRIDES_MAGIC, OVERRIDES_START, OverridesSection,
};

row!(
    /// A feature, in the order of the answers.
    Feature, 56, {
        id: i64,
        name: span,
        /// `{"feature":{"id":1,"name":"x","type":"STANDARD"},"enabled":`
        flagsmith_head: span,
        /// `{"key":"x"`
        ofrep_head: span,
        /// `,"metadata":{"featureId":1,"enabled":`
        ofrep_tail: span,
        /// What it is when nothing overrides it.
        context: u32,
        /// Its first row in `Ranked`.
        ranked: u32,
        ranked_length: u32,
        flags: u32,
    }
);

/// Not for client keys.
pub(crate) const SERVER_ONLY: u32 = 1;
/// Some segment or identity overrides it: its reason is `DEFAULT`, not `STATIC`.
pub(crate) const TARGETED: u32 = 2;
/// Only there for conditions that read it.
pub(crate) const UNSERVED: u32 = 4;

row!(
    /// What a feature can be: by default, or by the override of a segment.
    Context, 24, {
        /// The rest of Flagsmith's object: `true,"feature_state_value":VALUE},`
        tail: span,
        /// One more than the row in `Splits`; zero: it has no variants.
        split: u32,
        /// 1: the flag is enabled.
        enabled: u32,
        /// See [`crate::values::hash::digest_of`].
        digest: u64,
    }
);

/// What stands between the head of a flag object and its value.
#[inline(always)]
pub(crate) const fn state(enabled: bool) -> &'static [u8] {
    if enabled { b"true,\"feature_state_value\":" } else { b"false,\"feature_state_value\":" }
}
/// What stands behind its value.
pub(crate) const END: &[u8] = b"},";

impl Context {
    pub(crate) fn is_enabled(self) -> bool {
        self.enabled != 0
    }
    /// The value as JSON.
    pub(crate) fn value(self, blob: &[u8]) -> &[u8] {
        let tail = self.tail.of(blob);
        tail.get(state(self.is_enabled()).len()..tail.len().saturating_sub(END.len())).unwrap_or_default()
    }
}

row!(
    /// A multivariate context: its seed is the first id of the hash.
    Split, 16, { seed: span, variants: u32, length: u32 }
);
row!(
    /// Chosen when `start <= percentage < limit`, where `start` is the limit of the row before (or zero).
    Variant, 40, {
        limit: f64,
        value: span,
        /// As JSON; empty: it has none.
        key: span,
        weight: span,
        /// As in `Context`.
        digest: u64,
    }
);
row!(
    Segment, 28, {
        name: span,
        /// Where its program begins in `Code`, or [`ACCEPT`] or [`REJECT`].
        entry: u32,
        /// Its rows in `Claiming`, each of which is a row in `Claims`.
        claims: u32,
        claims_length: u32,
        flags: u32,
        /// Its id in Flagsmith, for people. Evaluation does not use it.
        id: u32,
    }
);
/// All of its conditions read the environment or flags: no identity is needed to decide it.
pub(crate) const IDENTITY_FREE: u32 = 1;

row!(
    /// Features that a segment overrides. What claims them in an earlier row is stronger.
    Claim, 16, {
        /// Those of 64 in a row, a bit each.
        features: u64,
        /// Which 64.
        block: u32,
        /// The run that they are in.
        run: u32,
    }
);
row!(
    /// Features in a row that a segment overrides, if not every one of them.
    Run, 16, {
        /// The first of them.
        feature: u32,
        /// A rank for each, in `Ranks`.
        ranks: span,
        /// The first row in `Edges`, of which there is one more than features; or [`NO_EDGES`].
        edges: u32,
    }
);
/// Some of the features have variants or are not for everybody: their objects are not known.
pub(crate) const NO_EDGES: u32 = u32::MAX;
row!(
    /// Where the object of a run's feature begins, and the one before it ends.
    Edge, 12, {
        /// In the blob. An object has a comma behind it; that of a feature that is hidden is empty.
        at: u32,
        /// By how much the digests of all features before it differ from those of their defaults.
        difference: u64,
    }
);
row!(
    /// How strong a segment's override of a feature is: `Ranked` has it at the feature's first row plus this.
    Rank, 2, { rank: u16 }
);
/// There is none. Weaker than every rank.
pub(crate) const NO_RANK: u16 = u16::MAX;
/// The ranks that segments can have: one more is left for what an identity has itself.
pub(crate) const RANKS: usize = NO_RANK as usize - 1;
row!(
    /// The overrides of one feature, strongest first.
    Ranked, 8, { segment: u32, context: u32 }
);
row!(
    /// One condition, and where to go on. What it compares with stands in the row: most conditions read nothing else.
    Instruction, 40, {
        operator: u8,
        flags: u8,
        slot: u16,
        on_true: u32,
        on_false: u32,
        /// A row in `BigIntegers` or in `Patterns`.
        operand: u32,
        /// An integer or the major and minor number of a version; a divisor, a threshold (`f64`); the first and the
        /// number of members in a set (`u32`).
        left: u64,
        /// A float or the patch number of a version; a remainder (`f64`); the seed of a percentage (a span).
        right: u64,
        text: span,
    }
);
/// The slot may have to be resolved from another flag.
pub(crate) const READS_FLAG: u8 = 1;
/// As a boolean, the value is true.
pub(crate) const IS_TRUE: u8 = 2;
/// The value is an integer of 64 bits as well, in `left`.
pub(crate) const HAS_INTEGER: u8 = 4;
/// It is one that does not fit into 64 bits, in `BigIntegers`.
pub(crate) const HAS_BIG_INTEGER: u8 = 8;
/// It is a float as well, in `right`.
pub(crate) const HAS_FLOAT: u8 = 16;
/// It ends in `:semver`, and `text` is without that.
pub(crate) const IS_SEMVER: u8 = 32;
/// The version is three numbers of at most nine digits, in `left` and `right` as [`crate::values::semver::Plain`] has them.
pub(crate) const IS_PLAIN: u8 = 64;
pub(crate) const ACCEPT: u32 = u32::MAX;
pub(crate) const REJECT: u32 = u32::MAX - 1;

row!(
    /// What a condition can read. A trait with the slot's name comes first; else the slot is derived.
    Slot, 16, { name: span, derivation: u32, argument: u32 }
);
row!(
    /// Where a trait's name is found: the numbers of its [`Label`], and one more than its slot.
    TraitName, 24, { first: u64, last: u64, length: u32, slot: u32 }
);
impl TraitName {
    #[inline(always)]
    pub(crate) fn label(&self) -> Label {
        Label { length: self.length, first: self.first, last: self.last }
    }
}
pub(crate) const PLAIN: u32 = 0;
pub(crate) const IDENTIFIER: u32 = 1;
pub(crate) const IDENTITY_KEY: u32 = 2;
/// Argument: another slot, with a smaller number.
pub(crate) const SAME_AS: u32 = 3;
/// Argument: a row in `Literals`.
pub(crate) const CONSTANT: u32 = 4;
/// Argument: a feature in the lower 24 bits, a [`FlagField`](crate::format::model::FlagField) above.
pub(crate) const FLAG: u32 = 5;

row!(
    /// An integer that does not fit into 64 bits.
    BigInteger, 12, {
        /// 1: it is below zero.
        negative: u32,
        digits: span,
    }
);
row!(Pattern, 12, { kind: u32, program: span });
pub(crate) const AUTOMATON: u32 = 0;
pub(crate) const BACKTRACKING: u32 = 1;
row!(Key, 20, { hash: hash128, role: u32 });
row!(
    /// A whole answer.
    Answer, 20, {
        body: span,
        bounds: u32,
        /// The sum of the digests of the features in it.
        digest: u64,
    }
);
row!(
    /// The environment: the only row of its table.
    Origin, 20, { name: span, client_key: span, flags: u32 }
);
/// Flags that are evaluated as disabled are left out of answers.
pub(crate) const HIDE_DISABLED: u32 = 1;
/// Without an identity, segments apply that need none.
pub(crate) const IDENTITY_FREE_SEGMENTS: u32 = 2;
/// Without an identity, all segments apply. With neither bit, none does.
pub(crate) const ALL_SEGMENTS: u32 = 4;
/// The environment's document is served.
pub(crate) const SERVES_DOCUMENT: u32 = 8;
/// To OpenFeature, a flag whose value is a boolean answers whether it is enabled.
pub(crate) const OFREP_BOOLEANS_ENABLED: u32 = 16;
/// To OpenFeature, a disabled flag answers its value.
pub(crate) const OFREP_DISABLED_VALUES: u32 = 32;
/// To OpenFeature, a text that is a JSON object is told as one.
pub(crate) const OFREP_OBJECTS: u32 = 64;
row!(
    /// A constant that a condition can read, as a JSON token.
    Literal, 8, { token: span }
);
row!(FeatureId, 12, { id: i64, feature: u32 });
row!(
    /// Which part of which document a file has: the only row of its kind, and right behind the header.
    Part, 40, { index: u32, number: u32, name: hash128, length: u64, stored: u64 }
);
row!(Word, 4, { word: u32 });
row!(Member, 12, { token: hash96 });

/// What an instruction asks. The numbers are the format's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Contains,
    NotContains,
    Matches,
    Modulo,
    In,
    Percentage,
    IsSet,
    IsNotSet,
}

impl Operator {
    pub(crate) fn of(comparison: Comparison) -> Self {
        match comparison {
            Comparison::Equal => Self::Equal,
            Comparison::NotEqual => Self::NotEqual,
            Comparison::Greater => Self::Greater,
            Comparison::GreaterOrEqual => Self::GreaterOrEqual,
            Comparison::Less => Self::Less,
            Comparison::LessOrEqual => Self::LessOrEqual,
        }
    }

    const ALL: [Self; 14] = [
        Self::Equal,
        Self::NotEqual,
        Self::Greater,
        Self::GreaterOrEqual,
        Self::Less,
        Self::LessOrEqual,
        Self::Contains,
        Self::NotContains,
        Self::Matches,
        Self::Modulo,
        Self::In,
        Self::Percentage,
        Self::IsSet,
        Self::IsNotSet,
    ];

    #[inline(always)]
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}
