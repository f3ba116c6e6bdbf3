//! The index and programs agree: every segment exists twice, once as it is, and once in a form that the index does not
//! cover. An identity that matches one of both matches the other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod random;

use random::Random;
use remora_snapshot::model::{
    Comparand, Comparison, Condition, Context, Derivation, Environment, Feature, Junction, Members, Override, Pattern,
    Property, Rule, Segment, Test,
};
use remora_snapshot::{Decision, RequestState, Snapshot, TraitValue, automaton, write};

const PROPERTIES: usize = 4;
/// Number of segments in each half. Both halves together are two full blocks, and a third that is not full.
const SEGMENTS: usize = 75;

/// Values that are close to each other, in every type.
const VALUES: &[TraitValue<'static>] = &[
    TraitValue::Null,
    TraitValue::Bool(true),
    TraitValue::Bool(false),
    TraitValue::Integer("-1"),
    TraitValue::Integer("2"),
    TraitValue::Integer("3"),
    TraitValue::Integer("99999999999999999999"),
    TraitValue::Integer("-99999999999999999999"),
    TraitValue::Float(-0.0),
    TraitValue::Float(2.0),
    TraitValue::Float(2.5),
    TraitValue::Float(f64::NAN),
    TraitValue::String(""),
    TraitValue::String("aab"),
    TraitValue::String("ab"),
    TraitValue::String("b@x."),
    TraitValue::String("é"),
    TraitValue::String("True"),
    TraitValue::String("1.2.3"),
    TraitValue::String("1.2.3-rc.1"),
    TraitValue::String("1.2.4"),
    TraitValue::String("1.99999999999999999999.0"),
    TraitValue::String("1.2"),
];

const TEXTS: &[&str] = &["", "a", "aab", "ab", "b@", "é", "True", "2", "3", "2.5", "99999999999999999999"];
const VERSIONS: &[&str] = &["0.0.0", "1.2.3", "1.2.3-rc.1", "1.2.4", "1.2097152.0", "1.2.x"];

fn comparand(random: &mut Random) -> Comparand {
    let semver = random.below(4) == 0;
    let text = random.pick(if semver { VERSIONS } else { TEXTS });
    let whole = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    Comparand {
        boolean: text == "True",
        integer: (whole && !semver).then(|| text.to_owned()),
        float: if semver { None } else { text.parse().ok() },
        text: text.to_owned(),
        semver,
    }
}

/// Matches texts that begin with `a`, and the text `2`.
fn pattern(random: &mut Random) -> Pattern {
    let mut classes = [0; 256];
    classes[usize::from(b'a')] = 1;
    classes[usize::from(b'2')] = 2;
    let [by_a, by_2] = if random.below(2) == 0 { [3, 0] } else { [0, 2] };
    let table = [vec![0; 4], vec![0, by_a, by_2, 0], vec![0, 0, 0, 3], vec![3; 4]];
    Pattern::Automaton(automaton::write(&classes, 1, 3, &table).into())
}

fn condition(random: &mut Random) -> Condition {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let comparisons = [Equal, NotEqual, Greater, GreaterOrEqual, Less, LessOrEqual];
    let test = match random.below(16) {
        0 => Test::IsSet,
        1 => Test::IsNotSet,
        2 | 3 => Test::In(Members::of((0..random.below(4)).map(|_| random.pick(TEXTS))).unwrap()),
        4 => Test::In(Members::of((0..100).map(|number| number.to_string())).unwrap()),
        5 | 6 => Test::Contains(comparand(random)),
        7 => Test::NotContains(comparand(random)),
        8 => Test::Matches(pattern(random)),
        9 => Test::Modulo { divisor: 2.0, remainder: 1.0 },
        10 => Test::Percentage { threshold: random.pick(&[0.0, 50.0, 100.0]) },
        _ => Test::Compare(random.pick(&comparisons), comparand(random)),
    };
    Condition { property: random.below(PROPERTIES), test }
}

fn rule(random: &mut Random, depth: usize) -> Rule {
    let junction = random.pick(&[Junction::All, Junction::Any, Junction::Any, Junction::None]);
    // Alternatives often read the same trait.
    let mut conditions: Vec<_> = (0..random.below(4)).map(|_| condition(random)).collect();
    if random.below(2) == 0 {
        let property = random.below(PROPERTIES);
        conditions.iter_mut().for_each(|condition| condition.property = property);
    }
    let rules = (0..if depth > 0 { random.below(3) } else { 0 }).map(|_| rule(random, depth - 1)).collect();
    Rule { junction, conditions, rules }
}

/// Returns the rule with an alternative that never holds: alternatives stay in programs.
fn for_a_program(rule: &Rule) -> Rule {
    let never = Condition { property: 0, test: Test::Constant(false) };
    let never = Rule { junction: Junction::All, conditions: vec![never], rules: Vec::new() };
    Rule { junction: Junction::Any, conditions: Vec::new(), rules: vec![rule.clone(), never] }
}

fn context(value: &str) -> Context {
    Context { enabled: true, value: value.to_owned(), split: None }
}

/// Builds an environment in which each segment overrides its own feature. The index evaluates the first half of the
/// segments. The second half has the same rules in a form that programs evaluate.
fn environment(random: &mut Random) -> Environment {
    let features = (0..2 * SEGMENTS).map(|number| Feature {
        id: number as i64,
        name: format!("{number}"),
        kind: "STANDARD".to_owned(),
        served: true,
        server_only: false,
        default: context("0"),
    });
    let rules: Vec<Vec<Rule>> =
        (0..SEGMENTS).map(|_| (0..=random.below(2)).map(|_| rule(random, 2)).collect()).collect();
    let segment = |number: usize, id: usize, rules: Vec<Rule>| Segment {
        id: id.to_string(), // it is hashed, so it is the same in both halves
        name: number.to_string(),
        rules,
        overrides: vec![Override { feature: number, priority: None, context: context("1") }],
        identity_free: false,
    };
    let by_program = |rules: &Vec<Rule>| rules.iter().map(for_a_program).collect();
    let segments = (rules.iter().enumerate().map(|(id, rules)| segment(id, id, rules.clone())))
        .chain(rules.iter().enumerate().map(|(id, rules)| segment(SEGMENTS + id, id, by_program(rules))));
    Environment {
        client_key: "key".to_owned(),
        features: features.collect(),
        segments: segments.collect(),
        properties: (0..PROPERTIES)
            .map(|number| Property { name: Some(format!("p{number}")), derivation: Derivation::Plain })
            .collect(),
        ..Environment::default()
    }
}

#[test]
fn index_and_programs_match_same_segments() {
    let mut random = Random(7);
    let (mut inside, mut outside, mut requirements, mut conditions) = (0, 0, 0, 0);
    for round in 0..12 {
        let environment = environment(&mut random);
        let written = write(&environment, 10_000_000).unwrap();
        let snapshot = Snapshot::read(written.files[0].bytes.as_slice()).unwrap();
        for person in 0..60 {
            let mut request = RequestState::default();
            snapshot.identify(&mut request, &format!("person {person}"));
            let values: Vec<_> = (0..PROPERTIES).map(|_| random.pick(VALUES)).collect();
            for (number, value) in values.iter().enumerate() {
                snapshot.set_trait(&mut request, &format!("p{number}"), *value);
            }
            let explained = snapshot.explain(&mut request);
            let (by_index, by_program) = explained.split_at(SEGMENTS);
            for (number, (one, other)) in by_index.iter().zip(by_program).enumerate() {
                let [one, other] = [one, other].map(|flag| matches!(flag.decision, Decision::Segment { .. }));
                assert_eq!(one, other, "round {round}, {values:?}: {:#?}", environment.segments[number].rules);
                if one { inside += 1 } else { outside += 1 }
            }
            // An explanation takes as long as an evaluation, so a few people are enough.
            for flag in explained.iter().filter(|_| person % 10 == 0) {
                let is_match = matches!(flag.decision, Decision::Segment { .. });
                for segment in snapshot.explain_segments(&mut request, &flag.feature) {
                    assert_eq!((segment.is_match, segment.trace.is_match()), (is_match, is_match), "{segment:#?}");
                    requirements += segment.trace.requirements.len();
                    conditions += segment.trace.conditions.len();
                }
            }
        }
    }
    assert!(requirements > 5_000 && conditions > 5_000, "{requirements} and {conditions} are explained");
    assert!(inside > 5_000 && outside > 5_000, "{inside} and {outside}: neither is seldom");
}
