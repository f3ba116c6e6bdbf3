//! The sections that the first example leaves empty, of an environment with every feature of the format, and requests to
//! it with their answers.

use std::fmt::Write as _;
use std::path::Path;

use remora_testing::assert_generated;

use super::{CORE, Content, Listing, environment, words};
use crate::format::layout::{HEADER, Section};
use crate::format::view::section_entry;
use crate::values::rows::Span;
use crate::{Decision, OfrepFlag, RequestState, Role, Snapshot, TraitValue, write};

#[path = "../../../tests/sample/mod.rs"]
mod sample;

/// Number of identity overrides in the sample: one of each kind.
const IDENTITIES: usize = 3;

/// Identifier and traits of a request.
type Request = (&'static str, &'static [(&'static str, TraitValue<'static>)]);

/// The requests of the example. The first matches the segment that the index evaluates, the second has the identity
/// override with a named variant.
const REQUESTS: [Request; 3] = [
    (
        "carol",
        &[
            ("plan", TraitValue::String("aab aa")),
            ("age", TraitValue::Integer("31")),
            ("version", TraitValue::String("1.2.10")),
            ("score", TraitValue::Float(2.75)),
        ],
    ),
    ("user_1", &[("plan", TraitValue::String("pro"))]),
    ("eve", &[("plan", TraitValue::String("basic")), ("age", TraitValue::String("7"))]),
];

/// Returns the core file of the environment.
fn core(environment: &crate::model::Environment) -> Vec<u8> {
    write(environment, 1_000_000).unwrap().files.swap_remove(0).bytes
}

fn place(bytes: &[u8], section: Section) -> Span {
    section_entry(bytes, HEADER, section as usize)
}

/// Sections that refer to those that the first example has empty.
const REFERRING: [Section; 4] = [Section::Blocks, Section::AttributeIndexes, Section::Slots, Section::Origin];

/// Lists the sections that the first example has empty, and those that refer to them.
fn sections(bytes: &[u8]) -> String {
    let first = core(&environment());
    let blob = place(bytes, Section::Blob).of(bytes);
    let mut listing = Listing { bytes, base: 0, text: String::new(), at: 0 };
    let mut shown: Vec<_> =
        CORE.iter().map(|(section, content)| (place(bytes, *section), *section, *content)).collect();
    shown.sort_by_key(|(place, ..)| place.start);
    for (span, section, content) in shown {
        assert!(span.length > 0, "{section:?} is empty in the complete environment");
        if place(&first, section).length > 0 && !REFERRING.contains(&section) {
            continue;
        }
        listing.heading(&words(&format!("{section:?}")));
        let end = (span.start + span.length) as usize;
        listing.at = span.start as usize;
        match content {
            Content::Rows(fields) => listing.rows(fields, end, blob),
            Content::Text | Content::Opaque | Content::File => listing.lines(end, matches!(content, Content::Text)),
        }
    }
    listing.text
}

/// Lists the decisions for a request and its answers.
fn decisions(snapshot: &Snapshot<&[u8]>, (identifier, traits): Request) -> String {
    let request = || {
        let mut request = RequestState::default();
        snapshot.identify(&mut request, identifier);
        for (name, value) in traits {
            snapshot.set_trait(&mut request, name, *value);
        }
        request
    };
    let mut text = format!("\nrequest: identifier {identifier}");
    for (name, value) in traits {
        let value = match value {
            TraitValue::String(value) => format!("\"{value}\""),
            TraitValue::Integer(value) => (*value).to_owned(),
            TraitValue::Float(value) => value.to_string(),
            TraitValue::Bool(value) => value.to_string(),
            TraitValue::Null => "null".to_owned(),
        };
        write!(text, ", {name} {value}").unwrap();
    }
    text.push('\n');
    for flag in snapshot.explain(&mut request()) {
        let decision = match flag.decision {
            Decision::Default => "default".to_owned(),
            Decision::IdentityOverride => "identity override".to_owned(),
            Decision::Segment { name, rank } => format!("{name}, rank {rank}"),
        };
        let percentage = flag.percentage.map(|percentage| format!(", {percentage:.3} %")).unwrap_or_default();
        writeln!(text, "  {}: {decision}{percentage}, {}", flag.feature, flag.reason).unwrap();
    }
    let mut answer = Vec::new();
    snapshot.write_flags(&mut request(), Role::Server, &mut answer);
    writeln!(text, "answer for a server key:\n{}", String::from_utf8(answer).unwrap().replace("},{", "},\n{")).unwrap();
    text.push_str("answers of OFREP for a client key:\n");
    for name in sample::FEATURES {
        let mut answer = Vec::new();
        let found = snapshot.write_ofrep_flag(&mut request(), Role::Client, name, &mut answer);
        let answer = match found {
            OfrepFlag::Unknown => format!("{name}: not found"),
            _ => String::from_utf8(answer).unwrap(),
        };
        writeln!(text, "{answer}").unwrap();
    }
    text
}

#[test]
fn complete_example_in_documentation_is_what_writer_writes() {
    let bytes = core(&sample::complete(IDENTITIES));
    let snapshot = Snapshot::read(bytes.as_slice()).unwrap();
    let requests: String = REQUESTS.iter().map(|request| decisions(&snapshot, *request)).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format/complete.txt");
    assert_generated(&path, (sections(&bytes) + &requests).trim_start());
}
