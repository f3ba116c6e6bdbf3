//! The snapshot: a Flagsmith environment, compiled to bytes that are evaluated where they lie.
//!
//! The operator writes it once a change ([`write()`]), the sidecar reads it once a change ([`Snapshot::read`]) and evaluates
//! it on every request. This crate is the treaty between the two: both use it, and neither uses the other. It does no
//! input or output, starts nothing, has no `unsafe`, and depends on a hash function and on registers of four numbers.
//!
//! ```
//! use remora_snapshot::model::{Context, Environment, Feature};
//! use remora_snapshot::{Role, Snapshot, Subject, write};
//!
//! let default = Context { enabled: true, value: "42".to_owned(), split: None };
//! let feature = Feature { id: 7, name: "limit".to_owned(), kind: "STANDARD".to_owned(), served: true, server_only: false, default };
//! let environment = Environment { client_key: "key".to_owned(), features: vec![feature], ..Environment::default() };
//!
//! let written = write(&environment, 1_000_000)?;
//! let snapshot = Snapshot::read(written.files[0].bytes.as_slice())?;
//! let mut subject = Subject::default();
//! snapshot.identify(&mut subject, "somebody");
//! let mut answer = Vec::new();
//! snapshot.write_flags(&mut subject, Role::Client, &mut answer);
//! assert_eq!(answer, br#"[{"feature":{"id":7,"name":"limit","type":"STANDARD"},"enabled":true,"feature_state_value":42}]"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it is made for
//!
//! - **Nothing is parsed and nothing is copied.** A reader checks everything once, in one linear pass, and from then on
//!   follows offsets. Whatever the bytes are, that pass and every evaluation after it end without a panic, and without
//!   reading outside: each access is checked again when it is made.
//! - **Answers are there already.** The flag objects of Flagsmith's dialect are stored up to their value, the whole array
//!   of defaults as one run; an evaluation copies runs and pieces, and serializes nothing. For the few sets of segments that
//!   are asked for again and again, not even that: a reader keeps what it put together for them, up to four times 64 KiB.
//! - **Segments are found by an index** of the values that they compare with: a look-up a trait says for 64 segments at
//!   once which of them are left. What it cannot say is asked by **programs** of typed conditions whose jumps only go forward ([`automaton`] and [`backtrack`] have the
//!   regular expressions). **Identity overrides are a hash table**, whose look-up does not depend on its size.
//! - **The same environment gives the same bytes.** The time of a publication is not in them.
//!
//! # The files
//!
//! A snapshot is one *core* file, up to [`files::OVERRIDES_SLOTS`] *overrides* files, and, where the environment's document
//! is served, up to [`files::DOCUMENT_SLOTS`] files with it ([`files`] has their names). All numbers are little-endian.
//! All kinds begin with the same header of 64 bytes:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `REMORA`, 0x1A, then `C` for a core, `O` for overrides, `D` for a document |
//! | 8 | 2 | format major, 2: a reader refuses every other than its own |
//! | 10 | 2 | format minor: minors only add, a reader ignores what it does not know |
//! | 12 | 4 | required features: a reader refuses bits that it does not have (none are defined yet) |
//! | 16 | 8 | length of the file |
//! | 24 | 16 | checksum of everything behind it: SipHash-1-3-128 with a key of zeros |
//! | 40 | 8 | core: the revision, 48 bits of a hash over the checksums of all files |
//! | 48 | 16 | fingerprint of the environment: SipHash-2-4-128 of its client key, and the key of all keyed hashes |
//!
//! ## The core
//!
//! Behind the header is the section table: offset and length (4 bytes each) of each section, in this order. A section is
//! a table of rows of fixed size, except those that say *bytes*. A *span* is an offset into the blob and a length.
//!
//! | section | row | what |
//! |---|---|---|
//! | blob | bytes | UTF-8: names, keys, values as JSON, pieces of answers |
//! | features | 56 | id, spans (name, head of Flagsmith's object, head and tail of OFREP's), default context, first and number of rows in *ranked*, flags (server keys only 1, targeted 2, not served 4) |
//! | feature names | 4 | a hash table (linear probing from the *label* on, a power of two): one more than the feature's row, 0 is free |
//! | feature ids | 12 | id and row, sorted by id |
//! | split features | 4 | features whose default has variants |
//! | answers | 20 | four: without identity for client and server keys, then the defaults for both; each a span, its first row in *bounds*, and the sum of the digests of the features in it |
//! | bounds | 4 | where each feature's object begins in an answer, and where the last one ends |
//! | contexts | 24 | what a feature can be: the rest of Flagsmith's object from its state on, with a comma (span), one more than its row in *splits* or 0, enabled (1), digest (8) |
//! | splits | 16 | seed of the hash (span), first and number of rows in *variants* |
//! | variants | 40 | upper limit in percent (f64), value, name as JSON or empty, weight as text (spans), digest (8) |
//! | segments | 28 | name, entry in *code* of what the index does not answer, first and number of rows in *claiming*, flags (needs no identity 1), Flagsmith's id |
//! | blocks | 32 | the index of 64 segments, a bit each: those that have rules (8), first and number of rows in *columns*, in *moduli* and in *shares* |
//! | columns | 128 | what a slot's value says of a block: see below |
//! | moduli | 32 | divisor, remainder (f64), the segment's bit (8), slot, 1 if the segment wants another remainder |
//! | shares | 32 | threshold in percent (f64), seed of the hash (span), the segment's bit (8), slot, 1 if the segment wants those above the threshold; sorted by segment |
//! | marks | 24 | a value (8), the segments that are left at it (8), and those left between it and the next (8) |
//! | listed | 20 | hash tables, one a column (linear probing, a power of two or none): the token of a member of sets (12), the segments that are left with it (8). A free row has 7f twelve times, and what is left of texts in no set |
//! | joints | 32 | up to 64 patterns as one automaton, a bit each, whose matching states are those in which something is found: offset and length in *programs*, first and number of rows in *finds* and in *wants*, those that are looked for in numbers, too (8) |
//! | finds | 16 | by state: the patterns that are found when it is reached (8), and when the text ends in it (8) |
//! | wants | 32 | what a segment wants: any of these patterns to be found (8), or any of these not to be (8), its bit (8), 1 if it wants neither of it (8) |
//! | claiming | 4 | rows in *claims* |
//! | claims | 16 | features in one run that a segment overrides: which of 64 in a row, a bit each (8), which 64, row in *runs*. Of the claims of a feature, the first is the strongest: a segment has several for the same 64 where features have their segments in different orders |
//! | runs | 16 | features in a row that a segment overrides: the first of them, first and number of rows in *ranks*, first row in *edges* or 2³²−1 |
//! | ranks | 2 | the rank of the segment's override among those of the feature; 2¹⁶−1: there is none |
//! | edges | 12 | one more than there are ranks in the run: where in the blob Flagsmith's object of the feature begins, which is where that before it ends (with a comma; empty: the feature is hidden), and by how much the digests of the features before it differ from those of their defaults (8). A run in which features have variants or are not for every key has none |
//! | ranked | 8 | the overrides of one feature, strongest first: segment, context |
//! | code | 40 | operator (1), flags (1), slot (2), next if true, next if false, operand, left (8), right (8), text (span) |
//! | slots | 16 | name of the trait, derivation, argument |
//! | trait names | 24 | a hash table from names to slots: first and last number of the name's *label* (8 each), its length, one more than the slot |
//! | derived | 4 | slots that are more than a trait |
//! | big integers | 12 | 1 if it is below zero, digits (span) |
//! | members | 12 | the token of a member, sorted within a set |
//! | patterns | 12 | kind (automaton 0, backtracking 1), offset and length in *programs* |
//! | programs | bytes | automata of *joints*, then those and the programs of *patterns* |
//! | keys | 20 | hash of an API key (16), role (client 0, server 1) |
//! | origin | 20 | one row: environment's name, client key, flags (hide disabled flags 1; without identity: segments that need none 2, all segments 4; the document is served 8; to OpenFeature, booleans answer whether they are enabled 16, disabled flags their value 32, and texts that are JSON objects are objects 64; in the second byte one more than the leading hash bits that choose the overrides file, 0: the core has them all) |
//! | literals | 8 | constants that conditions read, as JSON (span) |
//! | notes | bytes | what people should know, a line each |
//! | overrides | bytes | an overrides file with all of them, also where there are none; empty: they do not fit, and are in files of their own |
//!
//! The *index* answers what segments ask of single slots: every condition, list of alternatives or exclusion that must hold
//! of one slot whatever else does, except for sets of more than 64 members or with integers beyond 64 bits, patterns that
//! need backtracking or are too many for one automaton, numbers and versions that are not small, and moduli and percentages
//! that are alternatives to something else. To a segment belongs who is left in all columns, moduli and shares of its
//! block, and is accepted by its program, which has the rest. Shares come last, as hashing is what takes longest. A column
//! is, each a word with a bit a segment unless said otherwise:
//!
//! | bytes | what is left |
//! |---|---|
//! | 4, 4 | the slot; one more than the row in *joints*, or zero |
//! | 8, 8, 8 | where the slot is not set; where it is `false`; where it is `true` |
//! | 8, 8 | where it is not a number (NaN); where it is a text that is no version |
//! | 8, 4, 4 | below the first *mark* of texts (their point is a span), and the first and the number of those marks |
//! | 8, 4, 4 | the same of versions (21 bits a number) |
//! | 8, 4, 4 | the same of integers |
//! | 8, 4, 4 | the same of floats |
//! | 8, 4, 4 | where it is a text in no set, and the first and the number of rows in *listed* |
//!
//! What is left is what all look-ups leave that the value's type has: texts, versions, sets and patterns for a text;
//! integers and patterns for an integer; floats and patterns for a float. To equal a text is to be in a set of one; the
//! integers of sets are among the *marks* of integers.
//!
//! The *token* of a member of a set are its length (1) and its bytes, if they are at most eleven, and else its keyed hash with
//! the highest bit of the first byte set.
//!
//! A program begins at its segment's entry. Where to go on is a row of *code* with a greater number, or 2³²−1: the subject
//! belongs to the segment, or 2³²−2: it does not. The operators, from 0: `EQUAL`, `NOT_EQUAL`, `GREATER_THAN`,
//! `GREATER_THAN_INCLUSIVE`, `LESS_THAN`, `LESS_THAN_INCLUSIVE`, `CONTAINS`, `NOT_CONTAINS`, `REGEX`, `MODULO`, `IN`,
//! `PERCENTAGE_SPLIT`, `IS_SET`, `IS_NOT_SET`.
//!
//! What a condition compares with stands in its row. Comparisons have the value in every type that the left side can have:
//! as text, as a boolean (flag 2: true), as an integer in *left* (flag 4) or in *big integers* (flag 8), as a float in
//! *right* (flag 16), as a version without its `:semver` in the text (flag 32), of which that of three plain numbers has
//! major and minor number in *left*, 32 bits each, and the patch number in *right* (flag 64). Flag 1 says that the slot may
//! have to be read of a flag. `REGEX` has a row of *patterns* as operand, `MODULO` divisor and remainder (f64), `IN` first
//! row (low) and number (high) of its *members* in *left*, `PERCENTAGE_SPLIT` the threshold (f64) and the seed's offset
//! (low) and length (high).
//!
//! A *digest* stands for what a flag is: 64 bits of SipHash-1-3-128 with a key of zeros over its id (8), its state (1) and
//! its value. A sum of them, modulo 2⁶⁴, says who got the same flags.
//!
//! A slot's value is that of the trait with its name. Without such a trait it is derived: 0 not at all, 1 the identifier,
//! 2 the identity's key (client key, underscore, identifier), 3 another slot with a smaller number, 4 a literal, 5 a
//! member of another flag's result (feature in 24 bits, member above: enabled, value, variant, reason, name, id).
//!
//! A *label* are two numbers for a name. Of a name of up to sixteen bytes they are its first and its last eight bytes; if it
//! has less than eight, four; if it has less than four, all in the first, read as one big-endian number. Of a longer name the
//! first is a hash: beginning with zero, for every whole eight bytes *f*(hash xor bytes, A). *f*(*a*, *b*) are both halves of
//! their product, 64 bits each, xor'ed; A is 0x6a09e667f3bcc909, B is 0xbb67ae8584caa73b. Probing begins at
//! *f*(first xor A, last xor B xor length), modulo the table's size; for a token at *f*(its first eight bytes xor A, its last
//! four xor B), both read as big-endian numbers.
//!
//! ## Overrides
//!
//! Behind the header: which leading hash bits the file is for and how many (4 bytes each), then the section table.
//!
//! | section | row | what |
//! |---|---|---|
//! | directory | 4 | by the next leading bits of the hash: the first entry (upper 17 bits), and the marks of all entries of this bucket (15 bits); a power of two and one |
//! | entries | 16 | hash of the identifier (12), group; sorted |
//! | groups | 4 | where each group begins in *items*, and where the last one ends |
//! | items | 16 | Flagsmith's id of the feature (8), value as JSON (offset; length in 24 bits, the highest bit: enabled) |
//! | blob | bytes | values as JSON |
//!
//! The mark of a hash is one of fifteen bits: its last 4 bytes, a big-endian number, times 15, divided by 2^32. Most identities
//! have no overrides, and a mark that is missing says so without a look at the entries.
//!
//! Identities with equal overrides share a group. Features are named by Flagsmith's ids, so a file that is a revision
//! older than its core is right by itself, only staler. A file that is divided otherwise than the core says counts only
//! where the right one is missing: it is left over, or the others are on their way. The hash is 96 bits of SipHash-2-4-128 under the fingerprint: no
//! identifier is stored, but who has the file can try identifiers.
//!
//! ## The document
//!
//! The document that the operator compiled, for SDKs that evaluate by themselves: one gzip stream of one member whose header
//! has no optional fields, cut into parts. Behind the header:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 64 | 4 | which part this is, from 0 |
//! | 68 | 4 | how many there are |
//! | 72 | 16 | name of the document: SipHash-1-3-128 with a key of zeros of the whole stream |
//! | 88 | 8 | bytes of the document |
//! | 96 | 8 | bytes of the stream |
//! | 104 | | this part of the stream, up to the end of the file |
//!
//! Only parts with one name are a document. It may be a revision older than its core. Unlike the other files it has
//! identifiers in it: nobody but the bearer of a server key may see it.
//!
//! # What validation guarantees
//!
//! After [`Snapshot::read`]: every span lies in the blob at whole characters, every row that is referred to exists, every
//! jump goes forward, every automaton and every program stays within itself. The reading is linear in the file's bytes:
//! where reading a range takes time, no two rows have the same range. Nothing is guaranteed of what the values mean; the
//! checksum tells damage, not malice. So an evaluation has a budget ([`MAX_STEPS`]), and an answer a length ([`MAX_ANSWER`]).

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod budget;
mod evaluate;
mod format;
mod regex;
mod render;
mod segments;
mod snapshot;
mod values;
mod write;

pub use budget::{Budget, MAX_STEPS};
pub use evaluate::resolve::MAX_CHAIN;
pub use evaluate::role::Role;
pub(crate) use evaluate::role::Scope;
pub use evaluate::subject::{Subject, TraitValue};
pub use format::document::Document;
pub use format::error::ReadError;
pub use format::layout::{FORMAT_MAJOR, FORMAT_MINOR};
pub use format::revision::Revision;
pub use render::answer::MAX_ANSWER;
pub use render::cohort::Shared;
pub use render::finish::Flags;
pub use render::ofrep::OfrepFlag;
pub use snapshot::describe::{
    Description, FeatureDescription, OverrideDescription, SegmentDescription, VariantDescription,
};
pub use snapshot::explain::{Decision, Explanation};
pub use snapshot::{Overrun, Snapshot, digest};
pub use values::number::{Integer, write_float};
pub use write::{File, WriteError, Written, write};

pub use format::{files, model};
pub use regex::{automaton, backtrack};
pub use values::{json, semver};
