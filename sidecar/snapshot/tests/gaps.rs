//! For every combination of gaps in a cohort's shared answer, the array of all flags equals the array that is written
//! completely.

#![allow(clippy::unwrap_used)]

use remora_snapshot::model::{
    Condition, Context, Environment, Feature, IdentityFlag, IdentityOverride, Junction, Override, Rule, Segment, Split,
    Test, Variant,
};
use remora_snapshot::{Role, Snapshot, Subject, write};

const FEATURES: usize = 3;

/// State of a feature by default, or by the segment's override.
#[derive(Clone, Copy, PartialEq)]
enum State {
    None,
    Off,
    On,
    Split,
}

impl State {
    /// Returns a context. Values are long enough that some parts are shared, and some are not.
    fn context(self, number: usize) -> Context {
        let value = |digit: usize| digit.to_string().repeat(if number == 1 { 9 } else { 2100 });
        let split = (self == State::Split).then(|| Split {
            seed: number.to_string(),
            variants: vec![Variant { weight: 50.0, weight_text: "50".to_owned(), value: value(3), key: None }],
        });
        Context { enabled: self != State::Off, value: value(2), split }
    }
}

fn feature(number: usize, default: State) -> Feature {
    Feature {
        id: number as i64,
        name: format!("f{number}"),
        kind: "STANDARD".to_owned(),
        served: true,
        server_only: false,
        default: default.context(number),
    }
}

/// Iterates over all combinations of these states in all places.
fn each<const N: usize>(of: [State; N]) -> impl Iterator<Item = [State; FEATURES]> {
    let state = move |number: usize| of.get(number % N).copied().unwrap_or(State::None);
    (0..N.pow(FEATURES as u32)).map(move |number| [state(number), state(number / N), state(number / N / N)])
}

/// Builds an environment in which every identity matches the segment. Each combination of identity overrides has an
/// identity, named after its number.
fn environment(defaults: [State; FEATURES], overrides: [State; FEATURES], hide_disabled: bool) -> Environment {
    let own = |(feature, state): (usize, State)| {
        let flag = IdentityFlag { feature: feature as i64, enabled: state == State::On, value: "1".to_owned() };
        (state != State::None).then_some(flag)
    };
    let identity = |(number, states): (usize, [State; FEATURES])| IdentityOverride {
        identifier: number.to_string(),
        flags: states.into_iter().enumerate().filter_map(own).collect(),
    };
    let overridden = |(feature, state): (usize, State)| {
        (state != State::None).then(|| Override { feature, priority: None, context: state.context(feature) })
    };
    let everybody = Condition { property: 0, test: Test::IsNotSet };
    let segment = Segment {
        id: "1".to_owned(),
        name: "everybody".to_owned(),
        rules: vec![Rule { junction: Junction::All, conditions: vec![everybody], rules: Vec::new() }],
        overrides: overrides.into_iter().enumerate().filter_map(overridden).collect(),
        identity_free: false,
    };
    Environment {
        client_key: "key".to_owned(),
        features: defaults.into_iter().enumerate().map(|(number, state)| feature(number, state)).collect(),
        segments: vec![segment],
        properties: vec![remora_snapshot::model::Property {
            name: Some("nobody has it".to_owned()),
            derivation: remora_snapshot::model::Derivation::Plain,
        }],
        identity_overrides: each([State::None, State::Off, State::On]).enumerate().map(identity).collect(),
        hide_disabled,
        ..Environment::default()
    }
}

#[test]
fn gaps_are_filled_wherever_they_are() {
    let mut shared = 0;
    for defaults in each([State::Off, State::On, State::Split]) {
        for overrides in each([State::None, State::Off, State::On, State::Split]) {
            for hide_disabled in [false, true] {
                let written = write(&environment(defaults, overrides, hide_disabled), 10_000_000).unwrap();
                let snapshot = Snapshot::read(written.files[0].bytes.as_slice()).unwrap();
                // The first two requests assemble the shared answer; the last identity has no override.
                for number in [0].into_iter().chain(0..=27) {
                    let mut subject = Subject::default();
                    snapshot.identify(&mut subject, &number.to_string());
                    let (mut whole, mut finished) = (Vec::new(), Vec::new());
                    let digest = snapshot.write_flags(&mut subject, Role::Client, &mut whole);
                    whole.push(b'}');
                    let flags = snapshot.finish_with_flags(&mut subject, Role::Client, &mut finished);
                    if let Some((place, part)) = flags.shared {
                        finished.splice(place..place, part.as_ref().iter().copied());
                        shared += 1;
                    }
                    assert_eq!(String::from_utf8(finished).unwrap(), String::from_utf8(whole).unwrap(), "{number}");
                    assert_eq!(flags.digest, digest);
                }
            }
        }
    }
    assert!(shared > 10_000, "only {shared} of 100224 answers had a part that was not copied");
}
