//! Scenarios: scripts of what people do to an environment and its pods.

use remora_operator::{
    api::{ObjectKind, names::FORMAT},
    injection::Layout,
};
use serde_json::{Value, json};

use super::documents::{Document, large, small};

/// One action of a person. The controller settles before the next one.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The source has this document.
    Source(Document),
    /// The FeatureEnvironment has these fields in its spec. It is created if it does not exist.
    Spec(Value),
    /// The FeatureEnvironment is pinned to the revision of this document.
    Pin(Document),
    /// Somebody approves the revision of this document.
    Confirm(Document),
    /// These pods run, and no others.
    Pods(Vec<Value>),
    /// The FeatureEnvironment is deleted, and its objects with it.
    Delete,
    /// The operator is replaced by one of the next version: the objects are in another format now.
    Upgrade(&'static str),
}

/// A scenario. The name is the first word of a plan.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) script: Vec<Step>,
    /// True if objects have megabytes, so that a run takes long.
    pub(super) is_large: bool,
}

fn scenario(name: &'static str, script: Vec<Step>) -> Scenario {
    Scenario { name, script, is_large: false }
}

fn source(value: &str) -> Step {
    Step::Source(small(value))
}

fn secret() -> Step {
    Step::Spec(json!({"delivery": {"as": "Secret"}}))
}

/// Returns a pod that was admitted while the environment used this object kind and this format.
fn pod(object_kind: ObjectKind, format: &str) -> Value {
    let volume = Layout { object_kind, ..Layout::default() }.volume(&"storefront".parse().unwrap());
    let volume = volume.to_string().replace(&format!("-{FORMAT}-"), &format!("-{format}-"));
    let volume: Value = serde_json::from_str(&volume).unwrap();
    json!({
        "metadata": {"name": "web", "namespace": "shop", "annotations": {"remora.dev/inject": "storefront"}},
        "spec": {"containers": [], "volumes": [volume]},
    })
}

pub(super) fn all() -> Vec<Scenario> {
    let current = FORMAT.to_string();
    let [of_config_maps, of_secrets] =
        [ObjectKind::ConfigMap, ObjectKind::Secret].map(|kind| Step::Pods(vec![pod(kind, &current)]));
    let plain = || Step::Spec(json!({}));
    let sharded = |value: &str, overrides| Step::Source(Document { overrides, ..small(value) });
    let served = |value: &str, document| Step::Source(Document { document, ..small(value) });
    let of_features = |value: &str, features| Document { features, ..small(value) };
    let of_key = |value: &str, key: &str| Document { client_key: key.to_owned(), ..small(value) };
    let limit = |limit: usize| Step::Spec(json!({"revisionHistoryLimit": limit}));
    let changes = |object_kind: &str| {
        // Without a controller, several steps may look like one large loss.
        let guard = json!({"maxShrinkPercent": 100});
        vec![
            source("a"),
            Step::Spec(json!({"delivery": {"as": object_kind}, "guard": guard})),
            sharded("b", 30),
            sharded("c", 120),
            sharded("d", 118),
            sharded("d", 20),
            source("d"),
            source("e"),
        ]
    };
    let parts = |first: Step| {
        let large = |value: &str, parts| Step::Source(large(value, parts));
        vec![source("a"), first, large("b", 2), large("c", 3), large("d", 2), source("e"), large("f", 2)]
    };
    vec![
        scenario("small", vec![source("a"), plain(), source("b"), source("c"), source("b")]),
        scenario("suspended", vec![source("a"), plain(), Step::Spec(json!({"suspend": true})), source("b"), plain()]),
        scenario("shards", changes("ConfigMap")),
        scenario("secret-shards", changes("Secret")),
        scenario(
            "document",
            vec![plain(), served("a", 1_000), served("b", 5_000), served("c", 3_000), served("d", 0), served("e", 900)],
        ),
        scenario(
            "history",
            vec![
                source("a"),
                limit(2),
                source("b"),
                source("c"),
                source("d"),
                source("e"),
                limit(1),
                limit(0),
                limit(3),
                source("f"),
            ],
        ),
        scenario(
            "secret-history",
            vec![
                source("a"),
                Step::Spec(json!({"revisionHistoryLimit": 1, "delivery": {"as": "Secret"}})),
                source("b"),
                source("c"),
                source("d"),
                source("c"),
            ],
        ),
        scenario(
            "pin",
            vec![
                source("a"),
                plain(),
                source("b"),
                Step::Pin(small("a")),
                source("c"),
                source("d"),
                plain(),
                Step::Pin(small("b")),
                plain(),
            ],
        ),
        scenario(
            "guard",
            vec![
                Step::Source(of_features("a", 12)),
                plain(),
                Step::Source(of_features("b", 2)),
                Step::Confirm(of_features("b", 2)),
                Step::Source(of_features("c", 2)),
                // Without a controller at the steps before, this document has shrunk.
                Step::Confirm(of_features("c", 2)),
            ],
        ),
        scenario(
            "rotation",
            vec![
                Step::Source(of_key("a", "client")),
                plain(),
                Step::Source(of_key("b", "other")),
                Step::Confirm(of_key("b", "other")),
                Step::Source(of_key("c", "other")),
                // Without a controller at the step before, this key is as new.
                Step::Confirm(of_key("c", "other")),
            ],
        ),
        scenario(
            "carrier",
            vec![
                source("a"),
                plain(),
                of_config_maps.clone(),
                source("b"),
                secret(),
                source("c"),
                of_secrets.clone(),
                source("d"),
                plain(),
                of_config_maps.clone(),
                source("e"),
            ],
        ),
        scenario(
            "carrier-shards",
            vec![sharded("a", 30), plain(), secret(), sharded("b", 60), plain(), sharded("c", 10), source("d")],
        ),
        scenario(
            "again",
            vec![
                source("a"),
                plain(),
                source("b"),
                Step::Delete,
                source("c"),
                plain(),
                Step::Delete,
                secret(),
                Step::Delete,
            ],
        ),
        scenario(
            "upgrade",
            vec![
                source("a"),
                plain(),
                source("b"),
                Step::Upgrade("v2"),
                Step::Pods(vec![pod(ObjectKind::ConfigMap, "v2")]),
                source("c"),
                of_config_maps,
                source("d"),
            ],
        ),
        scenario(
            "secret-upgrade",
            vec![
                sharded("a", 30),
                secret(),
                Step::Upgrade("v2"),
                Step::Pods(vec![pod(ObjectKind::Secret, "v2")]),
                source("c"),
                of_secrets,
                source("d"),
            ],
        ),
        Scenario { is_large: true, ..scenario("parts", parts(plain())) },
        Scenario { is_large: true, ..scenario("secret-parts", parts(secret())) },
    ]
}
