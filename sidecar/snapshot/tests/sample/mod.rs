//! A sample environment with every feature of the format.

use remora_snapshot::backtrack::{self, Instruction};
use remora_snapshot::model::{
    Comparand, Comparison, Condition, Context, Derivation, Environment, Feature, FlagField, IdentityFlag,
    IdentityOverride, Junction, Members, Override, Pattern, Property, Rule, Segment, Split, Test, Variant,
};

pub(crate) const FEATURES: [&str; 4] = ["plain", "split", "dependent", "server"];

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

/// Builds the sample environment with this number of identity overrides.
pub(crate) fn environment(overrides: usize) -> Environment {
    let feature = |(index, name): (usize, &str), default: Context| Feature {
        id: index as i64 + 10,
        name: name.to_owned(),
        kind: "STANDARD".to_owned(),
        served: true,
        server_only: name == "server",
        default,
    };
    let defaults = [context(true, "null"), split("seed"), context(false, "42"), context(true, "\"s\\n\"")];
    let property = |name: &str, derivation| Property { name: Some(name.to_owned()), derivation };
    let ask = |property, test| Condition { property, test };
    let rule = |junction, conditions, rules| Rule { junction, conditions, rules };
    let segment = |id: u32, rules, overrides| Segment {
        id: id.to_string(),
        name: format!("segment {id}"),
        rules,
        overrides,
        identity_free: id == 3,
    };
    let overriding = |feature, priority, context| Override { feature, priority, context };
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
        features: FEATURES
            .into_iter()
            .enumerate()
            .zip(defaults)
            .map(|(name, default)| feature(name, default))
            .collect(),
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
