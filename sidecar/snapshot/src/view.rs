//! A snapshot's tables, borrowed from its bytes for the time of one request.

use crate::hash::{Fingerprint, bucket};
use crate::layout::{
    Answer, BigInteger, Block, CORE_START, Column, Context, Feature, FeatureId, Find, HEADER, Instruction, Joint, Key,
    Listed, Literal, Mark, Member, Modulus, Origin, Pattern, Rank, Ranked, Run, SECTIONS, Section, Segment, Share,
    Slot, Span, Split, Table, Variant, Want, Word,
};

/// The tables of a core. Every access is checked against the table's length.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) blob: &'a [u8],
    pub(crate) features: Table<'a, Feature, 56>,
    pub(crate) feature_names: Table<'a, Word, 4>,
    pub(crate) feature_ids: Table<'a, FeatureId, 12>,
    pub(crate) split_features: Table<'a, Word, 4>,
    pub(crate) answers: Table<'a, Answer, 20>,
    pub(crate) bounds: Table<'a, Word, 4>,
    pub(crate) contexts: Table<'a, Context, 24>,
    pub(crate) splits: Table<'a, Split, 16>,
    pub(crate) variants: Table<'a, Variant, 40>,
    pub(crate) segments: Table<'a, Segment, 28>,
    pub(crate) blocks: Table<'a, Block, 32>,
    pub(crate) columns: Table<'a, Column, 128>,
    pub(crate) moduli: Table<'a, Modulus, 32>,
    pub(crate) shares: Table<'a, Share, 32>,
    pub(crate) marks: Table<'a, Mark, 24>,
    pub(crate) listed: Table<'a, Listed, 20>,
    pub(crate) joints: Table<'a, Joint, 32>,
    pub(crate) finds: Table<'a, Find, 16>,
    pub(crate) wants: Table<'a, Want, 32>,
    pub(crate) runs: Table<'a, Run, 12>,
    pub(crate) ranks: Table<'a, Rank, 2>,
    pub(crate) ranked: Table<'a, Ranked, 24>,
    pub(crate) code: Table<'a, Instruction, 40>,
    pub(crate) slots: Table<'a, Slot, 16>,
    pub(crate) trait_names: Table<'a, Word, 4>,
    pub(crate) derived: Table<'a, Word, 4>,
    pub(crate) big_integers: Table<'a, BigInteger, 12>,
    pub(crate) members: Table<'a, Member, 12>,
    pub(crate) patterns: Table<'a, Pattern, 12>,
    pub(crate) programs: &'a [u8],
    pub(crate) keys: Table<'a, Key, 20>,
    pub(crate) literals: Table<'a, Literal, 8>,
    pub(crate) notes: &'a [u8],
    /// An overrides file, or nothing.
    pub(crate) overrides: &'a [u8],
    pub(crate) origin: Origin,
    pub(crate) fingerprint: Fingerprint,
}

/// Where the sections of a core are.
pub(crate) type Places = [Span; SECTIONS];

/// Reads the section table of a core.
pub(crate) fn places(bytes: &[u8]) -> Places {
    std::array::from_fn(|number| place(bytes, HEADER, number))
}

/// One entry of a section table.
pub(crate) fn place(bytes: &[u8], table: usize, number: usize) -> Span {
    let at = table + number * 8;
    match bytes.get(at..at + 8) {
        Some(&[a, b, c, d, e, f, g, h]) => {
            Span { start: u32::from_le_bytes([a, b, c, d]), length: u32::from_le_bytes([e, f, g, h]) }
        }
        _ => Span::default(),
    }
}

impl<'a> View<'a> {
    /// Inlined, so that where few tables are used the others are not looked for.
    #[inline(always)]
    pub(crate) fn of(bytes: &'a [u8], places: &Places, fingerprint: Fingerprint) -> Self {
        const { assert!(CORE_START == HEADER + SECTIONS * 8) };
        let of = |which: Section| places.get(which as usize).map_or(&[][..], |place| place.of(bytes));
        Self {
            blob: of(Section::Blob),
            features: Table::new(of(Section::Features)),
            feature_names: Table::new(of(Section::FeatureNames)),
            feature_ids: Table::new(of(Section::FeatureIds)),
            split_features: Table::new(of(Section::SplitFeatures)),
            answers: Table::new(of(Section::Answers)),
            bounds: Table::new(of(Section::Bounds)),
            contexts: Table::new(of(Section::Contexts)),
            splits: Table::new(of(Section::Splits)),
            variants: Table::new(of(Section::Variants)),
            segments: Table::new(of(Section::Segments)),
            blocks: Table::new(of(Section::Blocks)),
            columns: Table::new(of(Section::Columns)),
            moduli: Table::new(of(Section::Moduli)),
            shares: Table::new(of(Section::Shares)),
            marks: Table::new(of(Section::Marks)),
            listed: Table::new(of(Section::Listed)),
            joints: Table::new(of(Section::Joints)),
            finds: Table::new(of(Section::Finds)),
            wants: Table::new(of(Section::Wants)),
            runs: Table::new(of(Section::Runs)),
            ranks: Table::new(of(Section::Ranks)),
            ranked: Table::new(of(Section::Ranked)),
            code: Table::new(of(Section::Code)),
            slots: Table::new(of(Section::Slots)),
            trait_names: Table::new(of(Section::TraitNames)),
            derived: Table::new(of(Section::Derived)),
            big_integers: Table::new(of(Section::BigIntegers)),
            members: Table::new(of(Section::Members)),
            patterns: Table::new(of(Section::Patterns)),
            programs: of(Section::Programs),
            keys: Table::new(of(Section::Keys)),
            literals: Table::new(of(Section::Literals)),
            notes: of(Section::Notes),
            overrides: of(Section::Overrides),
            origin: Table::<Origin, 20>::new(of(Section::Origin)).get(0).unwrap_or_default(),
            fingerprint,
        }
    }

    pub(crate) fn bytes(&self, span: Span) -> &'a [u8] {
        span.of(self.blob)
    }

    /// The text of a span; the reader has checked that it is UTF-8 where this is asked.
    pub(crate) fn text(&self, span: Span) -> &'a str {
        std::str::from_utf8(self.bytes(span)).unwrap_or_default()
    }

    /// The split of a context, if it has one.
    pub(crate) fn split(&self, context: Context) -> Option<Split> {
        self.splits.get(context.split.checked_sub(1)?)
    }

    /// The feature of this name.
    pub(crate) fn feature_named(&self, name: &[u8]) -> Option<u32> {
        self.probe(self.feature_names, name, |index| self.features.get(index).map(|feature| feature.name))
    }

    /// The slot of this name.
    pub(crate) fn slot_named(&self, name: &[u8]) -> Option<u32> {
        self.probe(self.trait_names, name, |index| self.slots.get(index).map(|slot| slot.name))
    }

    /// Linear probing. A table that is full of other names ends after one round.
    fn probe(&self, table: Table<'a, Word, 4>, name: &[u8], name_of: impl Fn(u32) -> Option<Span>) -> Option<u32> {
        let mask = u32::try_from(table.len()).ok()?.checked_sub(1)?;
        let start = bucket(name);
        for step in 0..=mask {
            let index = table.get(start.wrapping_add(step) & mask)?.word.checked_sub(1)?;
            if self.bytes(name_of(index)?) == name {
                return Some(index);
            }
        }
        None
    }

    /// The feature with Flagsmith's id.
    pub(crate) fn feature_with_id(&self, id: i64) -> Option<u32> {
        let (mut low, mut high) = (0_u32, u32::try_from(self.feature_ids.len()).ok()?);
        while low < high {
            let middle = low + (high - low) / 2;
            let row = self.feature_ids.get(middle)?;
            match row.id.cmp(&id) {
                std::cmp::Ordering::Equal => return Some(row.feature),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}
