//! For whatever comes, the answer is a patch that applies, and that leaves nothing to do, or it is none.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::{prelude::*, strategy::ValueTree};
use remora_operator::inject::{Config, Decision, Place, Reason, decide, lacks_sidecar, patch};
use serde_json::{Map, Value, json};

fn config() -> Config {
    Config {
        sidecar_image: "example.org/remora-sidecar:1.0.0".to_owned(),
        sidecar_pull_policy: "IfNotPresent".to_owned(),
        own_namespace: "remora-system".to_owned(),
    }
}

/// Keys that the code asks for, and some that need escaping in a pointer.
const KEYS: [&str; 26] = [
    "name",
    "env",
    "ports",
    "containerPort",
    "protocol",
    "resources",
    "limits",
    "requests",
    "cpu",
    "memory",
    "restartPolicy",
    "volumeMounts",
    "mountPath",
    "labels",
    "remora.dev/sidecar",
    "volumes",
    "initContainers",
    "containers",
    "securityContext",
    "runAsUser",
    "hostNetwork",
    "os",
    "nodeSelector",
    "~/~1",
    "",
    "value",
];

const STRINGS: [&str; 16] = [
    "socket-remora",
    "/var/run/remora-socket",
    "remora",
    "remora-a",
    "no-token-remora",
    "Always",
    "OFREP_ENDPOINT",
    "TCP",
    "/var/run/remora/a",
    "1",
    "100m",
    "1e999",
    "windows",
    "\0",
    "４777",
    "999999999999999999999999999999999999999Ei",
];

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(4777)),
        Just(json!(0)),
        any::<f64>().prop_map(|number| json!(number)),
        proptest::sample::select(&STRINGS[..]).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 32, 4, |inner| {
        let key = prop_oneof![4 => proptest::sample::select(&KEYS[..]).prop_map(str::to_owned), 1 => ".{0,4}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..5).prop_map(|members| Value::from(Map::from_iter(members))),
        ]
    })
}

/// A list where the API has one, most of the time.
fn objects(of: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    prop_oneof![9 => proptest::collection::vec(of, 0..4).prop_map(Value::from), 1 => anything()]
}

/// An object with some of these members.
fn object(members: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Value> {
    let members: Vec<_> = members
        .into_iter()
        .map(|(key, value)| proptest::option::of(value).prop_map(move |value| (key.to_owned(), value)))
        .collect();
    members.prop_map(|members| {
        members.into_iter().filter_map(|(key, value)| Some((key, value?))).collect::<Map<_, _>>().into()
    })
}

fn container() -> impl Strategy<Value = Value> {
    let named = || object(vec![("name", scalar().boxed()), ("value", scalar().boxed())]);
    object(vec![
        ("name", proptest::sample::select(&["web", "remora", "x"][..]).prop_map(Value::from).boxed()),
        ("env", objects(named()).boxed()),
        ("ports", objects(object(vec![("containerPort", scalar().boxed()), ("protocol", scalar().boxed())])).boxed()),
        ("restartPolicy", Just(json!("Always")).boxed()),
        ("resources", anything().boxed()),
        ("volumeMounts", objects(object(vec![("mountPath", scalar().boxed())])).boxed()),
    ])
}

fn annotations() -> impl Strategy<Value = Value> {
    let inject = proptest::sample::select(&["a", "a,b", "a, ", "x/a", "false", ""][..]);
    let key = prop_oneof![
        proptest::sample::select(
            &[
                "port",
                "cpu-request",
                "memory-request",
                "cpu-limit",
                "memory-limit",
                "await",
                "log-level",
                "unix-socket",
                "env",
                "x"
            ][..]
        )
        .prop_map(|key| format!("remora.dev/{key}")),
        ".{0,6}",
    ];
    let value = prop_oneof![
        6 => proptest::sample::select(
            &["4777", "8080", "10m", "0.5", "64Mi", "4Mi", "2m", "500ms", "debug", "none", "true", "OFREP_ENDPOINT"][..]
        )
        .prop_map(str::to_owned),
        1 => ".{0,80}",
    ];
    (inject, proptest::collection::vec((key, value), 0..3)).prop_map(|(inject, others)| {
        let mut annotations: Map<_, _> = others.into_iter().map(|(key, value)| (key, json!(value))).collect();
        annotations.insert("remora.dev/inject".to_owned(), json!(inject));
        annotations.into()
    })
}

fn pod() -> impl Strategy<Value = Value> {
    let metadata = (annotations(), proptest::option::of(anything())).prop_map(|(annotations, labels)| {
        let mut metadata = json!({"annotations": annotations});
        if let Some(labels) = labels {
            metadata["labels"] = labels;
        }
        metadata
    });
    let spec = object(vec![
        ("containers", objects(container()).boxed()),
        ("initContainers", objects(container()).boxed()),
        ("volumes", objects(object(vec![("name", scalar().boxed())])).boxed()),
        ("securityContext", anything().boxed()),
        ("os", anything().boxed()),
    ]);
    prop_oneof![
        12 => (metadata, spec).prop_map(|(metadata, spec)| json!({"metadata": metadata, "spec": spec})),
        1 => anything(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn a_patch_that_applies_once_or_none(pod in pod(), defaults in annotations(), dry_run in any::<bool>()) {
        let defaults = serde_json::from_value(defaults).unwrap();
        let place = Place { defaults: Some(&defaults), dry_run, ..Place::new("shop") };
        let lacks = lacks_sidecar(&pod, &place, "remora-system").is_some();
        match decide(&pod, &place, &config()) {
            Decision::Skip(_) => {}
            Decision::Deny(refusal) => prop_assert!(!refusal.to_string().chars().any(char::is_control)),
            Decision::Inject(plan) => {
                let operations = patch(&pod, &plan);
                prop_assert!(operations.0.iter().all(|one| matches!(one, json_patch::PatchOperation::Add(_))));
                // What goes to the API server is text.
                let operations: json_patch::Patch =
                    serde_json::from_str(&serde_json::to_string(&operations).unwrap()).unwrap();
                let mut patched = pod.clone();
                prop_assert!(json_patch::patch(&mut patched, &operations).is_ok());
                let sidecar = &patched["spec"]["initContainers"];
                prop_assert!(sidecar.as_array().unwrap().iter().any(|one| one["name"] == "remora"));
                let has = pod["spec"]["initContainers"].as_array().into_iter().flatten().any(|one| one["name"] == "remora");
                prop_assert_eq!(lacks, !has);
                prop_assert!(lacks_sidecar(&patched, &place, "remora-system").is_none());
                let again = decide(&patched, &place, &config());
                prop_assert!(matches!(again, Decision::Skip(Reason::AlreadyInjected)), "{again:?}");
            }
        }
    }
}

/// The generator would be worthless if it never got as far as a patch.
#[test]
fn every_kind_of_answer_is_generated() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut skipped, mut denied, mut injected) = (0, 0, 0);
    for _ in 0..2000 {
        let pod = pod().new_tree(&mut runner).unwrap().current();
        match decide(&pod, &Place::new("shop"), &config()) {
            Decision::Skip(_) => skipped += 1,
            Decision::Deny(_) => denied += 1,
            Decision::Inject(_) => injected += 1,
        }
    }
    assert!(skipped > 50 && denied > 50 && injected > 50, "{skipped} skipped, {denied} denied, {injected} injected");
}
