//! Override runs agree with single flags: the array of all flags has the same flags as requests for one flag each,
//! which read no runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod random;

use random::Random;
use remora_snapshot::model::{
    Condition, Context, Derivation, DisabledFlags, Environment, Feature, IdentityFlag, IdentityOverride, Junction,
    Ofrep, Override, Property, Rule, Segment, Split, Test, Variant,
};
use remora_snapshot::{OfrepFlag, RequestState, Role, Snapshot, TraitValue, write};

/// Number of features: more than a word of bits, and more than a SIMD vector of ranks.
const FEATURES: usize = 90;
const SEGMENTS: usize = 9;
/// Number of identities, of twenty, that have overrides.
const SPECIAL: usize = 6;

/// Builds a context. One of `splits` contexts has variants.
fn context(random: &mut Random, splits: usize) -> Context {
    let value = |random: &mut Random| random.below(1_000_000).to_string();
    let split = (random.below(splits) == 0).then(|| Split {
        seed: random.below(100).to_string(),
        variants: vec![Variant { weight: 40.0, weight_text: "40".to_owned(), value: value(random), key: None }],
    });
    Context { enabled: random.below(3) > 0, value: value(random), split }
}

/// Builds a segment that identities match if they have the trait named after its number; for some segments, half of
/// them.
fn segment(random: &mut Random, number: usize, splits: usize) -> Segment {
    let mut conditions = vec![Condition { property: number, test: Test::IsSet }];
    if random.below(3) == 0 {
        conditions.push(Condition { property: SEGMENTS, test: Test::Percentage { threshold: 50.0 } });
    }
    let rules = vec![Rule { junction: Junction::All, conditions, rules: Vec::new() }];
    // Some override everything, some a few features, some a feature twice; some priorities are equal.
    let step = random.pick(&[1, 1, 2, 4, 12]);
    let mut overrides = Vec::new();
    let mut feature = random.below(20);
    let end = FEATURES - random.pick(&[0, 0, 10, 20]);
    while feature < end {
        let priority = (random.below(5) > 0).then(|| random.below(SEGMENTS) as f64);
        overrides.push(Override { feature, priority, context: context(random, splits) });
        feature += random.below(step + 1);
    }
    Segment { id: number.to_string(), name: number.to_string(), rules, overrides, identity_free: false }
}

/// Builds an identity override: a few flags, or every other one, including the first and the last.
fn special(random: &mut Random, person: usize) -> IdentityOverride {
    let step = random.pick(&[1, 2, 30, 80]);
    let mut features = vec![random.below(3)];
    while let Some(last) = features.last().filter(|last| **last < FEATURES - 1) {
        features.push((last + 1 + random.below(step)).min(FEATURES - 1));
    }
    if random.below(2) == 0 {
        features.pop();
    }
    let mut flag = |feature: usize| IdentityFlag {
        feature: feature as i64,
        enabled: random.below(3) > 0,
        value: "-7".to_owned(),
        variant: None,
    };
    let flags = features.into_iter().map(&mut flag).collect();
    IdentityOverride { identifier: person.to_string(), flags }
}

fn environment(random: &mut Random) -> Environment {
    let splits = random.pick(&[2, 8, 100, 1_000_000]);
    let mut feature = |number: usize| Feature {
        id: number as i64,
        name: format!("f{number}"),
        kind: "STANDARD".to_owned(),
        served: random.below(20) > 0,
        server_only: random.below(20) == 0,
        default: context(random, splits),
    };
    let features = (0..FEATURES).map(&mut feature).collect();
    let property = |number| Property { name: Some(format!("s{number}")), derivation: Derivation::Plain };
    let key = Property { name: None, derivation: Derivation::IdentityKey };
    let identity_overrides = (0..SPECIAL).map(|person| special(random, person)).collect();
    Environment {
        client_key: "key".to_owned(),
        features,
        segments: (0..SEGMENTS).map(|number| segment(random, number, splits)).collect(),
        properties: (0..SEGMENTS).map(property).chain([key]).collect(),
        identity_overrides,
        hide_disabled: random.below(3) == 0,
        ofrep: Ofrep { disabled_flags: DisabledFlags::Value, ..Ofrep::default() },
        ..Environment::default()
    }
}

/// Returns the flag in Flagsmith's dialect, built from its OFREP answer.
fn alone(snapshot: &Snapshot<&[u8]>, request: &mut RequestState, role: Role, number: usize) -> Option<String> {
    let mut flag = Vec::new();
    match snapshot.write_ofrep_flag(request, role, &format!("f{number}"), &mut flag) {
        OfrepFlag::Written { .. } => {}
        OfrepFlag::Unknown => return None,
        OfrepFlag::NeedsTargetingKey => panic!("there is an identity"),
    }
    let flag = String::from_utf8(flag).unwrap();
    let enabled = flag.ends_with("\"enabled\":true}}");
    let value = flag.split_once("\"value\":").unwrap().1.split_once(',').unwrap().0;
    let head = format!(r#"{{"feature":{{"id":{number},"name":"f{number}","type":"STANDARD"}}"#);
    Some(format!(r#"{head},"enabled":{enabled},"feature_state_value":{value}}}"#))
}

#[test]
fn all_flags_equal_flags_requested_alone() {
    let mut random = Random(11);
    let mut request = RequestState::default();
    for round in 0..60 {
        let written = write(&environment(&mut random), 10_000_000).unwrap();
        let snapshot = Snapshot::read(written.files[0].bytes.as_slice()).unwrap();
        for person in 0..20_usize {
            request.clear();
            // Some names are so long that they are hashed separately.
            snapshot.identify(&mut request, &format!("{person}{}", "y".repeat(person.saturating_sub(10) * 15)));
            for number in 0..SEGMENTS {
                let value = random.pick(&[TraitValue::Null, TraitValue::Null, TraitValue::Bool(true)]);
                snapshot.set_trait(&mut request, &format!("s{number}"), value);
            }
            for role in [Role::Client, Role::Server] {
                let mut all = Vec::new();
                let digest = snapshot.write_flags(&mut request, role, &mut all);
                let each: Vec<_> =
                    (0..FEATURES).filter_map(|number| alone(&snapshot, &mut request, role, number)).collect();
                let all = String::from_utf8(all).unwrap();
                assert_eq!(all, format!("[{}]", each.join(",")), "round {round}, person {person}");
                assert_eq!(digest, snapshot.write_ofrep_flags(&mut request, role, &mut Vec::new()));
            }
        }
    }
}
