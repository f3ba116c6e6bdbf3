//! Tests the decision on random pods: it gives either no patch, or a patch that applies and completes the pod.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::{prelude::*, strategy::ValueTree};
use remora_operator::injection::{Config, Decision, Defaults, PodContext, SkipReason, decide, missing_sidecar};
use serde_json::{Map, Value, json};

fn config() -> Config {
    Config {
        sidecar_image: "example.org/remora-sidecar:1.0.0".to_owned(),
        sidecar_pull_policy: "IfNotPresent".to_owned(),
        own_namespace: "remora-system".to_owned(),
        defaults: Defaults::default(),
    }
}

/// Keys that the code reads, and some that need escaping in a JSON pointer.
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

/// Generates a list in nine of ten cases, and any JSON value otherwise.
fn objects(of: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    prop_oneof![9 => proptest::collection::vec(of, 0..4).prop_map(Value::from), 1 => anything()]
}

/// Generates an object with some of these members.
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
                "log-json",
                "unix-socket",
                "env",
                "overrides",
                "override-key",
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
        1 => Just(r#"{"a": {"value": "$(b)"}}"#.to_owned()),
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
    fn patch_of_arbitrary_pod_applies_once_or_is_empty(pod in pod(), defaults in annotations(), dry_run in any::<bool>(), allows_overrides in any::<bool>()) {
        let defaults = serde_json::from_value(defaults).unwrap();
        let context = PodContext { defaults: Some(&defaults), dry_run, allows_overrides, ..PodContext::new("shop") };
        let lacks = missing_sidecar(&pod, &context, "remora-system").is_some();
        match decide(&pod, &context, &config()) {
            Decision::Skip(_) => {}
            Decision::Deny(refusal) => prop_assert!(!refusal.to_string().chars().any(char::is_control)),
            Decision::Inject(injection) => {
                let operations = injection.patch;
                prop_assert!(operations.0.iter().all(|one| matches!(one, json_patch::PatchOperation::Add(_))));
                // A round trip through text, because the API server gets the patch as text.
                let operations: json_patch::Patch =
                    serde_json::from_str(&serde_json::to_string(&operations).unwrap()).unwrap();
                let mut patched = pod.clone();
                prop_assert!(json_patch::patch(&mut patched, &operations).is_ok());
                let sidecar = &patched["spec"]["initContainers"];
                prop_assert!(sidecar.as_array().unwrap().iter().any(|one| one["name"] == "remora"));
                let has = pod["spec"]["initContainers"].as_array().into_iter().flatten().any(|one| one["name"] == "remora");
                prop_assert_eq!(lacks, !has);
                prop_assert!(missing_sidecar(&patched, &context, "remora-system").is_none());
                let again = decide(&patched, &context, &config());
                prop_assert!(matches!(again, Decision::Skip(SkipReason::AlreadyInjected)), "{again:?}");
            }
        }
    }
}

/// Without patches among the generated answers, the property above would test nothing.
#[test]
fn generated_pods_reach_every_kind_of_decision() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut skipped, mut denied, mut injected) = (0, 0, 0);
    for _ in 0..2000 {
        let pod = pod().new_tree(&mut runner).unwrap().current();
        match decide(&pod, &PodContext::new("shop"), &config()) {
            Decision::Skip(_) => skipped += 1,
            Decision::Deny(_) => denied += 1,
            Decision::Inject(_) => injected += 1,
        }
    }
    assert!(skipped > 50 && denied > 50 && injected > 50, "{skipped} skipped, {denied} denied, {injected} injected");
}

/// Changes that another injector makes to a pod.
#[derive(Clone, Debug)]
struct Other {
    /// Adds a container beside the application.
    container: bool,
    /// Adds an init container behind all others; true if it is a native sidecar.
    init_behind: Option<bool>,
    /// Adds an init container in front of all others.
    init_in_front: bool,
    /// Adds a volume that all containers mount, Remora's included.
    volume: bool,
    /// Adds a variable to all containers, Remora's included.
    variable: bool,
    /// Rewrites all images to those of a mirror.
    mirror: bool,
    /// Adds an annotation.
    annotation: bool,
}

fn other() -> impl Strategy<Value = Other> {
    let flag = any::<bool>;
    (flag(), proptest::option::of(flag()), flag(), flag(), flag(), flag(), flag()).prop_map(
        |(container, init_behind, init_in_front, volume, variable, mirror, annotation)| Other {
            container,
            init_behind,
            init_in_front,
            volume,
            variable,
            mirror,
            annotation,
        },
    )
}

/// Returns the list under this key, and creates it if it is absent.
fn list<'a>(of: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    if !of[key].is_array() {
        of[key] = json!([]);
    }
    of[key].as_array_mut().unwrap()
}

fn push_named(list: &mut Vec<Value>, item: Value) {
    if !list.iter().any(|one| one["name"] == item["name"]) {
        list.push(item);
    }
}

impl Other {
    /// Makes the changes that the pod lacks, and keeps everything that exists.
    fn inject(&self, pod: &mut Value) {
        let spec = &mut pod["spec"];
        if self.container {
            push_named(list(spec, "containers"), json!({"name": "mesh-proxy", "image": "mesh:1"}));
        }
        if let Some(native) = self.init_behind {
            let mut init = json!({"name": "mesh-late", "image": "mesh:1"});
            if native {
                init["restartPolicy"] = json!("Always");
            }
            push_named(list(spec, "initContainers"), init);
        }
        if self.init_in_front && !list(spec, "initContainers").iter().any(|one| one["name"] == "mesh-init") {
            list(spec, "initContainers").insert(0, json!({"name": "mesh-init", "image": "mesh:1"}));
        }
        if self.volume {
            push_named(list(spec, "volumes"), json!({"name": "mesh", "emptyDir": {}}));
        }
        for kind in ["initContainers", "containers"] {
            for container in spec[kind].as_array_mut().into_iter().flatten() {
                if self.volume {
                    push_named(list(container, "volumeMounts"), json!({"name": "mesh", "mountPath": "/mesh"}));
                }
                if self.variable {
                    push_named(list(container, "env"), json!({"name": "MESH", "value": "on"}));
                }
                let image = container["image"].as_str().unwrap_or_default().to_owned();
                if self.mirror && !image.starts_with("mirror.example.com/") {
                    container["image"] = json!(format!("mirror.example.com/{image}"));
                }
            }
        }
        if self.annotation {
            pod["metadata"]["annotations"]["mesh.example.com/status"] = json!("injected");
        }
    }
}

/// Generates an ordinary pod that every injector accepts.
fn plain_pod() -> impl Strategy<Value = Value> {
    let container = |name: &'static str| {
        (any::<bool>(), any::<bool>()).prop_map(move |(with_env, with_mounts)| {
            let mut container = json!({"name": name, "image": "shop/web:1"});
            if with_env {
                container["env"] = json!([{"name": "A", "value": "$(OFREP_ENDPOINT)"}]);
            }
            if with_mounts {
                container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
            }
            container
        })
    };
    let inject = proptest::sample::select(&["a", "a,b"][..]);
    (inject, any::<bool>(), container("web"), proptest::option::of(container("worker")), any::<bool>()).prop_map(
        |(inject, socket, web, worker, migrate)| {
            let mut annotations = json!({"remora.dev/inject": inject});
            if socket {
                annotations["remora.dev/unix-socket"] = json!("true");
            }
            let containers: Vec<_> = [web].into_iter().chain(worker).collect();
            let mut spec = json!({"containers": containers, "volumes": [{"name": "data", "emptyDir": {}}]});
            if migrate {
                spec["initContainers"] = json!([{"name": "migrate", "image": "shop/web:1"}]);
            }
            json!({"metadata": {"annotations": annotations}, "spec": spec})
        },
    )
}

/// Injects Remora's sidecar like the webhook. Returns true if the pod changed.
fn ours(pod: &mut Value) -> bool {
    match decide(pod, &PodContext::new("shop"), &config()) {
        Decision::Skip(SkipReason::AlreadyInjected) => false,
        Decision::Inject(injection) => {
            json_patch::patch(pod, &injection.patch).unwrap();
            true
        }
        other => panic!("{other:?} about {pod}"),
    }
}

/// Removes the differences that depend on the order of the injectors: sorts all lists by name, and reduces the init
/// container that may be in front of the sidecar, where it gets no variables and mounts, to its name and image.
fn canonical(mut pod: Value) -> Value {
    let by_name = |list: &mut Value| {
        if let Some(list) = list.as_array_mut() {
            list.sort_by_key(|item| item["name"].to_string());
        }
    };
    for kind in ["initContainers", "containers"] {
        for container in pod["spec"][kind].as_array_mut().into_iter().flatten() {
            if container["name"] == "mesh-init" {
                *container = json!({"name": "mesh-init", "image": container["image"]});
            }
            by_name(&mut container["env"]);
            by_name(&mut container["volumeMounts"]);
        }
        by_name(&mut pod["spec"][kind]);
    }
    by_name(&mut pod["spec"]["volumes"]);
    pod
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|item| item["name"].as_str().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Two injectors are called in either order, each again after a change of the other one, as with
    /// `reinvocationPolicy: IfNeeded`.
    #[test]
    fn second_injector_changes_nothing_in_either_order(pod in plain_pod(), other in other()) {
        let (mut first, mut second) = (pod.clone(), pod);
        // Remora is called first, then the other injector, then Remora again.
        prop_assert!(ours(&mut first));
        other.inject(&mut first);
        ours(&mut first);
        other.inject(&mut first);
        // The other injector is called first.
        other.inject(&mut second);
        prop_assert!(ours(&mut second));
        other.inject(&mut second);
        for (order, mut pod) in [("ours first", first.clone()), ("ours second", second.clone())] {
            prop_assert!(!ours(&mut pod), "{order}: there is still something to do about {pod}");
            prop_assert_eq!(names(&pod["spec"]["initContainers"]).iter().filter(|name| **name == "remora").count(), 1);
            prop_assert!(missing_sidecar(&pod, &PodContext::new("shop"), "remora-system").is_none());
            // Every container that starts after the sidecar has the endpoint variables.
            let init = pod["spec"]["initContainers"].as_array().unwrap();
            let behind = init.iter().skip_while(|one| one["name"] != "remora").skip(1);
            for container in behind.chain(pod["spec"]["containers"].as_array().unwrap()) {
                let variables = names(&container["env"]);
                prop_assert!(variables.contains(&"OFREP_ENDPOINT"), "{order}: {container}");
                prop_assert_eq!(variables.iter().filter(|name| **name == "OFREP_ENDPOINT").count(), 1);
            }
        }
        prop_assert_eq!(canonical(first), canonical(second));
    }
}
