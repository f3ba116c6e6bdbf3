//! Upgrades with a change of the format: the operator neither writes nor reads objects of another version, and keeps
//! them while pods mount them.

use std::{collections::BTreeMap, time::Duration};

use remora_operator::api::{ObjectKind, names::FORMAT};
use serde_json::{Value, json};

use super::{
    CORE, Cluster, Operator, delivery, document, fenv, flags, is,
    object_kinds::{pod, reported, secret},
    writes,
};

/// Turns the published objects into those of another version: with its names, and with bytes that this version never
/// reads.
fn published_by_another(cluster: &Cluster, format: &str) -> BTreeMap<String, Value> {
    let (today, other) = (format!("-{FORMAT}-"), format!("-{format}-"));
    for key in cluster.names().into_iter().filter(|key| key.contains(&today)) {
        let mut object = cluster.take(&key).unwrap();
        object["metadata"]["name"] = json!(object["metadata"]["name"].as_str().unwrap().replace(&today, &other));
        object["metadata"]["labels"]["remora.dev/format"] = json!(format);
        for field in ["binaryData", "data"].into_iter().filter(|field| key.starts_with("secret/") == (*field == "data"))
        {
            object[field] = json!({"core": "AAAA"});
        }
        cluster.put_as(&key.replace(&today, &other), &object);
    }
    objects_in(cluster, format)
}

fn objects_in(cluster: &Cluster, format: &str) -> BTreeMap<String, Value> {
    let names = cluster.names().into_iter().filter(|name| name.contains(&format!("-{format}-")));
    names.map(|name| (name.clone(), cluster.get(&name).unwrap())).collect()
}

/// Returns a pod that a version with this format admitted.
fn pod_of(object_kind: ObjectKind, format: &str) -> Value {
    serde_json::from_str(&pod(object_kind).to_string().replace(&format!("-{FORMAT}-"), &format!("-{format}-"))).unwrap()
}

/// Returns a cluster in which a version with this format published two revisions, and left its status.
async fn cluster_of(format: &str, spec: &Value) -> (Cluster, BTreeMap<String, Value>) {
    let cluster = Cluster::default();
    let mut operator = Operator::start(&cluster);
    cluster.put(&flags(&document("a")));
    operator.turn(fenv(1, spec)).await;
    cluster.put(&flags(&document("b")));
    operator.turn(reported(&cluster, 2, spec)).await;
    assert_eq!(cluster.last_status()["history"].as_array().map(Vec::len), Some(1));
    let left = published_by_another(&cluster, format);
    assert_eq!(left.len(), 2, "a core, and one that is kept");
    (cluster, left)
}

#[tokio::test]
async fn objects_of_another_format_stay_while_pods_mount_them() {
    for (object_kind, spec, format) in [
        (ObjectKind::ConfigMap, json!({}), "v1"),
        (ObjectKind::ConfigMap, json!({}), "v2"),
        (ObjectKind::ConfigMap, json!({}), "v4"),
        (ObjectKind::Secret, secret(), "v1"),
    ] {
        let (cluster, left) = cluster_of(format, &spec).await;
        let core = if object_kind == ObjectKind::Secret { format!("secret/{CORE}") } else { CORE.to_owned() };
        cluster.run(vec![pod_of(object_kind, format), pod(object_kind)]);
        let mut operator = Operator::start_patient(&cluster, &[], Duration::ZERO);
        // The environment is ready and no interval has passed, but the operator publishes at once.
        let (_, calls) = operator.turn(reported(&cluster, 2, &spec)).await;
        assert_eq!(writes(&calls), [&format!("patch {core}")], "{calls:?}");
        let read: Vec<&String> = calls.iter().filter(|call| call.contains(&format!("-{format}-"))).collect();
        assert!(object_kind == ObjectKind::Secret || read.is_empty(), "{read:?}");
        is(&cluster.last_status(), "Ready", ("True", "Published"));
        assert_eq!(objects_in(&cluster, format), left);

        cluster.put(&flags(&document("c")));
        operator.turn(reported(&cluster, 3, &spec)).await;
        assert_eq!(objects_in(&cluster, format), left, "{format}");

        cluster.run(vec![pod(object_kind)]);
        operator.turn(reported(&cluster, 3, &spec)).await;
        // Only the version that wrote a copy in a Secret knows it; the copy is deleted with its owner.
        let gone =
            objects_in(&cluster, format).keys().all(|name| name.starts_with("secret/") && name.contains("-history-"));
        assert!(gone, "{:?}", cluster.names());
        assert!(cluster.get(&core).is_some());
    }
}

#[tokio::test]
async fn objects_of_another_format_stay_within_grace_period() {
    let (cluster, left) = cluster_of("v1", &json!({})).await;
    let mut operator = Operator::start(&cluster);
    operator.turn(reported(&cluster, 2, &json!({}))).await;
    operator.turn(reported(&cluster, 3, &json!({}))).await;
    assert_eq!(objects_in(&cluster, "v1"), left, "a pod may have been admitted a moment ago");
}

/// The object kind can change at the same time.
#[tokio::test]
async fn change_of_kind_and_format_deletes_previous_objects() {
    let (cluster, left) = cluster_of("v1", &json!({})).await;
    cluster.run(vec![pod_of(ObjectKind::ConfigMap, "v1")]);
    let mut operator = Operator::start_patient(&cluster, &[], Duration::ZERO);
    operator.turn(reported(&cluster, 3, &secret())).await;
    assert_eq!(objects_in(&cluster, "v1"), left);
    assert_eq!(cluster.last_status()["delivery"]["formerly"], "ConfigMap");
    cluster.run(vec![pod(ObjectKind::Secret)]);
    operator.turn(reported(&cluster, 3, &secret())).await;
    assert!(objects_in(&cluster, "v1").is_empty(), "{:?}", cluster.names());
    assert_eq!(delivery(&cluster), json!({"as": "Secret", "overridesFiles": 0}));
}

#[tokio::test]
async fn copies_in_another_format_are_not_in_history() {
    let (cluster, _) = cluster_of("v1", &json!({})).await;
    let mut operator = Operator::start(&cluster);
    operator.turn(reported(&cluster, 2, &json!({}))).await;
    assert_eq!(cluster.last_status()["history"], Value::Null);
    let record = |cluster: &Cluster| {
        let core = cluster.get(CORE).unwrap();
        let record: Value =
            serde_json::from_str(core["metadata"]["annotations"]["remora.dev/record"].as_str().unwrap()).unwrap();
        record["history"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(record(&cluster), 0);
    cluster.put(&flags(&document("c")));
    operator.turn(reported(&cluster, 3, &json!({}))).await;
    assert_eq!(record(&cluster), 1, "what is replaced from now on is kept");
}

#[tokio::test]
async fn guard_holds_back_shrunken_document_after_format_change() {
    let cluster = Cluster::default();
    let features = |names: &[&str]| {
        let mut whole = document("a");
        whole["feature_states"] = names.iter().map(|name| document(name)["feature_states"][0].clone()).collect();
        for (id, state) in whole["feature_states"].as_array_mut().unwrap().iter_mut().enumerate() {
            state["feature"]["id"] = json!(id);
        }
        flags(&whole)
    };
    let many: Vec<String> = (0..12).map(|number| format!("feature-{number}")).collect();
    cluster.put(&features(&many.iter().map(String::as_str).collect::<Vec<_>>()));
    Operator::start(&cluster).turn(fenv(1, &json!({}))).await;
    let left = published_by_another(&cluster, "v1");

    cluster.put(&features(&["feature-1"]));
    let mut operator = Operator::start(&cluster);
    let (_, calls) = operator.turn(reported(&cluster, 1, &json!({}))).await;
    assert!(writes(&calls).is_empty(), "{calls:?}");
    assert!(calls.contains(&"event SuspiciousShrink".to_owned()), "{calls:?}");
    let status = cluster.last_status();
    is(&status, "Published", ("False", "SuspiciousShrink"));
    is(&status, "Ready", ("False", "PreviousFormat"));
    assert_eq!(objects_in(&cluster, "v1"), left);

    let mut confirmed = reported(&cluster, 1, &json!({}));
    confirmed["metadata"]["annotations"] = json!({"remora.dev/confirm": status["heldRevision"]});
    let (_, calls) = operator.turn(confirmed).await;
    assert!(!calls.contains(&"get flags".to_owned()), "the document is in memory: {calls:?}");
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert_eq!(cluster.last_status()["features"], 1);
}

/// New pods get nothing until the source answers, and the status says so; running pods keep what they mount.
#[tokio::test]
async fn failing_source_after_format_change_reports_which_pods_are_served() {
    let (cluster, left) = cluster_of("v1", &json!({})).await;
    let found = cluster.take("flags").unwrap();
    let mut operator = Operator::start_patient(&cluster, &[], Duration::ZERO);
    let (_, calls) = operator.turn(reported(&cluster, 2, &json!({}))).await;
    assert!(writes(&calls).is_empty(), "{calls:?}");
    assert!(calls.contains(&"event PreviousFormat".to_owned()), "{calls:?}");
    let status = cluster.last_status();
    is(&status, "Ready", ("False", "PreviousFormat"));
    let message = status["conditions"][3]["message"].as_str().unwrap();
    assert!(
        message.contains("published the snapshot in format v1: running pods serve it")
            && message.contains("ConfigMap flags does not exist"),
        "{message}"
    );
    operator.turn(reported(&cluster, 2, &json!({}))).await;
    assert_eq!(objects_in(&cluster, "v1"), left, "there is nothing yet that could take its place");

    cluster.put(&found);
    operator.turn(reported(&cluster, 3, &json!({}))).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
}

/// A pin excludes the newest revision, so new pods do not get that one.
#[tokio::test]
async fn pin_to_revision_in_another_format_publishes_nothing() {
    let (cluster, left) = cluster_of("v1", &json!({})).await;
    let spec = json!({"pin": cluster.last_status()["history"][0]["revision"]});
    let mut operator = Operator::start(&cluster);
    let (_, calls) = operator.turn(reported(&cluster, 3, &spec)).await;
    assert!(writes(&calls).is_empty(), "{calls:?}");
    let status = cluster.last_status();
    is(&status, "Accepted", ("False", "UnknownRevision"));
    is(&status, "Ready", ("False", "PreviousFormat"));
    let message = status["conditions"][0]["message"].as_str().unwrap();
    let kept = format!("not kept in format {FORMAT}: the objects in format v1 stay");
    assert!(message.contains(&kept), "{message}");
    assert_eq!(objects_in(&cluster, "v1"), left);

    let mut operator = Operator::start(&cluster);
    operator.turn(reported(&cluster, 4, &json!({}))).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
}
