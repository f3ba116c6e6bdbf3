//! Flags that segments read, overrides of identities, names of flags, and answers of maximum length.

use super::*;
use crate::StepBudget;

#[test]
fn flags_that_read_each_other_stay_within_budget() {
    const FEATURES: usize = 60;
    let mut core = Core::with_features(FEATURES);
    let flag = |feature: u32| Slot { derivation: FLAG, argument: feature | 1 << 24, ..Slot::default() };
    core.put(Section::Slots, &(0..FEATURES as u32).map(flag).collect::<Vec<_>>());
    core.put(Section::TraitNames, &[TraitName::default()]);
    core.put(Section::Derived, &(0..FEATURES as u32).map(|word| Word { word }).collect::<Vec<_>>());
    segments(&mut core, FEATURES, 0);
    // Every flag reads every other flag.
    let read = |slot: usize| {
        let next = if slot + 1 == FEATURES { REJECT } else { slot as u32 + 1 };
        Instruction {
            slot: slot as u16,
            flags: READS_FLAG,
            on_true: next,
            on_false: next,
            ..operator(Operator::Contains)
        }
    };
    core.put(Section::Code, &(0..FEATURES).map(read).collect::<Vec<_>>());
    let value = core.text(format!("true,\"feature_state_value\":\"{}\"}},", "x".repeat(300_000)).as_bytes());
    let mut contexts: Vec<Context> = core.rows(Section::Contexts);
    contexts[0].tail = value;
    core.put(Section::Contexts, &contexts);
    let mut features: Vec<Feature> = core.rows(Section::Features);
    let ranked: Vec<SegmentOverride> = core.rows(Section::SegmentOverrides);
    core.put(Section::SegmentOverrides, &ranked.repeat(FEATURES));
    for (number, feature) in (0..).zip(&mut features) {
        (feature.overrides, feature.overrides_length) = (number * FEATURES as u32, FEATURES as u32);
    }
    core.put(Section::Features, &features);
    assert!(leaves_work_undecided("flags", &core.read(), "i", &[]));
}

/// Returns an environment with this many features, and one override of all of them by the identity `i`.
fn overridden(features: usize, served: bool, value: &str) -> model::Environment {
    let default = model::Context { enabled: true, value: "null".to_owned(), split: None };
    let feature = |number: usize| model::Feature {
        id: number as i64,
        name: format!("f{number}"),
        kind: "STANDARD".to_owned(),
        served,
        server_only: false,
        default: default.clone(),
    };
    let flag = |number: usize| model::IdentityFlag {
        feature: number as i64,
        enabled: true,
        value: format!("\"{value}\""),
        variant: None,
    };
    let flags = (0..features).map(flag).collect();
    model::Environment {
        client_key: "key".to_owned(),
        features: (0..features).map(feature).collect(),
        identity_overrides: vec![model::IdentityOverride { identifier: "i".to_owned(), flags }],
        ..model::Environment::default()
    }
}

/// Returns a segment with one condition, which overrides one feature.
fn asking(property: usize, test: model::Test, feature: usize) -> model::Segment {
    let conditions = vec![model::Condition { property, test }];
    let context = model::Context { enabled: true, value: "\"segment\"".to_owned(), split: None };
    model::Segment {
        id: "1".to_owned(),
        name: "segment".to_owned(),
        rules: vec![model::Rule { junction: model::Junction::All, conditions, rules: Vec::new() }],
        overrides: vec![model::Override { feature, priority: None, context }],
        identity_free: false,
    }
}

fn contains(text: &str) -> model::Test {
    model::Test::Contains(model::Comparand { text: text.to_owned(), ..model::Comparand::default() })
}

fn member_of_flag(feature: usize, field: model::FlagField) -> model::Property {
    model::Property { name: None, derivation: model::Derivation::Flag { feature, field } }
}

fn snapshot_of(environment: &model::Environment) -> Snapshot<Vec<u8>> {
    Snapshot::read(write(environment, usize::MAX).unwrap().files.swap_remove(0).bytes).unwrap()
}

#[test]
fn identity_value_that_all_segments_read_stays_within_budget() {
    let mut environment = overridden(2, true, &"x".repeat(300_000));
    environment.properties = vec![member_of_flag(0, model::FlagField::Value)];
    environment.segments = (0..200).map(|number| asking(0, contains(&format!("y{number}")), 1)).collect();
    assert!(leaves_work_undecided("identity value", &snapshot_of(&environment), "i", &[]));
}

#[test]
fn identity_value_of_hidden_features_stays_within_budget() {
    let snapshot = snapshot_of(&overridden(1_000, false, &"x".repeat(50_000)));
    assert!(snapshot.bytes() < 1_000_000, "the value is stored once");
    leaves_work_undecided("hidden features", &snapshot, "i", &[]);
    let (mut request, mut out) = (RequestState::default(), Vec::new());
    request.clear();
    snapshot.identify(&mut request, "i");
    work::take();
    assert_eq!(snapshot.write_first_flag(&mut request, Role::Server, &mut out), None);
    let (done, most) = (work::take(), most_work(&snapshot));
    assert!(done <= most, "{done} units of work, at most {most} are expected");
}

#[test]
fn flags_read_without_budget_keep_their_overrides() {
    let mut environment = overridden(4, true, "mine");
    // The identity overrides the first flag only.
    environment.identity_overrides[0].flags.truncate(1);
    // To read and to search this value takes most of the budget.
    environment.features[2].default.value = format!("\"{}\"", "x".repeat(900_000));
    let set = model::Property { name: Some("set".to_owned()), derivation: model::Derivation::Plain };
    let of_flags = [0, 1].map(|feature| member_of_flag(feature, model::FlagField::Enabled));
    environment.properties = [set, member_of_flag(2, model::FlagField::Value)].into_iter().chain(of_flags).collect();
    let matching = asking(0, model::Test::IsSet, 1);
    let costly = |feature| ["y", "z"].map(|text| asking(1, contains(text), feature)).into_iter();
    let reading = [2, 3].map(|property| asking(property, model::Test::IsNotSet, 3)).into_iter();
    for segments in [
        // The flags are read after the budget is used up,
        [matching.clone()].into_iter().chain(costly(3)).chain(reading.clone()).collect(),
        // or the first reading uses it up before the matching segment is reached.
        reading.rev().chain(costly(1)).chain([matching]).collect(),
    ] {
        environment.segments = segments;
        let snapshot = snapshot_of(&environment);
        let (mut request, mut out) = (RequestState::default(), Vec::new());
        request.clear();
        snapshot.identify(&mut request, "i");
        snapshot.set_trait(&mut request, "set", TraitValue::Bool(true));
        snapshot.write_flags(&mut request, Role::Server, &mut out);
        assert!(snapshot.overrun(&request).is_some());
        let answer = String::from_utf8(out).unwrap();
        let found = ["\"mine\"", "\"segment\""].map(|value| answer.matches(value).count());
        assert_eq!(found, [1, 1]);
    }
}

#[test]
fn names_in_one_bucket_stay_within_budget() {
    let mut core = Core::with_features(1);
    slots(&mut core, &["t"]);
    let taken = core.rows::<TraitName, 24>(Section::TraitNames).into_iter().find(|row| row.slot != 0).unwrap();
    core.put(Section::TraitNames, &[taken; 1 << 15]);
    core.text(&[b'x'; 1 << 15]); // as if the names were different
    let snapshot = core.read();
    let mut request = RequestState::default();
    request.clear();
    let names: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
    work::take();
    names.iter().for_each(|name| snapshot.set_trait(&mut request, name, TraitValue::Bool(true)));
    snapshot.write_flags(&mut request, Role::Client, &mut Vec::new());
    assert!(snapshot.overrun(&request).is_some());
    // After the budget is exhausted, each look-up still visits the rows that are not charged.
    let (done, most) = (work::take(), most_work(&snapshot) + 100_000 * u64::from(crate::names::FREE_PROBES));
    assert!(done <= most, "{done} units of work, at most {most} are expected");
    // The next request has a full budget.
    request.clear();
    snapshot.set_trait(&mut request, "t", TraitValue::Bool(true));
    snapshot.write_flags(&mut request, Role::Client, &mut Vec::new());
    assert_eq!(snapshot.overrun(&request), None);
    // Look-ups of features work the same way.
    let words = [Word { word: 1 }; 1 << 15];
    core.put(Section::FeatureNames, &words);
    let (snapshot, budget) = (core.read(), StepBudget::default());
    assert!(names.iter().all(|name| snapshot.feature_number(name, &budget).is_none()));
    assert!(budget.lookups.get() > i64::from(MAX_STEPS), "{} steps", budget.lookups.get());
    let f0 = snapshot.feature_number("f0", &StepBudget::default()).unwrap();
    assert_eq!(snapshot.feature_name(f0), Some("f0"));
}

/// Repeats the first feature.
fn features(core: &mut Core, count: u32, change: impl Fn(u32, Feature) -> Feature) {
    let features: Vec<Feature> = core.rows(Section::Features);
    core.put(Section::Features, &(0..count).map(|number| change(number, features[0])).collect::<Vec<_>>());
    core.put(Section::Bounds, &vec![Word { word: 1 }; count as usize + 1]);
    let answers: Vec<PreparedAnswer> = core.rows(Section::Answers);
    core.put(Section::Answers, &answers.iter().map(|row| PreparedAnswer { bounds: 0, ..*row }).collect::<Vec<_>>());
}

#[test]
fn first_flag_behind_hidden_ones_stays_within_budget() {
    const COUNT: u32 = 10_000;
    let mut core = Core::with_features(1);
    slots(&mut core, &["t"]);
    segments(&mut core, COUNT as usize, 0);
    program(&mut core, 10_000, operator(Operator::Equal));
    features(&mut core, COUNT, |number, feature| Feature {
        overrides: number,
        overrides_length: 1,
        flags: UNSERVED,
        ..feature
    });
    let (snapshot, mut request) = (core.read(), RequestState::default());
    request.clear();
    snapshot.identify(&mut request, "i");
    work::take();
    assert_eq!(snapshot.write_first_flag(&mut request, Role::Server, &mut Vec::new()), None);
    let (done, most) = (work::take(), most_work(&snapshot));
    assert!(done <= most, "{done} units of work, at most {most} are expected");
}

#[test]
fn names_in_any_case_stay_within_budget() {
    for (stored, requested, most) in [
        // Names of one length differ in the last character, in ASCII and beyond it.
        ("a".repeat(1_999) + "b", "A".repeat(2_000), MAX_STEPS),
        ("é".repeat(1_999) + "b", "É".repeat(2_000), MAX_STEPS),
        // A name in the core is long, and so is the name in a request.
        ("a".repeat(1_000_000), "A".repeat(2_000), 0),
        ("é".repeat(1_999) + "b", "É".repeat(2_001), 0),
    ] {
        let mut core = Core::with_features(1);
        let name = core.text(stored.as_bytes());
        features(&mut core, 100_000, |_, feature| Feature { name, ..feature });
        let (snapshot, budget) = (core.read(), StepBudget::default());
        work::take();
        assert_eq!(snapshot.view().feature_named_in_any_case(&requested, &budget), None);
        let (done, steps) = (work::take(), budget.lookups.get());
        assert!(done <= most_work(&snapshot), "{done} units of work");
        assert!(steps <= i64::from(most) + 1_000, "{steps} steps, {most} are expected");
        assert!(steps >= i64::from(most), "{steps} steps, {most} are expected");
    }
}

#[test]
fn names_in_any_case_are_found_up_to_the_longest_name() {
    for (stored, requested, found) in [
        ("Straße", "STRASSE", true),
        ("Straße", "strasse", true),
        ("Straße", "strase", false),
        ("ſ", "S", true),
        ("s", "ſ", true),
        ("ab", "ſb", false),
        (&"a".repeat(2_000), &"A".repeat(2_000), true),
        (&"é".repeat(2_000), &"É".repeat(2_000), true),
        (&"é".repeat(2_001), &"É".repeat(2_001), false),
    ] {
        let mut core = Core::with_features(1);
        let features: Vec<Feature> = core.rows(Section::Features);
        let name = core.text(stored.as_bytes());
        core.put(Section::Features, &[Feature { name, ..features[0] }]);
        assert_eq!(core.read().feature_number_in_any_case(requested).is_some(), found, "{stored} {requested}");
    }
}

#[test]
fn answer_beyond_maximum_length_is_cut_off() {
    let mut core = Core::with_features(2_000);
    let value = core.text(format!("true,\"feature_state_value\":\"{}\"}},", "x".repeat(100_000)).as_bytes());
    let mut contexts: Vec<Context> = core.rows(Section::Contexts);
    // A split without variants: each feature is written separately.
    core.put(Section::Splits, &[Split::default()]);
    contexts.iter_mut().for_each(|context| (context.tail, context.split) = (value, 1));
    core.put(Section::Contexts, &contexts);
    core.put(Section::SplitFeatures, &(0..2_000).map(|word| Word { word }).collect::<Vec<_>>());
    let (snapshot, mut request) = (core.read(), RequestState::default());
    for way in 0..2 {
        request.clear();
        snapshot.identify(&mut request, "i");
        let mut out = Vec::new();
        match way {
            0 => drop(snapshot.write_flags(&mut request, Role::Client, &mut out)),
            _ => drop(snapshot.write_ofrep_flags(&mut request, Role::Client, &mut out)),
        }
        assert!(out.len() > crate::MAX_ANSWER && out.len() < crate::MAX_ANSWER + 200_000, "{}", out.len());
    }
}
