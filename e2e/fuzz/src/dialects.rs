//! Compares all forms of one evaluation: the explanation, Flagsmith's dialect and OFREP, for all flags and for single
//! flags.

use remora_compile::{BooleanFlags, DisabledFlags, ObjectFlags, Ofrep};
use remora_snapshot::{Explanation, OfrepFlag, RequestState, Role, Snapshot};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::context::Context;

#[derive(Deserialize)]
struct FlagsmithFlag<'a> {
    feature: Feature,
    enabled: bool,
    #[serde(borrow)]
    feature_state_value: &'a RawValue,
}

#[derive(Deserialize)]
struct Feature {
    name: String,
}

#[derive(Deserialize)]
struct OpenFeatureFlag<'a> {
    key: String,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    reason: String,
}

/// Settings of an environment that decide the shape of answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) hides_disabled: bool,
    pub(crate) ofrep: Ofrep,
}

/// Evaluates one context in all forms. Panics if two forms of the answer differ.
pub(crate) fn assert_agreement<B: AsRef<[u8]>>(
    snapshot: &Snapshot<B>,
    request: &mut RequestState,
    context: &Context,
    shape: Shape,
) {
    context.apply(snapshot, request);
    let explained = snapshot.explain(request);
    // Each form uses up the budget of steps at another place, so answers beyond it may differ.
    if snapshot.overrun(request).is_some() {
        return;
    }
    for role in [Role::Client, Role::Server] {
        let visible: Vec<&Explanation> = explained
            .iter()
            .filter(|flag| role == Role::Server || !flag.server_only)
            .filter(|flag| flag.enabled || !shape.hides_disabled)
            .collect();
        let digest = flagsmith(snapshot, request, context, role, &visible);
        openfeature(snapshot, request, role, &visible, shape.ofrep, digest);
    }
}

fn flagsmith<B: AsRef<[u8]>>(
    snapshot: &Snapshot<B>,
    request: &mut RequestState,
    context: &Context,
    role: Role,
    visible: &[&Explanation],
) -> u64 {
    let mut body = Vec::new();
    let digest = snapshot.write_flags(request, role, &mut body);
    let flags: Vec<FlagsmithFlag<'_>> = serde_json::from_slice(&body).expect("Flagsmith's flags are not JSON");
    let told = flags.iter().map(|flag| (flag.feature.name.as_str(), flag.enabled, flag.feature_state_value.get()));
    let wanted = visible.iter().map(|flag| (flag.feature.as_str(), flag.enabled, flag.value.as_str()));
    assert!(told.eq(wanted), "the flags are not those that are explained: {visible:#?}");

    let mut new = RequestState::default();
    context.apply(snapshot, &mut new);
    let mut again = Vec::new();
    assert_eq!(snapshot.write_flags(&mut new, role, &mut again), digest);
    assert!(again == body, "a request that was used before gets other flags than a new one");
    digest
}

fn openfeature<B: AsRef<[u8]>>(
    snapshot: &Snapshot<B>,
    request: &mut RequestState,
    role: Role,
    visible: &[&Explanation],
    ofrep: Ofrep,
    digest: u64,
) {
    let mut body = b"[".to_vec();
    assert_eq!(snapshot.write_ofrep_flags(request, role, &mut body), digest);
    body.push(b']');
    let flags: Vec<&RawValue> = serde_json::from_slice(&body).expect("OFREP's flags are not JSON");
    assert_eq!(flags.len(), visible.len(), "the dialects do not have the same flags");
    for (raw, explained) in flags.into_iter().zip(visible) {
        let flag: OpenFeatureFlag<'_> = serde_json::from_str(raw.get()).unwrap();
        assert_eq!(flag.key, explained.feature);
        assert!(
            ["STATIC", "DEFAULT", "TARGETING_MATCH", "SPLIT", "DISABLED", "ERROR"].contains(&flag.reason.as_str()),
            "{}",
            flag.reason
        );
        let is_object =
            ofrep.object_flags == ObjectFlags::Object && flag.value.is_some_and(|value| value.get().starts_with('{'));
        if !is_object {
            assert_eq!(flag.value.map(RawValue::get), value(explained, ofrep), "{}", flag.key);
        }
        let mut single = Vec::new();
        match snapshot.write_ofrep_flag(request, role, &explained.feature, &mut single) {
            OfrepFlag::Written { .. } => assert_eq!(String::from_utf8_lossy(&single), raw.get()),
            OfrepFlag::NeedsTargetingKey => assert!(single.is_empty()),
            OfrepFlag::Unknown => panic!("flag {:?} is unknown alone", explained.feature),
        }
    }
}

/// Returns the value that OFREP has for a flag.
fn value(flag: &Explanation, ofrep: Ofrep) -> Option<&str> {
    let enabled = if flag.enabled { "true" } else { "false" };
    match flag.value.as_str() {
        "null" => Some(enabled),
        "true" | "false" if ofrep.boolean_flags == BooleanFlags::Enabled => Some(enabled),
        value if flag.enabled || ofrep.disabled_flags == DisabledFlags::Value => Some(value),
        _ => None,
    }
}
