//! The tables of a core file, borrowed for one request.

use crate::format::layout::{
    AcceptSet, AttributeIndex, BigInteger, Breakpoint, CORE_START, CombinedDfa, Context, ExactMatch, Feature,
    FeatureId, HEADER, Instruction, Key, Literal, Member, ModuloRule, ObjectOffset, Origin, OverrideMask, OverrideRun,
    Pattern, PatternPredicate, PercentageRule, PreparedAnswer, Rank, SECTIONS, Section, Segment, SegmentBlock,
    SegmentOverride, Slot, Split, TraitName, Variant, Word,
};
use crate::values::{
    hash::Fingerprint,
    md5::Head,
    rows::{Span, Table},
};

/// A core, borrowed for one request. Each table is located when it is used: no request uses all of them.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    bytes: &'a [u8],
    section_table: &'a SectionTable,
    pub(crate) blob: &'a [u8],
    pub(crate) fingerprint: Fingerprint,
}

/// `tables!` defines an accessor per table. Every access to a row is checked against the table's length.
macro_rules! tables {
    ($($name:ident: $section:ident of $row:ident, $size:literal;)+) => {
        impl<'a> View<'a> {
            $(
                #[inline(always)]
                pub(crate) fn $name(&self) -> Table<'a, $row, $size> {
                    Table::new(self.section(Section::$section))
                }
            )+
        }
    };
}

tables! {
    features: Features of Feature, 56;
    feature_names: FeatureNames of Word, 4;
    feature_ids: FeatureIds of FeatureId, 12;
    split_features: SplitFeatures of Word, 4;
    answers: Answers of PreparedAnswer, 20;
    bounds: Bounds of Word, 4;
    contexts: Contexts of Context, 24;
    splits: Splits of Split, 16;
    variants: Variants of Variant, 40;
    segments: Segments of Segment, 28;
    blocks: Blocks of SegmentBlock, 32;
    attribute_indexes: AttributeIndexes of AttributeIndex, 128;
    modulo_rules: ModuloRules of ModuloRule, 32;
    percentage_rules: PercentageRules of PercentageRule, 32;
    breakpoints: Breakpoints of Breakpoint, 24;
    exact_matches: ExactMatches of ExactMatch, 20;
    combined_dfas: CombinedDfas of CombinedDfa, 32;
    accept_sets: AcceptSets of AcceptSet, 16;
    pattern_predicates: PatternPredicates of PatternPredicate, 32;
    segment_masks: SegmentMasks of Word, 4;
    override_masks: OverrideMasks of OverrideMask, 16;
    override_runs: OverrideRuns of OverrideRun, 16;
    ranks: Ranks of Rank, 2;
    object_offsets: ObjectOffsets of ObjectOffset, 12;
    segment_overrides: SegmentOverrides of SegmentOverride, 8;
    code: Code of Instruction, 40;
    slots: Slots of Slot, 16;
    trait_names: TraitNames of TraitName, 24;
    derived: Derived of Word, 4;
    big_integers: BigIntegers of BigInteger, 12;
    members: Members of Member, 12;
    patterns: Patterns of Pattern, 12;
    keys: Keys of Key, 20;
    literals: Literals of Literal, 8;
}

/// Positions of the sections of a core.
pub(crate) type SectionTable = [Span; SECTIONS];

/// Reads the section table of a core.
pub(crate) fn section_table(bytes: &[u8]) -> SectionTable {
    std::array::from_fn(|number| section_entry(bytes, HEADER, number))
}

/// Reads one entry of a section table.
pub(crate) fn section_entry(bytes: &[u8], table: usize, number: usize) -> Span {
    let at = table + number * 8;
    match bytes.get(at..at + 8) {
        Some(&[a, b, c, d, e, f, g, h]) => {
            Span { start: u32::from_le_bytes([a, b, c, d]), length: u32::from_le_bytes([e, f, g, h]) }
        }
        _ => Span::default(),
    }
}

impl<'a> View<'a> {
    #[inline(always)]
    pub(crate) fn of(bytes: &'a [u8], section_table: &'a SectionTable, fingerprint: Fingerprint) -> Self {
        const { assert!(CORE_START == HEADER + SECTIONS * 8) };
        let view = Self { bytes, section_table, blob: &[], fingerprint };
        Self { blob: view.section(Section::Blob), ..view }
    }

    #[inline(always)]
    fn section(&self, which: Section) -> &'a [u8] {
        self.section_table.get(which as usize).map_or(&[], |place| place.of(self.bytes))
    }

    pub(crate) fn programs(&self) -> &'a [u8] {
        self.section(Section::Programs)
    }

    pub(crate) fn notes(&self) -> &'a [u8] {
        self.section(Section::Notes)
    }

    /// Bytes of the embedded overrides file; empty if there is none.
    pub(crate) fn overrides(&self) -> &'a [u8] {
        self.section(Section::Overrides)
    }

    #[inline(always)]
    pub(crate) fn origin(&self) -> Origin {
        Table::<Origin, 20>::new(self.section(Section::Origin)).get(0).unwrap_or_default()
    }

    pub(crate) fn bytes(&self, span: Span) -> &'a [u8] {
        span.of(self.blob)
    }

    /// Returns the first part of a text to hash. The reader has checked that the span is in the blob.
    pub(crate) fn head(&self, span: Span) -> Head<'a> {
        Head::of(self.blob.get(span.start as usize..).unwrap_or_default(), span.length as usize)
    }

    /// Returns the text of a span. The reader has checked that all spans used as text are UTF-8.
    pub(crate) fn text(&self, span: Span) -> &'a str {
        std::str::from_utf8(self.bytes(span)).unwrap_or_default()
    }

    /// Returns the split of a context, if it has one.
    pub(crate) fn split(&self, context: Context) -> Option<Split> {
        self.splits().get(context.split.checked_sub(1)?)
    }

    /// Finds a feature by Flagsmith's id.
    pub(crate) fn feature_with_id(&self, id: i64) -> Option<u32> {
        let (mut low, mut high) = (0_u32, u32::try_from(self.feature_ids().len()).ok()?);
        while low < high {
            let middle = low + (high - low) / 2;
            let row = self.feature_ids().get(middle)?;
            match row.id.cmp(&id) {
                std::cmp::Ordering::Equal => return Some(row.feature),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}
