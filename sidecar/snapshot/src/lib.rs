//! The snapshot format: a Flagsmith environment compiled to bytes that are evaluated in place.
//!
//! The operator writes a snapshot once per change ([`write()`]). The sidecar reads it once per change
//! ([`Snapshot::read`]) and evaluates it on every request. This crate is the contract between the two: both depend on
//! it, and neither depends on the other. The crate does no input or output, starts no threads or tasks, has no
//! `unsafe`, and depends on a hash function, on a safe SIMD library, and on a macro for error types.
//!
//! ```
//! use remora_snapshot::model::{Context, Environment, Feature};
//! use remora_snapshot::{Role, Snapshot, RequestState, write};
//!
//! let default = Context { enabled: true, value: "42".to_owned(), split: None };
//! let feature = Feature { id: 7, name: "limit".to_owned(), kind: "STANDARD".to_owned(), served: true, server_only: false, default };
//! let environment = Environment { client_key: "key".to_owned(), features: vec![feature], ..Environment::default() };
//!
//! let written = write(&environment, 1_000_000)?;
//! let snapshot = Snapshot::read(written.files[0].bytes.as_slice())?;
//! let mut request = RequestState::default();
//! snapshot.identify(&mut request, "somebody");
//! let mut answer = Vec::new();
//! snapshot.write_flags(&mut request, Role::Client, &mut answer);
//! assert_eq!(answer, br#"[{"feature":{"id":7,"name":"limit","type":"STANDARD"},"enabled":true,"feature_state_value":42}]"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Overview
//!
//! A core file, and the path of a request for all flags of an identity through it:
//!
//! ```text
//!  offset 0   +--------------------------------------------------------------------+
//!             | header, 64 bytes: magic, version, length, checksum, ...            |
//!         64  +--------------------------------------------------------------------+
//!             | section table: (offset, length) of each of the 39 sections         |
//!        376  +--------------------------------------------------------------------+
//!             |                                                                    |
//!  request:   |  trait names, slots, derived, literals                             |
//!  traits ----|--> (1) put each trait's value into its slot; derive other slots    |
//!             |         |                                                          |
//!             |  blocks, attribute indexes, breakpoints, exact matches,            |
//!             |  combined DFAs, accept sets, pattern predicates, modulo rules      |
//!             |    (2) segment index: per block of 64 segments, AND one 64-bit     |
//!             |        word per slot and per modulo rule -> candidates             |
//!             |         |                                                          |
//!             |  percentage rules                                                  |
//!             |    (3) hash the percentage rules of the remaining candidates       |
//!             |         |                                                          |
//!             |  segments, code, big integers, members, patterns, programs         |
//!             |    (4) run the candidate's residual program: accept or reject      |
//!             |         |                                                          |
//!             |  segment masks, override masks                                     |
//!             |    (5) take the masks of the matching segments, strongest first    |
//!             |         |                                                          |
//!  request:   |  overrides (or a separate overrides file), feature ids             |
//!  identifier |    (6) hash the identifier, look up the identity override.         |
//!  -----------|-->     Precedence: identity override, masks in row order, default  |
//!             |         |                                                          |
//!             |  answers, bounds, override runs, ranks, object offsets, segment    |
//!             |  overrides, features, contexts, splits, variants, blob             |
//!  response   |    (7) copy byte ranges of the default answer and of the runs that |
//!  <----------|---     won; assemble features with variants from their pieces      |
//!             +--------------------------------------------------------------------+
//! ```
//!
//! ## One request, step by step
//!
//! Feature `limit` (id 7) is 42 by default. Segment `beta` (trait `plan` equals `"pro"`) overrides it with 50, and the
//! identity `ada` with 99. The section [Example](#example) lists the file of this environment. A request asks for the
//! flags of the identity `bob`, whose trait `plan` is `"pro"`:
//!
//! 1. The *name key* of the name `plan` is 4 bytes, 0x6e616c70, 0x6e616c70. Probing in *trait names* starts at row 1.
//!    That row has the name key and slot 0, so slot 0 gets the text `pro`. No slot is in *derived*.
//! 2. There is one block. Its candidates are 0x1: segment 0. It has one attribute index, for slot 0. The value is a
//!    text, and the attribute index has no breakpoints of texts or versions, and no patterns: these look-ups give all
//!    candidates. The member key of `pro` is `03 70 72 6f` and eight zeros. Probing in the two rows of *exact matches*
//!    starts at row 0, which has this key, and candidates with bit 0. The bitwise AND is 0x1.
//! 3. The block has no modulo and no percentage rules: segment 0 stays a candidate.
//! 4. The entry of segment 0 is 2³²−1: the index decides the segment completely. The identity matches.
//! 5. Segment 0 has row 0 of *segment masks*, which names row 0 of *override masks*: mask 0 applies.
//! 6. The section *overrides* has a file. The hash of `bob` is `34b1397612ca47051e75d7ef`, whose filter bit is bit 1.
//!    The only bucket does not have this bit, so `bob` has no override.
//! 7. Mask 0 covers feature 0 of block 0 and names run 0. The run has offsets: the bytes between its two offsets are
//!    the object of `limit` with the value 50, and a comma. The answer is `[`, these bytes without the comma, and `]`.
//!
//! For `ada`, step 6 ends differently. The hash of `ada` is `cbac80766dc60de6a6e92b22`, whose filter bit is bit 9. The
//! bucket has it. Its entries are row 0 to row 1 (exclusive), and entry 0 has this hash. Its group 0 has item 0:
//! feature id 7, enabled, value `99`. *Feature ids* maps 7 to row 0. An identity override is stronger than every
//! override mask, so the answer has the head of the feature, its state, and 99.
//!
//! # Design
//!
//! - **The reader parses nothing and copies nothing.** It validates the file once, in one linear pass, and follows
//!   offsets from then on. For every input, that pass and each later evaluation end without a panic and without access
//!   outside of the file: each access is checked again when it is made.
//! - **Answers are stored, not serialized.** The flag objects of Flagsmith's dialect are stored up to their value, and
//!   the array of all defaults is stored as one run. An evaluation copies runs and pieces.
//! - **An index finds the segments.** It indexes the values that conditions compare with. One look-up per trait says
//!   for 64 segments at once which of them can still match. **Programs** of typed conditions, whose jumps only go
//!   forward, evaluate the rest ([`automaton`] and [`backtrack`] define the regular expressions).
//! - **Identity overrides are a hash table.** The cost of a look-up does not depend on the table's size.
//! - **The same environment gives the same bytes.** The time of a publication is not part of them.
//!
//! # Why not FlatBuffers or rkyv
//!
//! Both describe typed objects, and both validate untrusted bytes. The [verifier of FlatBuffers] checks offsets,
//! alignment and UTF-8, and limits the depth, the number of tables, and the size of the expanded objects. The
//! [validation of rkyv] checks pointers, alignment and values, and that no two objects share bytes. This format differs
//! in its needs:
//!
//! - **Validity is about the tables, not about types.** Jumps go forward, states of automata exist, the size of each hash
//!   table is a power of two, and ranges do not overlap where reading them takes time. No general verifier knows these
//!   rules, so the linear pass would follow the verifier's.
//! - **Bytes are shared.** Spans overlap: the stored object of an override ends with the tail of its context.
//!   rkyv requires shared pointers for that; FlatBuffers has no references into the middle of a string.
//! - **Everything is safe Rust.** This crate forbids `unsafe`. Rows are decoded from bytes, so alignment does not
//!   matter. Code of both libraries casts bytes to types with `unsafe` of their own.
//! - **The indexes fit this program.** Words of 64 segments, breakpoints, hash tables with a fixed order of probing and
//!   combined automata would be opaque byte arrays in either format.
//! - **One environment has one encoding,** because the revision is a hash of the bytes. The [encoding of FlatBuffers]
//!   leaves the order of objects to the writer, so the writer would be part of this specification as well.
//! - **A reader in another language needs this text only.** The layout of rkyv follows from Rust types ([format of
//!   rkyv]).
//!
//! Rows have a fixed size and no padding, vtables or pointers, because a ConfigMap holds one megabyte.
//!
//! [verifier of FlatBuffers]: https://docs.rs/flatbuffers/latest/flatbuffers/struct.VerifierOptions.html
//! [encoding of FlatBuffers]: https://flatbuffers.dev/internals/
//! [validation of rkyv]: https://rkyv.org/validation.html
//! [format of rkyv]: https://rkyv.org/format.html
//!
//! # Glossary
//!
//! Terms of this specification, with the names of rows and sections in the code.
//!
//! | term | meaning |
//! |---|---|
//! | accept set (`AcceptSet`) | the patterns that are found when one automaton state is reached, and at the end of the text |
//! | answer (`PreparedAnswer`, `bounds`) | the JSON array of all flags, as one byte range of the blob, and the offset of each feature's object in it |
//! | attribute index (`AttributeIndex`) | maps the value of one slot to the candidates of one block |
//! | backtracking program ([`backtrack`]) | a compiled regular expression that no automaton can express: look-around, back-references, Unicode word boundaries |
//! | block (`SegmentBlock`) | the index of 64 consecutive segments; each segment is one bit of every word, the first segment is the lowest bit |
//! | breakpoint (`Breakpoint`) | a value in the order of its type, the candidates at it, and the candidates between it and the next breakpoint |
//! | candidate | a segment whose bit is still set after the look-ups of the index |
//! | combined DFA (`CombinedDfa`) | up to 64 patterns on one slot, compiled to one automaton |
//! | context (`Context`) | one state of a feature: enabled or not, value, split |
//! | core | everything except identity overrides that do not fit into it, and the document: one file, or several parts |
//! | derivation | the rule that gives a slot a value if the request has no trait of its name |
//! | digest | 64 bits that identify what a flag is: id, state, value, and the members that an experiment adds |
//! | document | the environment document that the operator compiled, for SDKs that evaluate locally |
//! | exact match (`ExactMatch`) | a row of the hash table of an attribute index: maps a member key to candidates |
//! | fingerprint | 128 bits that identify the environment, and the key of all keyed hashes |
//! | group | the items of an overrides file that identities with equal overrides share |
//! | head, tail | the constant bytes of a flag object before its state, and from its state on |
//! | member (`Member`) | one value of an `IN` list that the index does not cover |
//! | member key (`MemberKey`) | the 12-byte key of a text in a set: the text itself if it has at most eleven bytes, else its keyed hash |
//! | modulo rule (`ModuloRule`) | the segment matches if a slot's value has this remainder for this divisor |
//! | name key (`NameKey`) | the key of a name in a hash table: its length and two 64-bit numbers |
//! | object offset (`ObjectOffset`) | the offset of one feature's stored object within an override run |
//! | override mask (`OverrideMask`) | up to 64 consecutive features that one segment overrides, one bit each. Of the masks of all matching segments, the first one with a feature decides the feature |
//! | override run (`OverrideRun`) | consecutive features that one segment overrides, with their ranks and stored objects |
//! | overrides file, shard | a file with identity overrides, for the identifiers whose hash has certain leading bits |
//! | part | up to [`files::PART_BYTES`] consecutive bytes of a core that does not fit into one file |
//! | pattern predicate (`PatternPredicate`) | a predicate of a segment on the patterns of a combined DFA: any of some patterns is found, or any of others is not |
//! | percentage rule (`PercentageRule`) | the segment matches if the hash of a slot's value is at or below a threshold |
//! | pointer ([`Pointer`]) | the file that names the set with the parts of the published core |
//! | program (`code`) | the residual conditions of a segment: the conditions that the index does not evaluate |
//! | rank (`Rank`) | the priority of a segment's override among all overrides of the feature; 0 is the strongest |
//! | revision ([`Revision`]) | the name of the content of all files of a snapshot |
//! | section | one table or byte range of a file |
//! | seed | the bytes that are hashed before the identity's key, or before a slot's value, to get a percentage |
//! | segment override (`SegmentOverride`) | an override of a feature by a segment; the rows of a feature are sorted, the strongest first |
//! | set ([`files::CoreSet`]) | one of two series of files for the parts of a core |
//! | slot (`Slot`) | a numbered property that conditions read: a trait, or a derived value |
//! | span (`Span`) | offset and length, 4 bytes each; in the blob unless another section is named |
//! | split (`Split`) | the variants of a context |
//!
//! # Files
//!
//! A snapshot is one *core* file (or [several](#a-core-in-parts)), up to [`files::OVERRIDES_SLOTS`] *overrides* files, and, if the environment's
//! document is served, up to [`files::DOCUMENT_SLOTS`] *document* files ([`files`] has their names). All numbers are
//! little-endian unless stated otherwise. All kinds of files begin with the same header of 64 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic: `REMORA`, 0x1A, then `C` for a core, `P` for a pointer, `O` for overrides, `D` for a document |
//! | 8 | 2 | format major, 3: a reader refuses every major but its own |
//! | 10 | 2 | format minor: a new minor adds only what a reader may ignore: sections behind the last one of the table, and bits of the flags of *features*, *segments* and *origin*. Anything else that is new needs a required feature or a new major |
//! | 12 | 4 | required features: a reader refuses a file with bits that it does not know (none are defined yet) |
//! | 16 | 8 | length of the file in bytes |
//! | 24 | 16 | checksum of all bytes after this field: SipHash-1-3-128 with a key of zeros |
//! | 40 | 8 | core and pointer only: the revision, 48 bits of a hash over the checksums of all files |
//! | 48 | 16 | fingerprint of the environment: SipHash-2-4-128 of its client key with the key `remora/snapshot1`, and the key of all keyed hashes |
//!
//! The 16 bytes of a SipHash are its first and its second 64-bit half, each little-endian. The revision is the first
//! six bytes, read as a big-endian number, of a checksum over checksums: the checksum of the core while its revision is
//! still zero, then the checksum fields of the overrides files and of the document files. Keyed hashes are
//! SipHash-2-4-128 with the fingerprint as key; a hash of 96 bits is its first twelve bytes.
//!
//! ## A core in parts
//!
//! A core of more than [`files::MAX_FILE_BYTES`] bytes is cut into parts of [`files::PART_BYTES`] bytes; only the last is
//! shorter. The parts have no headers of their own: one after another they are the core, whose header states the length
//! and the checksum of all of it. They are in the files of one of two sets ([`files::core_part`]). The file `core` is a
//! *pointer* then, which has after its header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 64 | 4 | set: 0 for `a`, 1 for `b` |
//! | 68 | 4 | number of parts |
//! | 72 | 8 | length of the core in bytes |
//!
//! Revision and fingerprint of the pointer are those of the core. A writer replaces the files of the set that is not
//! published, then the pointer, so the previous core stays whole until the next one is whole. Before the first pointer,
//! the writer puts the published core into the set that the pointer will not name, as one part if it fits into one
//! file.
//!
//! The files are not replaced in one transaction. A reader takes the pointed set only if all its parts exist, each has
//! its length, the header of the core is valid for all of them together, and its revision and fingerprint are those of
//! the pointer. Otherwise a reader that has a core keeps it. A reader that has none reads the other set: its first part
//! states the length of the core in it, and so the number of parts; the core must be valid and have the fingerprint of
//! the pointer.
//!
//! ## The core
//!
//! The section table follows the header: offset and length (4 bytes each) of each section, in the order below. A
//! section is a table of rows of fixed size, except sections marked *bytes*. The writer starts each section at a
//! multiple of eight bytes, after up to seven zero bytes; a reader does not depend on this. A *span* is an offset into
//! the blob and a length (4 bytes each). A range of rows is stored as its first row and its number of rows (4 bytes
//! each). An f64 has 8 bytes, a number in parentheses gives the width of its field in bytes, and all other fields have
//! 4 bytes. The *bit* of a segment is its bit in the words of its block.
//!
//! | section | row bytes | content |
//! |---|---|---|
//! | blob | bytes | UTF-8: names, keys, values as JSON, pieces of answers |
//! | features | 56 | id (8), spans (name, head of Flagsmith's object, head and tail of OFREP's object), default context, range of rows in *segment overrides*, flags: see below |
//! | feature names | 4 | a hash table (linear probing from the *name key* on, size a power of two): the feature's row plus 1; 0 is a free row |
//! | feature ids | 12 | Flagsmith's id (8) and row of a feature, sorted by id |
//! | split features | 4 | rows of the features whose default has variants |
//! | answers | 20 | four rows: without identity for client and for server keys, then the defaults for client and for server keys. Each row: span, first row in *bounds*, sum of the digests of the features in it (8) |
//! | bounds | 4 | offset of each feature's object from the start of an answer, and the end of the last object |
//! | contexts | 24 | one state of a feature: the rest of Flagsmith's object from its state on, with a comma (span; with an experiment, eight hexadecimal digits and that many bytes of metadata as JSON follow it in the blob), row in *splits* plus 1 or 0, 1 if the feature is enabled, digest (8) |
//! | splits | 16 | seed of the hash (span), range of rows in *variants* |
//! | variants | 40 | upper limit in percent (f64), value, name as JSON or empty, weight as text (spans), digest (8) |
//! | segments | 28 | name (span), entry of the program in *code*, flags (1: needs no identity), range of rows in *segment masks*, Flagsmith's id |
//! | blocks | 32 | the index of 64 segments: bits of the segments that exist and have rules (8), ranges of rows in *attribute indexes*, in *modulo rules* and in *percentage rules*. Blocks share no rows |
//! | attribute indexes | 128 | attribute index of one slot for one block: see below |
//! | modulo rules | 32 | modulo rule: divisor, remainder (f64), the segment's bit (8), slot, 1 if the rule is negated |
//! | percentage rules | 32 | percentage rule: threshold in percent (f64), seed of the hash (span), the segment's bit (8), slot, 1 if the rule is negated (a percentage above the threshold matches); sorted by segment |
//! | breakpoints | 24 | breakpoint: a value (8), the candidates at it (8), the candidates between it and the next breakpoint (8) |
//! | exact matches | 20 | one hash table per attribute index (linear probing, size a power of two, or no rows): member key (12), candidates for it (8). A free row has 0x7f in all twelve bytes of the key, and the candidates for texts in no set |
//! | combined DFAs | 32 | automaton of up to 64 patterns, one bit each: offset and length in *programs*, ranges of rows in *accept sets* and in *pattern predicates*, patterns that are also searched in numbers (8). Its matching states are the states in which a pattern is found |
//! | accept sets | 16 | per state: the patterns found when the state is reached (8), and when the text ends in it (8) |
//! | pattern predicates | 32 | predicate of a segment: any of these patterns is found (8), or any of these is not found (8), the segment's bit (8), 1 if the predicate is negated (8) |
//! | segment masks | 4 | rows in *override masks* of one segment |
//! | override masks | 16 | the features of one run that a segment overrides, as one bit for each of 64 consecutive features (8), the number of the 64, row in *override runs*. The first mask with a feature is the strongest. A segment has several masks for the same 64 features if features order their segments differently |
//! | override runs | 16 | consecutive features that a segment overrides: the first feature, range of rows in *ranks*, first row in *object offsets* or 2³²−1 (no offsets) |
//! | ranks | 2 | rank of the segment's override among the overrides of the feature; 2¹⁶−1: the segment does not override this feature |
//! | object offsets | 12 | one row more than the run has ranks: offset in the blob of Flagsmith's object of the feature, which is also the end of the previous object (with its comma; an empty object means that the feature is hidden), and the sum of the digests of the features before it minus the sum of their defaults' digests (8). A run has no offsets if one of its features has variants or is not for every key |
//! | segment overrides | 8 | the overrides of one feature, strongest first, at most 65,534: segment, context |
//! | code | 40 | instruction: operator (1), flags (1), slot (2), next if true, next if false, operand, left (8), right (8), text (span) |
//! | slots | 16 | name of the trait (span), derivation, argument; at most 65,535 rows |
//! | trait names | 24 | a hash table from names to slots: first and last number of the name's *name key* (8 each), its length, the slot plus 1 (0 is a free row) |
//! | derived | 4 | slots that have a derivation, ascending |
//! | big integers | 12 | 1 if negative, digits (span) |
//! | members | 12 | member key, sorted within a set |
//! | patterns | 12 | kind (0: automaton, 1: backtracking), offset and length in *programs* |
//! | programs | bytes | the automata of *combined DFAs*, then the automata and programs of *patterns* |
//! | keys | 20 | keyed hash of an API key (16), role (0: client, 1: server): the client key, and all server keys |
//! | origin | 20 | one row: environment's name, client key (spans), flags: see below |
//! | literals | 8 | constants that conditions read, as JSON (span) |
//! | notes | bytes | warnings for people, one per line |
//! | overrides | bytes | an overrides file with all identity overrides, even if there are none; empty: they do not fit, and are in separate files |
//!
//! The flags of *features*:
//!
//! | bit | meaning |
//! |---|---|
//! | 1 | only server keys see the feature |
//! | 2 | targeted |
//! | 4 | the feature is not served |
//! | 8 | an experiment runs on the feature |
//! | 16 | an experiment runs on the feature, and its type is `MULTIVARIATE` |
//!
//! The flags of *origin*:
//!
//! | bit | meaning |
//! |---|---|
//! | 1 | answers hide disabled flags |
//! | 2 | without an identity, segments that need no identity apply |
//! | 4 | without an identity, all segments apply |
//! | 8 | the document is served |
//! | 16 | OFREP returns for a boolean flag if it is enabled, instead of its value |
//! | 32 | OFREP returns the value of a disabled flag |
//! | 64 | OFREP returns a string that holds a JSON object as an object |
//! | second byte | number of leading hash bits that choose the overrides file, plus 1; 0: the core has all overrides, or its writer's version did not state the number |
//!
//! ### The segment index
//!
//! The index evaluates requirements on single slots: each condition, list of alternatives or exclusion that must hold
//! of one slot, independent of all other conditions. It does not cover:
//!
//! - sets of more than 64 members, or with integers beyond 64 bits,
//! - patterns that need backtracking, or that are too many for one automaton,
//! - integers beyond 64 bits, and NaN; versions with a prerelease, with build metadata, or with a number of 2²¹ or more,
//! - modulo and percentage rules that are alternatives to another condition.
//!
//! An identity matches a segment if every attribute index, modulo rule and percentage rule of the segment's block keeps
//! the segment's bit, and if the segment's program accepts the identity. The program has all other conditions.
//! Percentage rules come last, because hashing takes the longest. A row of *attribute indexes* has these fields. Fields
//! of 8 bytes are words of candidates, one bit per segment:
//!
//! | bytes | field |
//! |---|---|
//! | 4, 4 | slot; row in *combined DFAs* plus 1, or 0 |
//! | 8, 8, 8 | candidates if the slot is not set; if it is `false`; if it is `true` |
//! | 8, 8 | candidates if the value is not a number (NaN); if it is a text that is no version |
//! | 8, 4, 4 | candidates below the first breakpoint (row of *breakpoints*) of texts, whose point is a span; range of these breakpoints |
//! | 8, 4, 4 | the same for versions (the point has 21 bits per number, the major number in the highest) |
//! | 8, 4, 4 | the same for integers |
//! | 8, 4, 4 | the same for floats |
//! | 8, 4, 4 | candidates if the value is a text in no set; range of rows in *exact matches* |
//!
//! The candidates of an attribute index are the bitwise AND of all look-ups that exist for the value's type: texts,
//! versions, sets and patterns for a text; integers and patterns for an integer; floats and patterns for a float.
//! Equality with a text is a set of one member. The integers of sets are breakpoints of integers. Booleans and values that
//! are not set are not searched for patterns.
//!
//! The order of a value among breakpoints:
//!
//! - An integer beyond 64 bits is above all breakpoints of integers, or below all of them if it is negative.
//! - A version is compared by its three numbers, and then a prerelease is below the release. Build metadata does not count.
//!   A number beyond 64 bits is above the numbers of all breakpoints.
//!
//! A combined DFA runs over the value as a text. The row of a state in *accept sets* is the state's offset in the table
//! of transitions divided by the number of classes. In a number, only the patterns that are also searched in numbers
//! count. The absence of a pattern counts for texts only.
//!
//! A modulo or percentage rule does not match a slot that is not set. A negated rule matches it.
//!
//! The *member key* of a text is its length (1 byte) and its bytes if it has at most eleven bytes. Otherwise it
//! is the member's keyed hash, with the highest bit of the first byte set.
//!
//! ### Programs
//!
//! A program begins at its segment's entry. An entry and both next fields are a row of *code*, 2³²−1 (accept: the
//! identity belongs to the segment) or 2³²−2 (reject: it does not). A next row is always greater than the instruction's
//! own row. The operators, from 0: `EQUAL`, `NOT_EQUAL`, `GREATER_THAN`, `GREATER_THAN_INCLUSIVE`, `LESS_THAN`,
//! `LESS_THAN_INCLUSIVE`, `CONTAINS`, `NOT_CONTAINS`, `REGEX`, `MODULO`, `IN`, `PERCENTAGE_SPLIT`, `IS_SET`,
//! `IS_NOT_SET`.
//!
//! An instruction stores the value that it compares with. Comparisons store that value in every type that the left side
//! can have:
//!
//! | flag | meaning |
//! |---|---|
//! | 1 | the slot may have to be resolved from a flag |
//! | 2 | the value as a boolean is true |
//! | 4 | the value is also an integer, in *left* |
//! | 8 | the value is also an integer beyond 64 bits, in the row *operand* of *big integers* |
//! | 16 | the value is also a float, in *right* |
//! | 32 | the value is a version, in *text* without its `:semver` |
//!
//! *text* is always the value as a text. The other operators use these fields:
//!
//! - `REGEX`: *operand* is a row of *patterns*.
//! - `MODULO`: *left* is the divisor and *right* the remainder (f64).
//! - `IN`: *left* is the first row (low half) and the number of rows (high half) of its *members*.
//! - `PERCENTAGE_SPLIT`: *left* is the threshold (f64), *right* the offset (low half) and length (high half) of the
//!   seed.
//!
//! ### Slots and derivations
//!
//! A slot has the value of the trait with its name. Without such a trait its derivation gives the value:
//!
//! | derivation | value |
//! |---|---|
//! | 0 | none, the slot is not set |
//! | 1 | the identifier; not set without an identity |
//! | 2 | the identity's key (client key, underscore, identifier); not set without an identity |
//! | 3 | the value of the slot *argument*, which has a smaller number |
//! | 4 | the literal *argument* |
//! | 5 | a member of another flag's result: *argument* has the feature in the lower 24 bits and the member above them (0 enabled, 1 value, 2 variant, 3 reason, 4 name, 5 id; 6 is any other member, which is never set) |
//!
//! The members of a flag's result are those of Flagsmith's engine 11, before an answer leaves disabled values out. The
//! state is a boolean, and the id an integer. The value is read as a literal. The variant is the text of its name, which
//! is coerced like a trait: `control` if the context has a split and no variant was chosen; not set if it has no split,
//! and for a variant without a name. The name is coerced, and so is the reason, the first of these that applies:
//!
//! | reason | if |
//! |---|---|
//! | `ERROR; code=CIRCULAR_DEPENDENCY` | the flag is part of a cycle |
//! | `SPLIT; weight=W` | a variant was chosen, whose weight is W |
//! | `TARGETING_MATCH; segment=identity_overrides` | the identity's item decided |
//! | `TARGETING_MATCH; segment=NAME` | an override of the segment NAME decided |
//! | `DEFAULT` | the feature has flag 2 (targeted) |
//! | `STATIC` | always |
//!
//! ### Digests
//!
//! A *digest* identifies what a flag is: the first half of SipHash-1-3-128 with a key of zeros over its id (8), its
//! state (1) and its value as JSON, followed by the members that an experiment adds, if one runs on the feature
//! ("Winners and bytes"). Answers with equal sums of digests, modulo 2⁶⁴, have the same flags, except for collisions.
//!
//! ### Percentages
//!
//! A percentage is the MD5 digest of the seed, a comma, and the identity's key (for a split) or the text of a slot's
//! value (for a percentage rule). The digest, as an unsigned big-endian number, is taken modulo 9999, divided by 9998,
//! and multiplied by 100, in f64. If the remainder is 9998, the whole text is hashed again, repeated once more after a
//! comma. A percentage rule matches if the percentage is at most its threshold.
//!
//! ### Keys and hash tables
//!
//! A *name key* is the length of a name and two numbers, first and last. For a name of up to sixteen bytes they are its
//! first and its last eight bytes; for fewer than eight bytes, its first and last four, each read as one little-endian
//! number. For fewer than four bytes, first is all bytes read as one big-endian number, and last is zero. For more than
//! sixteen bytes, last is the last eight bytes, and first is a hash: it starts as zero, and for every whole eight bytes
//! from the start, as a little-endian number, it becomes *f*(hash xor number, A). *f*(*a*, *b*) is the xor of both
//! halves, 64 bits each, of the product of *a* and *b*. A is 0x6a09e667f3bcc909, B is 0xbb67ae8584caa73b.
//!
//! Probing for a name key starts at *f*(first xor A, last xor B xor length), modulo the table's size. Probing for a
//! member key starts at *f*(its first eight bytes xor A, its last four xor B), both read as big-endian numbers.
//!
//! Probing goes on to the next row, and from the last row to the first. It ends without a result at a free row, or after
//! one round. Two names of up to sixteen bytes are equal if their name keys are equal. Longer names of traits must also be
//! equal byte for byte. A row of *feature names* has no name key, so that names of features are always compared byte for
//! byte.
//!
//! ## Overrides
//!
//! After the header: the leading hash bits that the file is for, the number of these bits (4 bytes each), then the
//! section table, whose offsets count from the start of the file. The leading bits are also the number in the file's
//! name. The first byte of a hash has its highest bits.
//!
//! | section | row bytes | content |
//! |---|---|---|
//! | directory | 4 | one bucket per value of the next leading bits of the hash: its first entry (upper 17 bits), and the filter bits of all its entries (lower 15 bits). The number of rows is a power of two plus 1 |
//! | entries | 16 | hash of the identifier (12), group; sorted by hash |
//! | groups | 4 | first row of each group in *items*, and the end of the last group |
//! | items | 16 | Flagsmith's id of the feature (8), value as JSON (offset; length in 24 bits, the highest bit: enabled; the next bit: the next item describes the variant); sorted by feature within a group |
//! | blob | bytes | values as JSON |
//!
//! The filter bit of a hash is one of fifteen bits: the number of the bit is the hash's last 4 bytes, as a big-endian
//! number, times 15, divided by 2³². Most identities have no overrides, and a missing filter bit says so without access
//! to the entries.
//!
//! An item that describes a variant has the feature's id again, the variant's name as JSON in place of the value, and
//! the length of the weight in the six bits above the length of the name. The weight, as printed in a reason, follows
//! the name in the blob. Without a weight the split gave its control value. The compiler has chosen the variant,
//! because it knows the identity.
//!
//! Identities with equal overrides share a group. Items name features by Flagsmith's ids, so a file that is one
//! revision older than its core is still correct, only stale. A file with another number of leading bits than the core
//! states is used only if the file with the right number is missing: it belongs to an earlier revision, or the other
//! files have not arrived yet. The hash is 96 bits of SipHash-2-4-128 with the fingerprint as key. The file stores no
//! identifiers, but a person who has the file can test guessed identifiers.
//!
//! ## The document
//!
//! The document that the operator compiled, for SDKs that evaluate locally: one gzip stream with one member, whose
//! header has no optional fields, cut into parts. The time in the gzip header is the time of the document's last change
//! (`updated_at`), rounded up to whole seconds, or zero. After the header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 64 | 4 | number of this part, from 0 |
//! | 68 | 4 | number of parts |
//! | 72 | 16 | name of the document: SipHash-1-3-128 of the whole stream with a key of zeros |
//! | 88 | 8 | length of the uncompressed document in bytes |
//! | 96 | 8 | length of the stream in bytes |
//! | 104 | | this part of the stream, up to the end of the file |
//!
//! Parts belong to the same document only if their names are equal. The document may be one revision older than its
//! core. Unlike the other files it contains identifiers: only a caller with a server key may read it.
//!
//! # Evaluation
//!
//! These rules give every reader the same answers, byte for byte.
//!
//! ## Values
//!
//! A slot is not set, or has a boolean, an integer of any size, a float (f64), or a text. A trait of JSON `null` does
//! not set its slot. A trait that is a JSON string is coerced, and so are identifiers, identity keys and strings among
//! *literals*: a string that is `-?[0-9]+` with at most 4,300 digits is an integer, one that is `-?[0-9]+\.[0-9]+` is a
//! float, every other string is a text. A derived value is used only if the request has no trait of the slot's name, or
//! if that trait is `null`.
//!
//! `REGEX`, `PERCENTAGE_SPLIT` and `IN` read a value as a text the way that Python prints it: `True`, `False`, digits,
//! and for floats the shortest digits that read back as the same number, with an exponent below 1e-4 and from 1e16 on
//! ([`write_float`]).
//!
//! ## Conditions
//!
//! A slot that is not set fulfils `IS_NOT_SET` and nothing else. A slot that is set fulfils `IS_SET`. The other
//! operators:
//!
//! - The six comparisons compare the left side with the condition's value in the type of the left side. Booleans: false
//!   is less than true. Texts: by bytes; if flag 32 is set, as versions by SemVer 2 precedence, for which one line end
//!   (`\n`) behind the version is removed, and a text that is no version fulfils no comparison. If the instruction lacks
//!   the value in this type (flags 4, 8, 16), no comparison is
//!   fulfilled, not even `NOT_EQUAL`. NaN on either side fulfils `NOT_EQUAL` only.
//! - `CONTAINS` and `NOT_CONTAINS` are fulfilled by texts only. If flag 32 is set, `CONTAINS` is fulfilled by a version
//!   whose prerelease or build metadata equals *text*; `NOT_CONTAINS` ignores the flag.
//! - `REGEX` is fulfilled if a prefix of the text matches.
//! - `MODULO` is fulfilled if the floored remainder, which has the sign of the divisor, equals *right*. Both are computed
//!   as f64. Booleans count as 0 and 1. Texts and integers beyond an f64 do not fulfil it, and nothing fulfils it if the
//!   divisor is 0.
//! - `IN` is fulfilled by texts and integers whose member key is among the members.
//! - `PERCENTAGE_SPLIT` is fulfilled if the percentage of the seed and the value is at most the threshold.
//!
//! If flag 1 is set and the slot is not set, the value is that of the slot's derivation 5. Such a flag is decided for
//! the same identity when it is first read, by the segments that override it, in row order. If deciding it reads the
//! flag itself again, the member is not set there, and a segment whose result depended on that does not match. The
//! member is not set, either, if 64 flags are being decided at that moment ([`MAX_CHAIN`]), or if 16,384 decisions have
//! begun for the request: a flag on a cycle is decided again whenever it is read, so cycles could multiply them.
//!
//! ## Winners and bytes
//!
//! The first of these decides a feature: its result if a condition has read it, the identity's item with its id, the
//! first row of its range of *segment overrides* whose segment matches, its default context. The sections
//! *segment masks*, *override masks*, *override runs*, *ranks*, *object offsets* and *bounds* only make this faster: a
//! reader that walks *segment overrides* for each feature gets the same answers. Without an identity, the flags 2 and 4
//! of *origin* say which segments can match, splits give their control value, and the first two rows of *answers* have
//! the finished arrays.
//!
//! A context with a split has the value of the first variant whose upper limit is above the percentage and whose lower
//! limit (the upper limit of the previous row, or 0) is not. Without such a variant it has its own value, the control
//! value. An item of an identity override has no split: the writer chose its variant, which the item after it
//! describes.
//!
//! Flagsmith's object of a feature is its head, `true` or `false`, `,"feature_state_value":`, the value, and `}`. The
//! array has the objects in row order, separated by commas. A feature is left out if its flags say that it is not
//! served, if it is for server keys only and the key is a client key, or if it is disabled and *origin* says that
//! disabled flags are hidden.
//!
//! An experiment runs on a feature with flag 8. In the answer for an identity, its object then has `,"variant":` and the
//! variant's name as JSON before the `}`, and, if the state that won has metadata (its default or an override by a
//! segment, never an identity's item), `,"metadata":` and the metadata. The name is `"control"` if the context has a
//! split and no variant was chosen, or if the feature has flag 16 and no variant was chosen; it is `null` otherwise, and
//! for a variant without a name. The finished arrays without an identity have neither member.
//!
//! OFREP's object is the head, `,"value":` and the value, `,"reason":"` and the reason, `","variant":` and the
//! variant's name (`"control"` for the control value, `""` without a split and for a variant without a name), the tail,
//! `true` or `false`, and `}}`. The value of a feature whose value is `null` is its state. A disabled feature with a
//! value has no member `value`, unless *origin* says otherwise. If *origin* has flag 64, a value that is a string takes
//! the form of the object that it holds: the string's characters, byte for byte, with white space around the object if
//! there is some. They must be one JSON object and no more, with at most 64 levels of objects and lists, without lone
//! surrogates among its escapes, and without numbers beyond a double. Any other string stays as it is, and so does a
//! string that is longer than the remaining budget of the request allows. The reason is the first that applies: `ERROR`
//! (the flag is part of a cycle), `DISABLED`, `SPLIT` (a variant), `TARGETING_MATCH` (a segment or the identity),
//! `STATIC`. A flag that the process overrides ([`Snapshot::override_flags`]) has `,"overriddenBy":"pod"` (or
//! `"request"`) between its state and `}}`, and its reason is `TARGETING_MATCH` if it is enabled, else `DISABLED`.
//!
//! # Example
//!
//! The core file of the environment in [One request, step by step](#one-request-step-by-step), generated from the bytes
//! that the writer makes (`make generate`): offset, bytes, and field. A span shows its offset, its length and its text.
//!
#![doc = concat!("```text\n", include_str!("format/example.txt"), "```")]
//!
//! # Guarantees of validation
//!
//! After [`Snapshot::read`], every span of the core that is used as text lies in the blob at character boundaries,
//! every row and range of rows that another row names exists, every jump goes forward, and every automaton and every
//! program stays within its bytes. Three things are not checked: that *accept sets* has a row for each state of an
//! automaton, that rows which are to be sorted are sorted (except *derived*), and that metadata behind a context is as
//! long as its digits say. If one of them is wrong, a reader finds no row or no metadata. Validation is linear in the
//! file's bytes: where reading a range takes time, no two ranges overlap. So are the parts of an evaluation that no
//! budget limits. Ranges that may overlap, such as the variants of splits and the predicates of combined DFAs, are
//! charged to the budget before they are read. Validation guarantees nothing about the
//! meaning of the values; the checksum detects damage, not malice. Therefore each evaluation has a budget
//! ([`MAX_STEPS`]), and an answer has a maximum length ([`MAX_ANSWER`]). Steps are a measure of this reader: another
//! reader may count in another way, and gives the same results while its budget lasts.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod budget;
mod context;
mod evaluate;
mod format;
mod names;
mod regex;
mod render;
mod segments;
mod snapshot;
mod validate;
mod values;
mod write;

pub use budget::{MAX_STEPS, StepBudget};
pub use context::TraitValue;
pub use evaluate::flag_overrides::{FlagOverride, OverriddenBy};
pub use evaluate::resolution::MAX_CHAIN;
pub use evaluate::visibility::Role;
pub use format::document::Document;
pub use format::error::ReadError;
pub use format::layout::{FORMAT_MAJOR, FORMAT_MINOR};
pub use format::pointer::{Pointer, core_length};
pub use format::revision::Revision;
pub use render::flagsmith::MAX_ANSWER;
pub use render::ofrep::OfrepFlag;
pub use segments::explain::{Check, Trace};
pub use snapshot::describe::{
    Description, FeatureDescription, OverrideDescription, SegmentDescription, VariantDescription,
};
pub use snapshot::digests::FeatureDigest;
pub use snapshot::explain::{Decision, Explanation, SegmentExplanation};
pub use snapshot::request_state::RequestState;
pub use snapshot::{Overrun, Snapshot};
pub use values::number::{Integer, PYTHON_INT_DIGITS, write_float};
pub use values::percentage::{Hash, percentage};
pub use values::python_bool;
pub use write::{File, WriteError, Written, pointer, write};

pub use format::{files, model};
pub use regex::{automaton, backtrack};
pub use values::{duration, json, semver};
