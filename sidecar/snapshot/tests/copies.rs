//! Tests the limit on conditions that are written more than once.

#![allow(clippy::unwrap_used)]

use remora_snapshot::model::{
    Condition, Context, Derivation, Environment, Feature, FlagField, Junction, Override, Property, Rule, Segment, Test,
};
use remora_snapshot::write;

/// The limit of the writer.
const MOST_COPIES: usize = 1 << 16;
/// Number of times that conditions below three rules are written, if there are few.
const TIMES: usize = 8;

/// Size of the core of an environment whose segment has this number of conditions that read a flag, below three rules
/// that read it as well.
fn size(conditions: usize) -> usize {
    let reads = || Condition { property: 0, test: Test::IsSet };
    let all = |conditions: Vec<Condition>, rules| Rule { junction: Junction::All, conditions, rules };
    let innermost = all((0..conditions).map(|_| reads()).collect(), Vec::new());
    let rule = (0..3).fold(innermost, |inner, _| all(vec![reads()], vec![inner]));
    let context = || Context { enabled: true, value: "null".to_owned(), split: None };
    let environment = Environment {
        name: "e".to_owned(),
        client_key: "k".to_owned(),
        features: vec![Feature {
            id: 1,
            name: "f".to_owned(),
            kind: "STANDARD".to_owned(),
            served: true,
            server_only: false,
            default: context(),
        }],
        properties: vec![Property {
            name: None,
            derivation: Derivation::Flag { feature: 0, field: FlagField::Enabled },
        }],
        segments: vec![Segment {
            id: "1".to_owned(),
            name: "s".to_owned(),
            rules: vec![rule],
            overrides: vec![Override { feature: 0, priority: None, context: context() }],
            identity_free: false,
        }],
        ..Environment::default()
    };
    write(&environment, usize::MAX).unwrap().files.remove(0).bytes.len()
}

#[test]
fn conditions_beyond_the_most_copies_are_written_once() {
    let few = 1_000;
    let of_one = (size(2 * few) - size(few)) / few / TIMES;
    assert!(of_one > 0, "conditions are written {TIMES} times where there are few");
    let many = 40_000;
    assert!(many * (TIMES - 1) > MOST_COPIES);
    let written = (size(many) - size(few)) / of_one + few * TIMES;
    assert!(written > many && written <= many + MOST_COPIES + 100, "{written} of {many}");
}
