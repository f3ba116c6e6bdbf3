//! Tests the limit on patterns that the index combines.

#![allow(clippy::unwrap_used)]

use remora_snapshot::model::{
    Comparand, Condition, Context, Derivation, Environment, Feature, Junction, Override, Property, Rule, Segment, Test,
};
use remora_snapshot::{RequestState, Role, Snapshot, TraitValue, write};

/// Number of segments for each trait, each of which looks for one part in the trait's value.
const PARTS: usize = 8;

/// The limit of the writer, in bytes.
const MAX_DFA_BYTES: usize = 512 << 10;

/// A part of 30 letters, different for each segment.
fn part(segment: usize) -> String {
    let mut state = segment as u64 + 1;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + (state >> 33) as u8 % 26)
    };
    (0..30).map(|_| letter()).collect()
}

fn context(enabled: bool) -> Context {
    Context { enabled, value: "null".to_owned(), split: None }
}

/// Returns the core of an environment with this number of traits, in which each segment turns on the same flag.
fn core(traits: usize) -> Vec<u8> {
    let segment = |number: usize| {
        let text = Comparand { boolean: true, text: part(number), ..Comparand::default() };
        let condition = Condition { property: number / PARTS, test: Test::Contains(text) };
        Segment {
            id: number.to_string(),
            name: String::new(),
            rules: vec![Rule { junction: Junction::All, conditions: vec![condition], rules: Vec::new() }],
            overrides: vec![Override { feature: 0, priority: None, context: context(true) }],
            identity_free: false,
        }
    };
    let environment = Environment {
        name: "e".to_owned(),
        client_key: "k".to_owned(),
        features: vec![Feature {
            id: 1,
            name: "f".to_owned(),
            kind: "STANDARD".to_owned(),
            served: true,
            server_only: false,
            default: context(false),
        }],
        properties: (0..traits)
            .map(|number| Property { name: Some(format!("t{number}")), derivation: Derivation::Plain })
            .collect(),
        segments: (0..traits * PARTS).map(segment).collect(),
        ..Environment::default()
    };
    write(&environment, usize::MAX).unwrap().files.remove(0).bytes
}

#[test]
fn patterns_beyond_the_limit_stay_in_programs() {
    let [few, more, many] = [10, 20, 100].map(core);
    let combined = (more.len() - few.len()) / 10;
    assert!(combined * 100 > 2 * MAX_DFA_BYTES, "{combined} bytes for the patterns of a trait: too few for this test");
    let beyond = more.len() + 80 * combined;
    assert!(many.len() + MAX_DFA_BYTES < beyond, "{} bytes, and {beyond} if all patterns were combined", many.len());

    let snapshot = Snapshot::read(many).unwrap();
    let is_on = |name: String, value: String| {
        let (mut request, mut out) = (RequestState::default(), Vec::new());
        snapshot.set_trait(&mut request, &name, TraitValue::String(&value));
        snapshot.identify(&mut request, "somebody");
        snapshot.write_flags(&mut request, Role::Client, &mut out);
        String::from_utf8(out).unwrap().contains("\"enabled\":true")
    };
    for segment in (0..100 * PARTS).step_by(37) {
        let name = format!("t{}", segment / PARTS);
        assert!(is_on(name.clone(), format!("x{}y", part(segment))), "segment {segment}");
        assert!(!is_on(name, part(segment + PARTS)), "the segment of another trait matches like {segment}");
    }
}
