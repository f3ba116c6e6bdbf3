//! The worst known requests: valid and hostile snapshots, some of them as large as a core can be, evaluated with texts
//! longer than a request may have. The tests count the work of each evaluation apart from the budget.

mod flags;
mod forged;

use std::cmp::Ordering;

use super::{MAX_STEPS, work};
use crate::RequestState;
use crate::Role;
use crate::Snapshot;
use crate::TraitValue;
use crate::format::layout::{
    ACCEPT, AUTOMATON, AcceptSet, AttributeIndex, BACKTRACKING, BigInteger, Breakpoint, CONSTANT, CombinedDfa, Context,
    ExactMatch, FLAG, Feature, HAS_BIG_INTEGER, IDENTIFIER, IDENTITY_KEY, IS_SEMVER, Instruction, Literal, ModuloRule,
    Operator, Pattern, PatternPredicate, PercentageRule, PreparedAnswer, RANKS, READS_FLAG, REJECT, Section, Segment,
    SegmentBlock, SegmentOverride, Slot, Split, TraitName, UNSERVED, Variant, Word,
};
use crate::format::model;
use crate::regex::backtrack::{self, Case, Instruction as Step};
use crate::values::{hash::NameKey, rows::Span};
use crate::write;
use forged::Core;

/// Length of a text as long as a request body.
const LONG: usize = 1_000_000;

/// Maximum units of work per charged step: a look-up of nine steps takes a binary search, which visits up to twenty
/// rows per table.
const WORK_A_STEP: u64 = 16;

/// Maximum units of work of one evaluation of a snapshot. Work that is linear in the snapshot is not charged: it visits
/// some of the rows, none of which has less than four bytes, a few times.
fn most_work(snapshot: &Snapshot<Vec<u8>>) -> u64 {
    u64::from(MAX_STEPS) * WORK_A_STEP + snapshot.bytes() as u64 / 4
}

/// Requests all flags of an identity in each dialect, and one flag. Returns true if work was left undecided.
fn leaves_work_undecided(
    name: &str,
    snapshot: &Snapshot<Vec<u8>>,
    identifier: &str,
    traits: &[(&str, TraitValue<'_>)],
) -> bool {
    let mut request = RequestState::default();
    let mut overrun = false;
    let mut out = Vec::new();
    for way in 0..3 {
        request.clear();
        snapshot.identify(&mut request, identifier);
        for (key, value) in traits {
            snapshot.set_trait(&mut request, key, *value);
        }
        out.clear();
        work::take();
        match way {
            0 => drop(snapshot.write_flags(&mut request, Role::Server, &mut out)),
            1 => drop(snapshot.write_ofrep_flags(&mut request, Role::Server, &mut out)),
            _ => drop(snapshot.write_ofrep_flag(&mut request, Role::Server, "f0", &mut out)),
        }
        let (done, most) = (work::take(), most_work(snapshot));
        assert!(done <= most, "{name}: {done} units of work, at most {most} are expected");
        if request.steps() > u64::from(MAX_STEPS) {
            assert!(snapshot.overrun(&request).is_some(), "{name}: an exhausted budget is reported");
        }
        overrun |= snapshot.overrun(&request).is_some();
    }
    overrun
}

/// Adds segments that override feature 0, all with one program.
fn segments(core: &mut Core, count: usize, entry: u32) {
    let name = core.text(b"segment");
    let segment = Segment { name, entry, ..Segment::default() };
    core.put(Section::Segments, &vec![segment; count]);
    let all = SegmentBlock { all: u64::MAX, ..SegmentBlock::default() };
    core.put(Section::Blocks, &vec![all; count.div_ceil(64)]);
    core.put(
        Section::SegmentOverrides,
        &(0..count.min(RANKS) as u32).map(|segment| SegmentOverride { segment, context: 0 }).collect::<Vec<_>>(),
    );
    let mut features: Vec<Feature> = core.rows(Section::Features);
    features[0].overrides_length = count.min(RANKS) as u32;
    core.put(Section::Features, &features);
}

/// Divides the rows of a table among the blocks of all segments, as far as they can have equal numbers of rows.
fn blocks(core: &mut Core, rows: u32, set: impl Fn(SegmentBlock, Span) -> SegmentBlock) {
    let mut blocks: Vec<SegmentBlock> = core.rows(Section::Blocks);
    let length = rows / blocks.len() as u32;
    for (number, block) in (0..).zip(&mut blocks) {
        *block = set(*block, Span { start: number * length, length });
    }
    core.put(Section::Blocks, &blocks);
}

/// Adds a slot for each of these names.
fn slots(core: &mut Core, names: &[&str]) {
    let mut table = vec![TraitName::default(); (names.len() * 2).next_power_of_two()];
    let mut rows = Vec::new();
    for (slot, name) in (1..).zip(names) {
        let NameKey { first, last, length } = NameKey::of(name.as_bytes());
        let start = NameKey::of(name.as_bytes()).bucket() as usize;
        let size = table.len();
        let place = (0..size).map(|step| (start + step) % size).find(|at| table[*at].slot == 0).unwrap();
        table[place] = TraitName { first, last, length, slot };
        rows.push(Slot { name: core.text(name.as_bytes()), ..Slot::default() });
    }
    core.put(Section::Slots, &rows);
    core.put(Section::TraitNames, &table);
}

/// Adds a program of `count` instructions, each of which leads to the next one; the last one rejects.
fn program(core: &mut Core, count: usize, instruction: Instruction) {
    let row = |number: u32| {
        let next = if number as usize + 1 == count { REJECT } else { number + 1 };
        Instruction { on_true: next, on_false: next, ..instruction }
    };
    core.put(Section::Code, &(0..count as u32).map(row).collect::<Vec<_>>());
}

fn operator(operator: Operator) -> Instruction {
    Instruction { operator: operator as u8, ..Instruction::default() }
}

/// Byte classes of an automaton: all bytes have one class.
const ONE_CLASS: [u8; 256] = [0; 256];

#[test]
fn programs_of_all_segments_stay_within_budget() {
    let mut core = Core::with_features(1);
    slots(&mut core, &["t"]);
    segments(&mut core, 250_000, 0);
    program(&mut core, 200_000, operator(Operator::Equal));
    let snapshot = core.read();
    for value in [TraitValue::String("x"), TraitValue::Bool(true), TraitValue::Integer("7"), TraitValue::Null] {
        assert!(leaves_work_undecided("programs", &snapshot, "i", &[("t", value)]), "{value:?}");
    }
}

#[test]
fn comparisons_of_long_texts_stay_within_budget() {
    let long = "x".repeat(LONG);
    for (name, instruction) in [
        ("equal", operator(Operator::Equal)),
        ("less", operator(Operator::Less)),
        ("contains", operator(Operator::Contains)),
        ("not contains", operator(Operator::NotContains)),
        ("in", operator(Operator::In)),
        ("in a flag", Instruction { flags: READS_FLAG, ..operator(Operator::In) }),
        ("percentage", operator(Operator::PercentageSplit)),
        ("version", Instruction { flags: IS_SEMVER, ..operator(Operator::Less) }),
        ("contains version", Instruction { flags: IS_SEMVER, ..operator(Operator::Contains) }),
    ] {
        let mut core = Core::with_features(1);
        slots(&mut core, &["t"]);
        segments(&mut core, 1_000, 0);
        let version = format!("1.0.0-{}", "a.".repeat(100_000) + "a");
        let is_version = instruction.flags & IS_SEMVER != 0;
        let text = if is_version { version.clone() } else { format!("{}y", "x".repeat(400_000)) };
        let text = core.text(text.as_bytes());
        let seed = if instruction.operator == Operator::PercentageSplit as u8 { text.to_word() } else { 0 };
        program(&mut core, 4_000, Instruction { text, right: seed, ..instruction });
        let snapshot = core.read();
        let value = TraitValue::String(if is_version { &version } else { &long });
        assert!(leaves_work_undecided(name, &snapshot, "i", &[("t", value)]), "{name}");
    }
}

#[test]
fn patterns_stay_within_budget() {
    let long = "a".repeat(LONG);
    let exponential = [
        Step::Split(1, 6),
        Step::Split(2, 4),
        Step::Character('a'),
        Step::Jump(0),
        Step::Character('a'),
        Step::Jump(0),
        Step::Character('b'),
        Step::Match,
    ];
    // Every character is searched among many ranges.
    let many: Vec<(char, char)> = (0..20_000).filter_map(|at| char::from_u32(0x100 + at * 2)).map(|c| (c, c)).collect();
    let sets = [
        Step::Split(1, 6),
        Step::Split(2, 4),
        Step::Set(0, 20_000),
        Step::Jump(0),
        Step::Set(0, 20_000),
        Step::Jump(0),
        Step::Character('b'),
        Step::Match,
    ];
    let boundaries = [
        Step::Split(1, 6),
        Step::Split(2, 4),
        Step::Boundary(0, 20_000),
        Step::Jump(5),
        Step::Boundary(0, 20_000),
        Step::Character('a'),
        Step::Split(0, 7),
        Step::Match,
    ];
    // Every level passes over all saved positions again.
    let mut nested: Vec<Step> = (1..32).map(|_| Step::Atomic(200)).collect();
    nested.extend([Step::Split(33, 36), Step::Save(0), Step::Character('a'), Step::Split(32, 36), Step::Match]);
    nested.resize(260, Step::Match);
    let behind = [
        Step::Split(1, 4),
        Step::Behind(3, 100_000),
        Step::Match,
        Step::Character('a'),
        Step::Split(0, 5),
        Step::Match,
    ];
    let references = [
        Step::Save(0),
        Step::Split(4, 2),
        Step::Character('a'),
        Step::Jump(1),
        Step::Save(1),
        Step::Backreference(0, Case::Ignored),
        Step::End,
        Step::Match,
    ];
    for (name, text, code, ranges) in [
        ("exponential", "a".repeat(64), &exponential[..], &[][..]),
        ("exponential, long", long.clone(), &exponential[..], &[][..]),
        ("sets", "\u{8100}".repeat(30), &sets[..], &many[..]),
        ("boundaries", "a\u{8100}".repeat(30_000), &boundaries[..], &many[..]),
        ("nested", long.clone(), &nested[..], &[][..]),
        ("behind", long, &behind[..], &[][..]),
        ("references", "a".repeat(100_001), &references[..], &[][..]),
    ] {
        let mut core = Core::with_features(1);
        slots(&mut core, &["t"]);
        segments(&mut core, 5_000, 0);
        let pattern = backtrack::write(code, 2, ranges);
        let program_of = core.append(Section::Programs, &pattern);
        core.put(Section::Patterns, &[Pattern { kind: BACKTRACKING, program: program_of }]);
        program(&mut core, 5_000, operator(Operator::Regex));
        assert!(leaves_work_undecided(name, &core.read(), "i", &[("t", TraitValue::String(&text))]), "{name}");
    }
}

#[test]
fn numbers_stay_within_budget() {
    let digits = "9".repeat(4300);
    let far = f64::MAX;
    let tiny = f64::from_bits(1).to_bits();
    for (name, value, instruction) in [
        ("big", TraitValue::Integer(&digits), Instruction { flags: HAS_BIG_INTEGER, ..operator(Operator::Less) }),
        (
            "modulo big",
            TraitValue::Integer(&digits[..300]),
            Instruction { left: 3.7_f64.to_bits(), ..operator(Operator::Modulo) },
        ),
        ("modulo far", TraitValue::Float(far), Instruction { left: tiny, ..operator(Operator::Modulo) }),
        ("contains number", TraitValue::Float(far), operator(Operator::Regex)),
    ] {
        let mut core = Core::with_features(1);
        slots(&mut core, &["t"]);
        segments(&mut core, 5_000, 0);
        let program_of = core
            .append(Section::Programs, &crate::regex::automaton::write(&ONE_CLASS, 1, 2, &[vec![0; 2], vec![1; 2]]));
        core.put(Section::Patterns, &[Pattern { kind: AUTOMATON, program: program_of }]);
        let number = core.text("9".repeat(200_000).as_bytes());
        core.put(Section::BigIntegers, &[BigInteger { negative: 0, digits: number }]);
        program(&mut core, 5_000, instruction);
        assert!(leaves_work_undecided(name, &core.read(), "i", &[("t", value)]), "{name}");
        // The same test as a rule of the index, which skips segments that are no candidates any more.
        let rule = ModuloRule {
            divisor: f64::from_bits(instruction.left),
            remainder: 0.0,
            segment_bit: 1 << 63,
            slot: 0,
            negated: u32::from(name != "modulo far"),
        };
        core.put(Section::ModuloRules, &vec![rule; 10_000]);
        segments(&mut core, 5_000, ACCEPT);
        blocks(&mut core, 10_000, |block, modulo_rules| SegmentBlock { modulo_rules, ..block });
        leaves_work_undecided(name, &core.read(), "i", &[("t", value)]);
    }
}

#[test]
fn attribute_indexes_of_all_blocks_stay_within_budget() {
    let long = "x".repeat(LONG);
    let short = "x".repeat(50);
    let version = format!("1.0.0-{}", "a.".repeat(100_000) + "a");
    for (name, value, with) in [
        ("unset columns", TraitValue::Null, 0),
        ("true columns", TraitValue::Bool(true), 0),
        ("marked texts", TraitValue::String(&short), 1),
        ("marked long texts", TraitValue::String(&long), 1),
        ("marked versions", TraitValue::String("7.1.2"), 2),
        ("rare versions", TraitValue::String(&version), 2),
        ("marked integers", TraitValue::Integer("7"), 3),
        ("listed", TraitValue::String("crowded"), 4),
        ("patterns", TraitValue::String(&short), 5),
        ("patterns, long", TraitValue::String(&long), 5),
    ] {
        // One block has all attribute indexes, or each of 1,000 blocks has one.
        for (count, indexes) in [(64, 30_000), (64_000, 1_000)] {
            let mut core = Core::with_features(1);
            slots(&mut core, &["t"]);
            segments(&mut core, count, ACCEPT);
            let all = u64::MAX;
            let mut attribute_index = AttributeIndex {
                unset: all,
                no: all,
                yes: all,
                unordered: all,
                unversioned: all,
                below_texts: all,
                below_versions: all,
                below_integers: all,
                below_floats: all,
                unmatched: all,
                ..AttributeIndex::default()
            };
            let mut breakpoints = Vec::new();
            let text = if with == 1 { core.text("x".repeat(100_000).as_bytes()) } else { Span::default() };
            for number in 0..if (1..4).contains(&with) { 8_000_u64 } else { 0 } {
                let start = number as u32;
                let point = match with {
                    1 => Span { start: text.start + start, length: text.length - start }.to_word(),
                    _ => number,
                };
                breakpoints.push(Breakpoint { point, at: all, above: all });
            }
            let range = Span { start: 0, length: breakpoints.len() as u32 };
            match with {
                4 => {
                    let (free, taken) =
                        (crate::values::hash::NO_MEMBER, core.fingerprint().member_key(b"a longer one"));
                    let mut rows = vec![ExactMatch { key: taken, at: all }; 1 << 13];
                    let last =
                        crate::values::hash::bucket_of(crate::values::hash::short_member_key(b"crowded").unwrap())
                            .wrapping_sub(1);
                    rows[last as usize % (1 << 13)] = ExactMatch { key: free, at: all };
                    core.put(Section::ExactMatches, &rows);
                    attribute_index.exact_matches = Span { start: 0, length: 1 << 13 };
                }
                5 => {
                    let program = crate::regex::automaton::write(&ONE_CLASS, 1, 1, &[vec![0; 2], vec![1; 2]]);
                    let program = core.append(Section::Programs, &program);
                    core.put(Section::AcceptSets, &[AcceptSet { here: 1, at_end: 1 }; 2]);
                    core.put(
                        Section::PatternPredicates,
                        &vec![PatternPredicate { found: 1, segment_bit: 1, ..PatternPredicate::default() }; 3_000],
                    );
                    let combined_dfa = CombinedDfa {
                        program,
                        accept_sets: Span { start: 0, length: 2 },
                        pattern_predicates: Span { start: 0, length: 3_000 },
                        automata: 1,
                    };
                    core.put(Section::CombinedDfas, &[combined_dfa]);
                    attribute_index.combined_dfa = 1;
                }
                _ => {}
            }
            core.put(Section::Breakpoints, &breakpoints);
            // Breakpoints and sets belong to one attribute index: all others have none.
            let at = |which: usize| match which.cmp(&with) {
                Ordering::Less => Span::default(),
                Ordering::Equal => range,
                Ordering::Greater => end(range),
            };
            let first = AttributeIndex {
                texts: at(1),
                versions: at(2),
                integers: at(3),
                floats: end(range),
                ..attribute_index
            };
            let [nothing, exact_matches] = [end(range), end(attribute_index.exact_matches)];
            let bare = AttributeIndex {
                texts: nothing,
                versions: nothing,
                integers: nothing,
                floats: nothing,
                exact_matches,
                ..attribute_index
            };
            let mut attribute_indexes = vec![first];
            attribute_indexes.resize(indexes, bare);
            core.put(Section::AttributeIndexes, &attribute_indexes);
            blocks(&mut core, indexes as u32, |block, attribute_indexes| SegmentBlock { attribute_indexes, ..block });
            leaves_work_undecided(name, &core.read(), "i", &[("t", value)]);
        }
    }
}

/// Returns a core of nearly the maximum size with 4,000 blocks, all of which have all rows of one table of the index.
fn overlapping(which: Section) -> Core {
    let mut core = Core::with_features(1);
    slots(&mut core, &["t"]);
    segments(&mut core, 256_000, ACCEPT);
    let rows = |length| Span { start: 0, length };
    let mut block = SegmentBlock { all: 1, ..SegmentBlock::default() };
    // The rules belong to segments that are no candidates.
    match which {
        Section::AttributeIndexes => {
            let row = AttributeIndex { unset: u64::MAX, ..AttributeIndex::default() };
            core.put(which, &vec![row; 65_000]);
            block.attribute_indexes = rows(65_000);
        }
        Section::ModuloRules => {
            core.put(which, &vec![ModuloRule { segment_bit: 2, ..ModuloRule::default() }; 260_000]);
            block.modulo_rules = rows(260_000);
        }
        _ => {
            core.put(which, &vec![PercentageRule { segment_bit: 2, ..PercentageRule::default() }; 260_000]);
            block.percentage_rules = rows(260_000);
        }
    }
    core.put(Section::Blocks, &[block; 4_000]);
    core
}

#[test]
fn blocks_with_the_same_rows_are_refused() {
    for (which, problem) in [
        (Section::AttributeIndexes, "its attribute indexes overlap those of an earlier row"),
        (Section::ModuloRules, "its modulo rules overlap those of an earlier row"),
        (Section::PercentageRules, "its percentage rules overlap those of an earlier row"),
    ] {
        let refused = Snapshot::read(overlapping(which).bytes()).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(problem), "{refused}");
    }
}

#[test]
fn blocks_with_the_same_rows_stay_within_budget_without_validation() {
    for (name, which) in [
        ("attribute indexes", Section::AttributeIndexes),
        ("modulo rules", Section::ModuloRules),
        ("percentage rules", Section::PercentageRules),
    ] {
        assert!(leaves_work_undecided(name, &overlapping(which).unvalidated(), "i", &[]), "{name}");
    }
}

/// Returns an empty range after a range.
fn end(range: Span) -> Span {
    Span { start: range.start + range.length, length: 0 }
}

#[test]
fn percentages_stay_within_budget() {
    let long = "x".repeat(LONG);
    for (name, identifier, seed) in [
        ("percentage rules", "i".to_owned(), "seed".to_owned()),
        ("two blocks", "x".repeat(100), "seed".to_owned()),
        ("long seeds", "i".to_owned(), "x".repeat(200_000)),
        ("long identifiers", long, "seed".to_owned()),
    ] {
        let mut core = Core::with_features(1_000);
        slots(&mut core, &["t"]);
        segments(&mut core, 4_096, ACCEPT);
        let seed = core.text(seed.as_bytes());
        let rule = |number: usize| PercentageRule {
            threshold: 100.0,
            seed,
            segment_bit: 1 << (number % 64),
            slot: 0,
            negated: 0,
        };
        core.put(Section::PercentageRules, &(0..400_000).map(rule).collect::<Vec<_>>());
        blocks(&mut core, 400_000, |block, percentage_rules| SegmentBlock { percentage_rules, ..block });
        // One split decides all features, and has many variants that match no identity.
        core.put(Section::Variants, &[Variant::default(); 3_000]);
        core.put(Section::Splits, &[Split { seed, variants: 0, length: 3_000 }]);
        let mut contexts: Vec<Context> = core.rows(Section::Contexts);
        contexts.iter_mut().for_each(|context| context.split = 1);
        core.put(Section::Contexts, &contexts);
        core.put(Section::SplitFeatures, &(0..1_000).map(|word| Word { word }).collect::<Vec<_>>());
        let snapshot = core.read();
        assert!(
            leaves_work_undecided(name, &snapshot, &identifier, &[("t", TraitValue::String(&identifier))]),
            "{name}"
        );
        core.put(Section::Blocks, &[SegmentBlock { all: 0, ..SegmentBlock::default() }; 64]);
        let snapshot = core.read();
        leaves_work_undecided(name, &snapshot, &identifier, &[("t", TraitValue::String(&identifier))]);
    }
}

#[test]
fn derived_values_stay_within_budget() {
    let long = "x".repeat(LONG);
    for (name, derivation) in [("identifier", IDENTIFIER), ("key", IDENTITY_KEY), ("constant", CONSTANT)] {
        let mut core = Core::with_features(1);
        let literal = format!("\"{}\"", "x".repeat(300_000));
        let token = core.text(literal.as_bytes());
        core.put(Section::Literals, &[Literal { token }]);
        core.put(Section::Slots, &[Slot { derivation, ..Slot::default() }; 20_000]);
        core.put(Section::TraitNames, &[TraitName::default()]);
        core.put(Section::Derived, &(0..20_000).map(|word| Word { word }).collect::<Vec<_>>());
        assert!(leaves_work_undecided(name, &core.read(), &long, &[]), "{name}");
    }
}

#[test]
fn file_with_overlapping_ranges_is_refused() {
    let refused = |core: &Core| Snapshot::read(core.bytes()).map(|_| ()).unwrap_err().to_string();
    // Each row would read the name again.
    let mut core = Core::with_features(1);
    let name = core.text(&[b'n'; 300_000]);
    let NameKey { first, last, length } = NameKey::of(&[b'n'; 300_000]);
    core.put(Section::Slots, &[Slot { name, ..Slot::default() }; 1 << 12]);
    let row = |number: u32| TraitName { first, last, length, slot: number + 1 };
    core.put(Section::TraitNames, &(0..1 << 12).map(row).collect::<Vec<_>>());
    assert!(refused(&core).contains("its name overlaps that of an earlier row"), "{}", refused(&core));
    // Each description of a feature would visit all overrides.
    let mut core = Core::with_features(3);
    segments(&mut core, 100, ACCEPT);
    let mut features: Vec<Feature> = core.rows(Section::Features);
    features.iter_mut().for_each(|feature| feature.overrides_length = 100);
    core.put(Section::Features, &features);
    assert!(refused(&core).contains("its range overlaps that of an earlier row"), "{}", refused(&core));
}
