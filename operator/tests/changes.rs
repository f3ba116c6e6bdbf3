//! Tests that the comparison of two snapshots takes memory and time in proportion to their bytes, whatever their rows
//! refer to. The compiler refuses such names today, and snapshots of earlier versions may have them.

#![allow(clippy::unwrap_used)]

use remora_operator::publish::changes::between;
use remora_snapshot::{
    Snapshot,
    model::{Condition, Context, Derivation, Environment, Feature, Junction, Override, Property, Rule, Segment, Test},
    write,
};

const FEATURES: usize = 200;
const NAME: usize = 100_000;

/// Writes a core whose features are all overridden by one segment with a long name.
fn core(first_is_enabled: bool) -> Vec<u8> {
    let context = |enabled| Context { enabled, value: "null".to_owned(), split: None };
    let features = (0..FEATURES).map(|number| Feature {
        id: number as i64 + 1,
        name: format!("f{number}"),
        kind: "STANDARD".to_owned(),
        served: true,
        server_only: false,
        default: context(number > 0 || first_is_enabled),
    });
    let rule = Rule {
        junction: Junction::All,
        conditions: vec![Condition { property: 0, test: Test::IsSet }],
        rules: Vec::new(),
    };
    let overrides = (0..FEATURES).map(|feature| Override { feature, priority: None, context: context(false) });
    let environment = Environment {
        name: "e".to_owned(),
        client_key: "k".to_owned(),
        features: features.collect(),
        properties: vec![Property { name: Some("t".to_owned()), derivation: Derivation::Plain }],
        segments: vec![Segment {
            id: "1".to_owned(),
            name: "s".repeat(NAME),
            rules: vec![rule],
            overrides: overrides.collect(),
            identity_free: false,
        }],
        ..Environment::default()
    };
    write(&environment, usize::MAX).unwrap().files.remove(0).bytes
}

#[test]
fn comparison_copies_name_of_segment_for_no_override() {
    let (before, after) = (core(true), core(false));
    let mut changes = None;
    let memory = allocation_counter::measure(|| changes = between(&before, &after));
    let changes = changes.unwrap();
    assert_eq!((changes.count, changes.changed), (1, vec!["f0".to_owned()]));
    assert!(memory.bytes_max < (before.len() + after.len()) as u64, "{} bytes", memory.bytes_max);
}

#[test]
fn description_copies_name_of_segment_for_no_override() {
    let core = core(true);
    let snapshot = Snapshot::read(core.as_slice()).unwrap();
    let memory = allocation_counter::measure(|| assert_eq!(snapshot.describe().features.len(), FEATURES));
    assert!(memory.bytes_max < 2 * core.len() as u64, "{} bytes", memory.bytes_max);
}
