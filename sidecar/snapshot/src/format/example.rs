//! The bytes of a small environment with the meaning of each, for the crate's documentation.

mod complete;

use std::fmt::Write as _;
use std::path::Path;

use remora_testing::assert_generated;

use crate::format::layout::{
    AcceptSet, AttributeIndex, BigInteger, Breakpoint, Bucket, CORE_START, CombinedDfa, Context, Entry, ExactMatch,
    Feature, FeatureId, HEADER, Instruction, Item, Key, Literal, Member, ModuloRule, ObjectOffset, Origin,
    OverrideMask, OverrideRun, OverridesSection, Pattern, PatternPredicate, PercentageRule, PreparedAnswer, Rank,
    SECTIONS, Section, Segment, SegmentBlock, SegmentOverride, Slot, Split, TraitName, Variant, Word,
};
use crate::format::model::{self, Comparand, Comparison, Derivation, Junction, Test};
use crate::format::view::section_entry;
use crate::values::hash::{Fingerprint, NameKey, bucket_of, short_member_key};
use crate::values::rows::Span;
use crate::write;

/// Name, type and number of bytes of each field of a row.
pub(crate) type Fields = &'static [(&'static str, &'static str, usize)];

/// Content of a section.
#[derive(Clone, Copy)]
enum Content {
    /// Rows with these fields.
    Rows(Fields),
    /// Text.
    Text,
    /// Bytes that are not shown one by one.
    Opaque,
    /// An overrides file.
    File,
}

/// The sections of a core, in order, with their content.
const CORE: [(Section, Content); SECTIONS] = {
    use Content::{File, Opaque, Rows, Text};
    [
        (Section::Blob, Text),
        (Section::Features, Rows(Feature::FIELDS)),
        (Section::FeatureNames, Rows(Word::FIELDS)),
        (Section::FeatureIds, Rows(FeatureId::FIELDS)),
        (Section::SplitFeatures, Rows(Word::FIELDS)),
        (Section::Answers, Rows(PreparedAnswer::FIELDS)),
        (Section::Bounds, Rows(Word::FIELDS)),
        (Section::Contexts, Rows(Context::FIELDS)),
        (Section::Splits, Rows(Split::FIELDS)),
        (Section::Variants, Rows(Variant::FIELDS)),
        (Section::Segments, Rows(Segment::FIELDS)),
        (Section::Blocks, Rows(SegmentBlock::FIELDS)),
        (Section::AttributeIndexes, Rows(AttributeIndex::FIELDS)),
        (Section::ModuloRules, Rows(ModuloRule::FIELDS)),
        (Section::PercentageRules, Rows(PercentageRule::FIELDS)),
        (Section::Breakpoints, Rows(Breakpoint::FIELDS)),
        (Section::ExactMatches, Rows(ExactMatch::FIELDS)),
        (Section::CombinedDfas, Rows(CombinedDfa::FIELDS)),
        (Section::AcceptSets, Rows(AcceptSet::FIELDS)),
        (Section::PatternPredicates, Rows(PatternPredicate::FIELDS)),
        (Section::SegmentMasks, Rows(Word::FIELDS)),
        (Section::OverrideMasks, Rows(OverrideMask::FIELDS)),
        (Section::OverrideRuns, Rows(OverrideRun::FIELDS)),
        (Section::Ranks, Rows(Rank::FIELDS)),
        (Section::ObjectOffsets, Rows(ObjectOffset::FIELDS)),
        (Section::SegmentOverrides, Rows(SegmentOverride::FIELDS)),
        (Section::Code, Rows(Instruction::FIELDS)),
        (Section::Slots, Rows(Slot::FIELDS)),
        (Section::TraitNames, Rows(TraitName::FIELDS)),
        (Section::Derived, Rows(Word::FIELDS)),
        (Section::BigIntegers, Rows(BigInteger::FIELDS)),
        (Section::Members, Rows(Member::FIELDS)),
        (Section::Patterns, Rows(Pattern::FIELDS)),
        (Section::Programs, Opaque),
        (Section::Keys, Rows(Key::FIELDS)),
        (Section::Origin, Rows(Origin::FIELDS)),
        (Section::Literals, Rows(Literal::FIELDS)),
        (Section::Notes, Text),
        (Section::Overrides, File),
    ]
};

/// The sections of an overrides file, in order, with their content.
const OVERRIDES: [(OverridesSection, Content); 5] = [
    (OverridesSection::Directory, Content::Rows(Bucket::FIELDS)),
    (OverridesSection::Entries, Content::Rows(Entry::FIELDS)),
    (OverridesSection::Groups, Content::Rows(Word::FIELDS)),
    (OverridesSection::Items, Content::Rows(Item::FIELDS)),
    (OverridesSection::Blob, Content::Text),
];

/// Returns the environment of the example: one feature, one segment that overrides it, and one identity override.
fn environment() -> model::Environment {
    let context = |value: &str| model::Context { enabled: true, value: value.to_owned(), split: None };
    let is_pro = Comparand { boolean: true, text: "pro".to_owned(), ..Comparand::default() };
    model::Environment {
        name: "shop".to_owned(),
        client_key: "key".to_owned(),
        features: vec![model::Feature {
            id: 7,
            name: "limit".to_owned(),
            kind: "STANDARD".to_owned(),
            served: true,
            server_only: false,
            default: context("42"),
        }],
        segments: vec![model::Segment {
            id: "3".to_owned(),
            name: "beta".to_owned(),
            rules: vec![model::Rule {
                junction: Junction::All,
                conditions: vec![model::Condition { property: 0, test: Test::Compare(Comparison::Equal, is_pro) }],
                rules: Vec::new(),
            }],
            overrides: vec![model::Override { feature: 0, priority: Some(0.0), context: context("50") }],
            identity_free: false,
        }],
        properties: vec![model::Property { name: Some("plan".to_owned()), derivation: Derivation::Plain }],
        identity_overrides: vec![model::IdentityOverride {
            identifier: "ada".to_owned(),
            flags: vec![model::IdentityFlag { feature: 7, enabled: true, value: "99".to_owned(), variant: None }],
        }],
        ..model::Environment::default()
    }
}

/// The listing of a file: one line per field.
struct Listing<'a> {
    /// The whole core file.
    bytes: &'a [u8],
    /// Offset of the listed file in it.
    base: usize,
    text: String,
    /// Offset after the last listed byte.
    at: usize,
}

impl Listing<'_> {
    /// Appends the next `length` bytes with their meaning. Long fields take several lines.
    fn field(&mut self, length: usize, meaning: &str) {
        let mut meaning = meaning;
        for line in self.bytes[self.at..self.at + length].chunks(16) {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(self.text, "{}", format!("{:>5}  {:<47}  {meaning}", self.at, hex.join(" ")).trim_end()).unwrap();
            self.at += line.len();
            meaning = "";
        }
    }

    /// Appends the bytes up to an offset, which separate sections.
    fn padding(&mut self, to: usize) {
        if to > self.at {
            assert!(self.bytes[self.at..to].iter().all(|byte| *byte == 0), "bytes at {} are in no section", self.at);
            self.field(to - self.at, "(padding)");
        }
    }

    fn heading(&mut self, text: &str) {
        writeln!(self.text, "\n{text}").unwrap();
    }

    fn header(&mut self, magic: &str) {
        self.heading("header");
        self.field(8, magic);
        self.field(2, "format major");
        self.field(2, "format minor");
        self.field(4, "required features");
        self.field(8, &format!("length: {}", number(&self.bytes[self.at..self.at + 8])));
        self.field(16, "checksum");
        self.field(8, "revision");
        self.field(16, "fingerprint");
    }

    /// Appends the section table and the sections, in the order of their offsets.
    fn sections(&mut self, sections: &[(String, Content)], blob: usize) {
        self.heading("section table: offset and length");
        let file = &self.bytes[self.base..];
        let table = self.at - self.base;
        let places: Vec<Span> = (0..sections.len()).map(|number| section_entry(file, table, number)).collect();
        for ((name, _), place) in sections.iter().zip(&places) {
            self.field(8, &format!("{name}: {}", plain(*place)));
        }
        let blob = places[blob].of(file);
        let mut filled: Vec<_> = sections.iter().zip(&places).filter(|(_, place)| place.length > 0).collect();
        filled.sort_by_key(|(_, place)| place.start);
        for ((name, content), place) in filled {
            let (start, end) = (self.base + place.start as usize, self.base + (place.start + place.length) as usize);
            self.padding(start);
            match content {
                Content::Rows(fields) => {
                    self.heading(name);
                    self.rows(fields, end, blob);
                }
                Content::Text | Content::Opaque => {
                    self.heading(name);
                    self.lines(end, matches!(content, Content::Text));
                }
                Content::File => {
                    self.heading(&format!("{name}: a file of its own, whose offsets count from here"));
                    let mut nested = Listing { bytes: self.bytes, base: start, text: String::new(), at: start };
                    nested.overrides_file();
                    assert_eq!(nested.at, end, "the overrides file is not listed completely");
                    self.text += &nested.text;
                    self.at = end;
                }
            }
        }
    }

    /// Appends the bytes up to an offset, as text if they are text. Many zeros are one line.
    fn lines(&mut self, end: usize, is_text: bool) {
        while self.at < end {
            let zeros = self.bytes[self.at..end].iter().take_while(|byte| **byte == 0).count() / 16 * 16;
            if zeros > 16 {
                writeln!(self.text, "{:>5}  ({zeros} bytes of zeros)", self.at).unwrap();
                self.at += zeros;
                continue;
            }
            let line = &self.bytes[self.at..end.min(self.at + 16)];
            let text = if is_text { String::from_utf8_lossy(line) } else { "".into() };
            self.field(line.len(), &text);
        }
    }

    fn rows(&mut self, fields: Fields, end: usize, blob: &[u8]) {
        let size: usize = fields.iter().map(|(.., size)| size).sum();
        let count = (end - self.at) / size;
        for row in 0..count {
            for (index, (name, kind, size)) in fields.iter().enumerate() {
                let row = if count > 1 && index == 0 { format!("[{row}] ") } else { String::new() };
                let value = value(kind, &self.bytes[self.at..self.at + size], blob);
                self.field(*size, format!("{row}{}: {value}", name.replace('_', " ")).trim_end_matches(": "));
            }
        }
        assert_eq!(self.at, end, "the section has a part of a row");
    }

    fn overrides_file(&mut self) {
        self.header("magic: REMORA, 0x1a, O");
        self.heading("leading bits");
        self.field(4, "leading hash bits that the file is for: 0");
        self.field(4, "number of these bits: 0");
        let sections = OVERRIDES.map(|(section, content)| (words(&format!("{section:?}")), content));
        self.sections(&sections, OverridesSection::Blob as usize);
    }
}

/// Returns a CamelCase name as lower-case words.
fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn plain(span: Span) -> String {
    format!("{}, {}", span.start, span.length)
}

/// Renders the value of a field.
fn value(kind: &str, bytes: &[u8], blob: &[u8]) -> String {
    let value = number(bytes);
    match kind {
        "range" => plain(Span::from_word(value)),
        "span" => {
            let span = Span::from_word(value);
            format!("{} = {}", plain(span), String::from_utf8_lossy(span.of(blob)))
        }
        "hash96" if bytes.iter().all(|byte| *byte == 0x7f) => "free".to_owned(),
        "hash96" if bytes[0] <= 11 => {
            let text = String::from_utf8_lossy(&bytes[1..=usize::from(bytes[0])]);
            format!("{} bytes, {text}", bytes[0])
        }
        "hash96" | "hash128" => String::new(),
        "u32" if value == u64::from(u32::MAX) => "2³²−1".to_owned(),
        "u16" if value == u64::from(u16::MAX) => "2¹⁶−1".to_owned(),
        _ if value >> 32 != 0 => format!("{value:#x}"),
        _ => value.to_string(),
    }
}

fn listing(bytes: &[u8]) -> String {
    let mut listing = Listing { bytes, base: 0, text: String::new(), at: 0 };
    listing.header("magic: REMORA, 0x1a, C");
    assert_eq!(listing.at, HEADER);
    let sections = CORE.map(|(section, content)| (words(&format!("{section:?}")), content));
    listing.sections(&sections, Section::Blob as usize);
    listing.padding(bytes.len());
    listing.text.trim_start().to_owned()
}

#[test]
fn example_in_documentation_is_what_writer_writes() {
    for (number, (section, _)) in CORE.iter().enumerate() {
        assert_eq!(*section as usize, number, "{section:?} is not in its place");
    }
    let written = write(&environment(), 1_000_000).unwrap();
    let [core] = written.files.as_slice() else { panic!("the example is one file") };
    assert!(core.bytes.len() > CORE_START);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format/example.txt");
    assert_generated(&path, &listing(&core.bytes));
}

#[test]
fn walk_in_documentation_has_numbers_of_example() {
    let key = NameKey::of(b"plan");
    let members = [key.first, key.last].map(|number| format!("{number:#x}")).join(", ");
    let fingerprint = Fingerprint::of(&environment().client_key);
    let filter_bit = |identifier: &str| {
        let hash = fingerprint.hash96(identifier.as_bytes());
        let mut bucket = Bucket::new(0);
        bucket.add(&hash);
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        (hex, bucket.packed.trailing_zeros())
    };
    let ((bob, bit_of_bob), (ada, bit_of_ada)) = (filter_bit("bob"), filter_bit("ada"));
    assert_ne!(bit_of_bob, bit_of_ada);
    let text = include_str!("../../FORMAT.md").split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        format!("The *name key* of the name `plan` is {} bytes, {members}", key.length),
        format!("Probing in *trait names* starts at row {}.", key.bucket() & 1),
        format!(
            "Probing in the two rows of *exact matches* starts at row {}",
            bucket_of(short_member_key(b"pro").unwrap()) & 1
        ),
        format!("The hash of `bob` is `{bob}`, whose filter bit is bit {bit_of_bob}."),
        format!("The hash of `ada` is `{ada}`, whose filter bit is bit {bit_of_ada}."),
    ] {
        assert!(text.contains(&expected), "the documentation of the crate does not say: {expected}");
    }
}
