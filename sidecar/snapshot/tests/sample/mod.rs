//! A sample environment, and one with every feature of the format.

#![allow(dead_code, reason = "not every test needs both")]

use remora_snapshot::backtrack::{self, Instruction};
use remora_snapshot::model::{
    BooleanFlags, Comparand, Comparison, Compressed, Condition, Context, Derivation, DisabledFlags, Environment,
    EnvironmentFlags, Experiment, Feature, FlagField, IdentityFlag, IdentityOverride, IdentityVariant, Junction,
    Members, ObjectFlags, Ofrep, Override, Pattern, Property, Rule, Segment, Split, Test, Variant,
};

/// Names of the features. The sample has the first four, the complete one has all.
pub(crate) const FEATURES: [&str; 7] = ["plain", "split", "dependent", "server", "experiment", "rollout", "unserved"];

fn context(enabled: bool, value: &str) -> Context {
    Context { enabled, value: value.to_owned(), split: None }
}

fn split(seed: &str) -> Context {
    let variant = |key: Option<&str>, weight: f64, value: &str| Variant {
        weight,
        weight_text: weight.to_string(),
        value: value.to_owned(),
        key: key.map(str::to_owned),
    };
    let variants = vec![variant(Some("a"), 30.0, "\"A\""), variant(None, 30.0, "2")];
    Context { enabled: true, value: "\"control\"".to_owned(), split: Some(Split { seed: seed.to_owned(), variants }) }
}

fn text(text: &str) -> Comparand {
    Comparand { boolean: true, text: text.to_owned(), ..Comparand::default() }
}

/// Compiles a pattern that matches texts that begin with `a`.
fn automaton() -> Pattern {
    let mut classes = [0; 256];
    classes[usize::from(b'a')] = 1;
    let table = [vec![0, 0, 0], vec![0, 2, 0], vec![2, 2, 2]];
    Pattern::Automaton(remora_snapshot::automaton::write(&classes, 1, 2, &table).into())
}

/// Compiles `(a+)b \1`.
fn program() -> Pattern {
    use Instruction::{Backreference, Character, Match, Save, Set};
    let code = [
        Save(0),
        Character('a'),
        Instruction::Split(1, 3),
        Save(1),
        Character('b'),
        Set(0, 1),
        Backreference(0, backtrack::Case::Exact),
        Match,
    ];
    Pattern::Backtracking(backtrack::write(&code, 2, &[(' ', ' ')]).into())
}

fn feature(index: usize, default: Context) -> Feature {
    let name = FEATURES[index];
    Feature {
        id: index as i64 + 10,
        name: name.to_owned(),
        kind: if name == "rollout" { "MULTIVARIATE" } else { "STANDARD" }.to_owned(),
        served: name != "unserved",
        server_only: name == "server",
        default,
    }
}

fn property(name: &str, derivation: Derivation) -> Property {
    Property { name: Some(name.to_owned()), derivation }
}

fn ask(property: usize, test: Test) -> Condition {
    Condition { property, test }
}

fn rule(junction: Junction, conditions: Vec<Condition>, rules: Vec<Rule>) -> Rule {
    Rule { junction, conditions, rules }
}

fn segment(id: u32, rules: Vec<Rule>, overrides: Vec<Override>) -> Segment {
    Segment { id: id.to_string(), name: format!("segment {id}"), rules, overrides, identity_free: id == 3 }
}

fn overriding(feature: usize, priority: Option<f64>, context: Context) -> Override {
    Override { feature, priority, context }
}

/// Builds the sample environment with this number of identity overrides.
pub(crate) fn environment(overrides: usize) -> Environment {
    let defaults = [context(true, "null"), split("seed"), context(false, "42"), context(true, "\"s\\n\"")];
    let conditions = vec![
        ask(0, Test::Compare(Comparison::Equal, text("pro"))),
        ask(0, Test::Contains(text("o"))),
        ask(0, Test::NotContains(text("x"))),
        ask(0, Test::Matches(automaton())),
        ask(0, Test::Matches(program())),
        ask(0, Test::In(Members::of(["pro", "free", "31"]).unwrap())),
        ask(1, Test::Modulo { divisor: 2.0, remainder: 1.0 }),
        ask(
            1,
            Test::Compare(
                Comparison::GreaterOrEqual,
                Comparand { integer: Some("99999999999999999999".to_owned()), ..text("9") },
            ),
        ),
        ask(4, Test::Percentage { threshold: 50.0 }),
        ask(2, Test::IsNotSet),
    ];
    Environment {
        name: "sample".to_owned(),
        client_key: "client".to_owned(),
        server_keys: vec!["ser.key".to_owned()],
        features: defaults.into_iter().enumerate().map(|(index, default)| feature(index, default)).collect(),
        segments: vec![
            segment(
                1,
                vec![rule(Junction::Any, conditions.clone(), vec![])],
                vec![overriding(0, Some(1.0), context(false, "1"))],
            ),
            segment(
                2,
                vec![rule(Junction::None, conditions, vec![rule(Junction::All, vec![ask(0, Test::IsSet)], vec![])])],
                vec![overriding(0, None, context(true, "2")), overriding(1, Some(0.0), split("other"))],
            ),
            segment(
                3,
                vec![rule(Junction::All, vec![ask(5, Test::Compare(Comparison::Equal, text("x")))], vec![])],
                vec![overriding(2, None, context(true, "true"))],
            ),
        ],
        properties: vec![
            property("plan", Derivation::Plain),
            property("age", Derivation::Plain),
            property("$.identity.identifier", Derivation::Identifier),
            property("$.identity.traits.plan", Derivation::SameAs(0)),
            Property { name: None, derivation: Derivation::IdentityKey },
            property("$.flags.plain.value", Derivation::Flag { feature: 0, field: FlagField::Enabled }),
            property("$.environment.name", Derivation::Constant("\"x\"".into())),
        ],
        identity_overrides: (0..overrides)
            .map(|number| IdentityOverride {
                identifier: format!("user_{number}"),
                flags: vec![
                    IdentityFlag {
                        feature: 10,
                        enabled: number % 2 == 0,
                        value: format!("\"for {}\"", number % 7),
                        variant: None,
                    },
                    IdentityFlag { feature: 12, enabled: true, value: "null".to_owned(), variant: None },
                ],
            })
            .collect(),
        notes: vec!["something to know".to_owned()],
        ..Environment::default()
    }
}

/// Builds the sample environment with every feature of the format: also experiments, variants of identities, each kind
/// of breakpoints, a combined DFA, rules of all kinds in the index, each flag of the origin, and a document.
pub(crate) fn complete(overrides: usize) -> Environment {
    let mut environment = environment(overrides);
    environment.features.extend([
        feature(4, context(true, r#""{\"a\":[1.5e3,\"\\u00e9\\ud83e\\udd88\"]}""#)),
        feature(5, split("rollout")),
        feature(6, context(true, "7")),
    ]);
    let of_override = [((3, 0), r#"{"experiment":2}"#.to_owned())].into();
    environment.experiments = [
        (4, Experiment { default: Some(r#"{"experiment":1}"#.to_owned()), overrides: of_override }),
        (5, Experiment::default()),
    ]
    .into();
    environment.properties.extend([property("version", Derivation::Plain), property("score", Derivation::Plain)]);
    let version = Comparand { semver: true, ..text("1.2.3") };
    let half = Comparand { float: Some(2.5), ..text("2.5") };
    let conditions = vec![
        ask(0, Test::Matches(automaton())),
        ask(0, Test::Compare(Comparison::LessOrEqual, text("b"))),
        ask(1, Test::Compare(Comparison::Less, Comparand { integer: Some("65".to_owned()), ..text("65") })),
        ask(1, Test::Modulo { divisor: 3.0, remainder: 1.0 }),
        ask(4, Test::Percentage { threshold: 80.0 }),
        ask(7, Test::Compare(Comparison::GreaterOrEqual, version)),
        ask(7, Test::Contains(text("1."))),
        ask(7, Test::NotContains(text("-rc"))),
        ask(8, Test::Compare(Comparison::Greater, half)),
    ];
    let overrides = vec![
        overriding(4, Some(2.0), context(true, "\"other\"")),
        overriding(5, Some(3.0), split("named")),
        overriding(6, None, context(false, "8")),
    ];
    environment.segments.push(segment(4, vec![rule(Junction::All, conditions, vec![])], overrides));
    for (number, identity) in environment.identity_overrides.iter_mut().enumerate() {
        let variant = match number % 3 {
            0 => IdentityVariant::Control,
            1 => IdentityVariant::Variant { key: Some("a".to_owned()), weight_text: "30".to_owned() },
            _ => IdentityVariant::Variant { key: None, weight_text: "30".to_owned() },
        };
        let flag = |feature, variant| IdentityFlag { feature, enabled: true, value: "\"A\"".to_owned(), variant };
        identity.flags.extend([flag(11, Some(Box::new(variant))), flag(14, None)]);
    }
    environment.hide_disabled = true;
    environment.environment_flags = EnvironmentFlags::AllSegments;
    environment.ofrep = Ofrep {
        boolean_flags: BooleanFlags::Enabled,
        disabled_flags: DisabledFlags::Value,
        object_flags: ObjectFlags::Object,
    };
    // A gzip stream of two bytes, which are stored as they are.
    let gzip = [
        &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255][..],
        &[1, 2, 0, 253, 255],
        b"{}",
        &[0x43, 0xbf, 0xa6, 0xa3, 2, 0, 0, 0],
    ];
    environment.document = Some(Compressed { gzip: gzip.concat(), length: 2 });
    environment
}
