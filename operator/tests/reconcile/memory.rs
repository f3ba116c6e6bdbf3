//! The memory for snapshots: a namespace cannot take it from others.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Cluster, Operator, document, fenv, flags, is, pass, reported};

fn named(namespace: &str, name: &str) -> Value {
    let mut object = fenv(1, &json!({}));
    object["metadata"]["namespace"] = json!(namespace);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(format!("uid-of-{namespace}-{name}"));
    object
}

fn large() -> Value {
    let mut document = document("a");
    document["feature_states"][0]["feature_state_value"] = json!("x".repeat(100_000));
    document
}

/// Returns an operator that has memory for this number of snapshots.
async fn with_room_for(cluster: &Cluster, count: usize) -> Operator {
    cluster.put(&flags(&large()));
    let elsewhere = Cluster::default();
    elsewhere.put(&flags(&large()));
    Operator::start(&elsewhere).turn(fenv(1, &json!({}))).await;
    let bytes = elsewhere.last_status()["bytes"].as_u64().unwrap() as usize;
    Operator::start_within(cluster, count * (bytes + (17 << 10)))
}

#[tokio::test]
async fn namespace_beyond_its_share_is_refused_and_others_go_on() {
    let cluster = Cluster::default();
    let mut operator = with_room_for(&cluster, 4).await;
    let mut refused = 0;
    for number in 0..6 {
        operator.turn(named("noisy", &format!("environment-{number}"))).await;
        let status = cluster.last_status();
        if status["revision"].is_null() {
            refused += 1;
            is(&status, "Published", ("False", "SnapshotMemoryFull"));
            assert!(status.to_string().contains("controller.maxSnapshotBytes"), "{status}");
        }
    }
    assert_eq!(refused, 3, "three of four places are for a namespace that takes all it gets");
    operator.turn(named("shop", "storefront")).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
}

#[tokio::test]
async fn change_of_environment_that_has_no_room_for_two_snapshots_is_published() {
    let cluster = Cluster::default();
    let mut operator = with_room_for(&cluster, 2).await;
    operator.turn(fenv(1, &json!({}))).await;
    let before = cluster.last_status()["revision"].clone();
    let mut changed = large();
    changed["feature_states"][0]["enabled"] = json!(false);
    cluster.put(&flags(&changed));
    let mut object = reported(&cluster, 2);
    object["metadata"]["generation"] = json!(2);
    operator.turn(object).await;
    let status = cluster.last_status();
    is(&status, "Ready", ("True", "Published"));
    assert_ne!(status["revision"], before);
}

/// A restarted process reads the pinned revision back. Until the API server returns it, the pin names a revision that is
/// published, not an unknown one.
#[tokio::test]
async fn pin_to_published_revision_holds_while_it_cannot_be_read_back() {
    let cluster = Cluster::default();
    cluster.put(&flags(&large()));
    Operator::start(&cluster).turn(fenv(1, &json!({}))).await;
    let revision = cluster.last_status()["revision"].clone();
    let pinned = |cluster: &Cluster| {
        let mut object = fenv(2, &json!({"pin": revision}));
        object["status"] = cluster.last_status();
        object
    };
    let mut changed = large();
    changed["feature_states"][0]["enabled"] = json!(false);
    cluster.put(&flags(&changed));
    let core = "remora-storefront-v3-core";
    cluster.hide(core);
    let mut operator = Operator::start(&cluster);
    for _ in 0..2 {
        operator.turn(pinned(&cluster)).await;
        let status = cluster.last_status();
        assert_eq!(status["revision"], revision);
        is(&status, "Accepted", ("True", "Accepted"));
    }
    cluster.relent();
    operator.turn(pinned(&cluster)).await;
    cluster.take(core).unwrap();
    operator.turn(pinned(&cluster)).await;
    assert!(cluster.get(core).is_some(), "a snapshot that was read back is restored");
}

#[tokio::test]
async fn pinned_revision_is_published_without_room_for_two_snapshots() {
    let cluster = Cluster::default();
    cluster.put(&flags(&large()));
    let mut roomy = Operator::start(&cluster);
    roomy.turn(fenv(1, &json!({}))).await;
    let first = cluster.last_status()["revision"].clone();
    let mut changed = large();
    changed["feature_states"][0]["enabled"] = json!(false);
    cluster.put(&flags(&changed));
    roomy.turn(reported(&cluster, 2)).await;
    let second = cluster.last_status()["revision"].clone();
    assert_ne!(first, second);

    let mut operator = with_room_for(&cluster, 2).await;
    cluster.put(&flags(&changed));
    let pinned = |generation: i64, revision: &Value| {
        let mut object = fenv(generation, &json!({"pin": revision}));
        object["status"] = cluster.last_status();
        object
    };
    // No copy of the second revision is kept: it is published all the time.
    for (generation, pin) in [(3, &second), (4, &first)] {
        operator.turn(pinned(generation, pin)).await;
        for value in ["y", "z"] {
            let mut next = changed.clone();
            next["feature_states"][0]["feature_state_value"] = json!(value.repeat(100_000));
            cluster.put(&flags(&next));
            pass(Duration::from_secs(61)).await;
            operator.turn(pinned(generation, pin)).await;
            let status = cluster.last_status();
            assert_eq!(&status["revision"], pin);
            is(&status, "Accepted", ("True", "Accepted"));
            is(&status, "Published", ("True", "Pinned"));
        }
    }
}
