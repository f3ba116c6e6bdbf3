//! Layout of the files: the header, the sections, and the rows of each table.
//!
//! The writer encodes these rows, and the reader decodes them in place. The crate's documentation describes the same
//! layout in tables.

pub(crate) use crate::format::flag_object::{CONTROL, END, experiment_variant, state, write_experiment};
use crate::values::hash::NameKey;
use crate::values::rows::{Row, Span};

/// Major version of the format. A reader refuses every other major. It changes whenever rows change: the names of
/// published objects contain it, so that running sidecars keep objects that they can read.
pub const FORMAT_MAJOR: u16 = 3;
/// Minor version of the format. Minors only add: a reader ignores what it does not know of a higher minor.
pub const FORMAT_MINOR: u16 = 0;
/// The required-feature bits that this reader supports.
pub(crate) const SUPPORTED_FEATURES: u32 = 0;

pub(crate) const CORE_MAGIC: [u8; 8] = *b"REMORA\x1aC";
pub(crate) const DOCUMENT_MAGIC: [u8; 8] = *b"REMORA\x1aD";
pub(crate) const POINTER_MAGIC: [u8; 8] = *b"REMORA\x1aP";

/// Offset of the first byte under the checksum. The checksum ends here.
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
    AttributeIndexes,
    ModuloRules,
    PercentageRules,
    Breakpoints,
    ExactMatches,
    CombinedDfas,
    AcceptSets,
    PatternPredicates,
    SegmentMasks,
    OverrideMasks,
    OverrideRuns,
    Ranks,
    ObjectOffsets,
    SegmentOverrides,
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

/// Number of sections.
pub(crate) const SECTIONS: usize = Section::Overrides as usize + 1;
pub(crate) const CORE_START: usize = HEADER + SECTIONS * 8;

/// Length in bytes of a pointer to a core in parts: the header and [`CoreParts`].
pub(crate) const POINTER_LENGTH: usize = HEADER + 16;

/// Offset of the document's bytes in a document file, after the header and the [`Part`].
pub(crate) const DOCUMENT_START: usize = HEADER + 40;

#[macro_use]
mod row;
// These modules use the macro, so they must follow it.
mod index;
mod overrides;
mod program;

use row::{Fields, RowWriter};

pub(crate) use index::{
    AcceptSet, AttributeIndex, BLOCK, Breakpoint, CombinedDfa, ExactMatch, ModuloRule, PatternPredicate,
    PercentageRule, SegmentBlock,
};
pub(crate) use overrides::{
    Bucket, ENABLED, Entry, HAS_VARIANT, Item, LENGTH_MASK, OVERRIDES_MAGIC, OVERRIDES_START, OverridesSection, WEIGHT,
    WEIGHT_MASK,
};
pub(crate) use program::{
    ACCEPT, HAS_BIG_INTEGER, HAS_FLOAT, HAS_INTEGER, IS_SEMVER, IS_TRUE, Instruction, Operator, READS_FLAG, REJECT,
};

row!(
    /// A feature. Rows have the order of features in answers.
    Feature, 56, {
        id: i64,
        name: span,
        /// `{"feature":{"id":1,"name":"x","type":"STANDARD"},"enabled":`
        flagsmith_head: span,
        /// `{"key":"x"`
        ofrep_head: span,
        /// `,"metadata":{"featureId":1,"enabled":`
        ofrep_tail: span,
        /// Row in `Contexts` of its default.
        context: u32,
        /// Its first row in `SegmentOverride`.
        overrides: u32,
        overrides_length: u32,
        flags: u32,
    }
);

/// Feature flag: hidden from client keys.
pub(crate) const SERVER_ONLY: u32 = 1;
/// Feature flag: a segment or an identity overrides the feature, so its reason is `DEFAULT` instead of `STATIC`.
pub(crate) const TARGETED: u32 = 2;
/// Feature flag: not part of answers. Only conditions read it.
pub(crate) const UNSERVED: u32 = 4;
/// Feature flag: an experiment runs on the feature. Flags of identities have the variant and the metadata, which
/// follows the tail of each context of the feature.
pub(crate) const EXPERIMENT: u32 = 8;
/// Feature flag: the type of the feature is `MULTIVARIATE`. Set only for experiments.
pub(crate) const MULTIVARIATE: u32 = 16;

row!(
    /// One state of a feature: its default, or the override of a segment.
    Context, 24, {
        /// The rest of Flagsmith's object: `true,"feature_state_value":VALUE},`
        tail: span,
        /// Row in `Splits` plus 1; zero: no variants.
        split: u32,
        /// 1 if the flag is enabled.
        enabled: u32,
        /// Digest of the flag, see [`crate::values::hash::digest_of`].
        digest: u64,
    }
);

/// Number of hexadecimal digits behind a context's tail that are the length of the metadata.
pub(crate) const METADATA_DIGITS: usize = 8;

impl Context {
    /// Returns the metadata that follows the tail, if an experiment runs on the feature.
    #[cold]
    pub(crate) fn metadata(self, blob: &[u8]) -> &[u8] {
        let text = |start: u32, length| std::str::from_utf8(Span { start, length }.of(blob)).unwrap_or_default();
        let digits = self.tail.start.saturating_add(self.tail.length);
        let length = u32::from_str_radix(text(digits, METADATA_DIGITS as u32), 16).unwrap_or_default();
        text(digits.saturating_add(METADATA_DIGITS as u32), length).as_bytes()
    }
    pub(crate) fn is_enabled(self) -> bool {
        self.enabled != 0
    }
    /// Returns the value as JSON.
    pub(crate) fn value(self, blob: &[u8]) -> &[u8] {
        let tail = self.tail.of(blob);
        tail.get(state(self.is_enabled()).len()..tail.len().saturating_sub(END.len())).unwrap_or_default()
    }
}

row!(
    /// The variants of a context. The seed is the first id of the hash.
    Split, 16, { seed: span, variants: u32, length: u32 }
);
row!(
    /// A variant, chosen if `start <= percentage < limit`. `start` is the limit of the previous row, or zero.
    Variant, 40, {
        limit: f64,
        value: span,
        /// Name as JSON; empty: no name.
        key: span,
        weight: span,
        /// Digest of the flag, as in `Context`.
        digest: u64,
    }
);
row!(
    Segment, 28, {
        name: span,
        /// Entry of its program in `Code`, or [`ACCEPT`] or [`REJECT`].
        entry: u32,
        flags: u32,
        /// Rows in `SegmentMasks`.
        masks: range,
        /// Flagsmith's id, for people. Evaluation does not use it.
        id: u32,
    }
);
/// Segment flag: all conditions read the environment or flags, so the segment needs no identity.
pub(crate) const IDENTITY_FREE: u32 = 1;

row!(
    /// Override mask: features that a segment overrides. Masks in earlier rows are stronger.
    OverrideMask, 16, {
        /// One bit for each of 64 consecutive features.
        features: u64,
        /// Number of the 64 features.
        block: u32,
        /// Row in `OverrideRuns` of the run with these features.
        run: u32,
    }
);
row!(
    /// Override run: consecutive features of which a segment overrides all or some.
    OverrideRun, 16, {
        /// Row of the first feature.
        feature: u32,
        /// Rows in `Ranks`, one per feature.
        ranks: range,
        /// First row in `ObjectOffsets`, which has one row more than the run has features; or [`NO_OFFSETS`].
        offsets: u32,
    }
);
/// The run has no offsets: one of its features has variants or is not for every key, so its object is not constant.
pub(crate) const NO_OFFSETS: u32 = u32::MAX;
row!(
    /// Offset of the object of a feature in a run, which is also the end of the previous object.
    ObjectOffset, 12, {
        /// Offset in the blob. An object ends with a comma. The object of a hidden feature is empty.
        at: u32,
        /// Sum of the digests of all features before it, minus the sum of the digests of their defaults.
        difference: u64,
    }
);
row!(
    /// Rank of a segment's override. Its row in `SegmentOverride` is the feature's first row plus the rank.
    Rank, 2, { rank: u16 }
);
/// The segment does not override the feature. Weaker than every rank.
pub(crate) const NO_RANK: u16 = u16::MAX;
/// Largest number of slots: instructions and indexes name a slot by 16 bits.
pub(crate) const SLOTS: usize = u16::MAX as usize;
/// Number of ranks available to segments. One more is reserved for an identity's own override.
pub(crate) const RANKS: usize = NO_RANK as usize - 1;
row!(
    /// An override of a feature. The rows of a feature are sorted, the strongest first.
    SegmentOverride, 8, { segment: u32, context: u32 }
);
row!(
    /// A property that conditions read: the trait with the slot's name, or the derived value if there is no such trait.
    Slot, 16, { name: span, derivation: u32, argument: u32 }
);
row!(
    /// A row of the hash table of trait names: the numbers of the [`NameKey`], and the slot plus 1.
    TraitName, 24, { first: u64, last: u64, length: u32, slot: u32 }
);
impl TraitName {
    #[inline(always)]
    pub(crate) fn name_key(&self) -> NameKey {
        NameKey { length: self.length, first: self.first, last: self.last }
    }
}
pub(crate) const PLAIN: u32 = 0;
pub(crate) const IDENTIFIER: u32 = 1;
pub(crate) const IDENTITY_KEY: u32 = 2;
/// Argument: another slot with a smaller number.
pub(crate) const SAME_AS: u32 = 3;
/// Argument: a row in `Literals`.
pub(crate) const CONSTANT: u32 = 4;
/// Argument: a feature in the lower 24 bits, a [`FlagField`](crate::format::model::FlagField) above.
pub(crate) const FLAG: u32 = 5;

row!(
    /// An integer that does not fit into 64 bits.
    BigInteger, 12, {
        /// 1 if negative.
        negative: u32,
        digits: span,
    }
);
row!(Pattern, 12, { kind: u32, program: range });
pub(crate) const AUTOMATON: u32 = 0;
pub(crate) const BACKTRACKING: u32 = 1;
row!(Key, 20, { hash: hash128, role: u32 });
row!(
    /// A complete answer.
    PreparedAnswer, 20, {
        body: span,
        bounds: u32,
        /// Sum of the digests of its features.
        digest: u64,
    }
);
row!(
    /// The environment. Its table has one row.
    Origin, 20, { name: span, client_key: span, flags: u32 }
);
/// Origin flag: answers omit flags that are evaluated as disabled.
pub(crate) const HIDE_DISABLED: u32 = 1;
/// Origin flag: without an identity, the segments apply that need no identity.
pub(crate) const IDENTITY_FREE_SEGMENTS: u32 = 2;
/// Origin flag: without an identity, all segments apply. Without this flag and [`IDENTITY_FREE_SEGMENTS`], none
/// applies.
pub(crate) const ALL_SEGMENTS: u32 = 4;
/// Origin flag: the environment's document is served.
pub(crate) const SERVES_DOCUMENT: u32 = 8;
/// Origin flag: OFREP returns for a flag with a boolean value if the flag is enabled, instead of the value.
pub(crate) const OFREP_BOOLEANS_ENABLED: u32 = 16;
/// Origin flag: OFREP returns the value of a disabled flag.
pub(crate) const OFREP_DISABLED_VALUES: u32 = 32;
/// Origin flag: OFREP returns a string that holds a JSON object as an object.
pub(crate) const OFREP_OBJECTS: u32 = 64;
row!(
    /// A constant that a condition reads, as a JSON token.
    Literal, 8, { token: span }
);
row!(FeatureId, 12, { id: i64, feature: u32 });
row!(
    /// Number and document of the part in a document file. The only row of its kind, directly after the header.
    Part, 40, { index: u32, number: u32, name: hash128, length: u64, stored: u64 }
);
row!(
    /// Set, number of parts and length of the core that a pointer names. The only row of its kind, directly after the
    /// header.
    CoreParts, 16, { set: u32, number: u32, length: u64 }
);
row!(Word, 4, { word: u32 });
row!(Member, 12, { key: hash96 });
