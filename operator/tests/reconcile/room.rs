//! A core that needs more objects than the volumes of running pods name is withheld until these pods are replaced.

use std::{slice::from_ref, sync::Arc, time::Duration};

use kube::core::DeserializeGuard;
use remora_operator::{
    api::{FeatureEnvironment, ObjectKind},
    controller::reconcile::reconcile,
    injection::{Layout, Size, Slots},
};
use serde_json::{Value, json};

use super::{
    CORE, Operator,
    cluster::{Cluster, fenv},
    document, flags, is, pass, reported, settle, until,
    upstream::Upstream,
    wait, writes,
};

/// Returns an environment whose core has about this many kilobytes.
fn sized(kilobytes: usize) -> Value {
    let mut whole = document("a");
    // The core has each value twice: in the context and in the answers. The guard ignores a loss of four features.
    let features = (0..4).map(|number| {
        let value = format!("{number:05}").repeat(kilobytes * 1_000 / 2 / 4 / 5);
        json!({
            "feature": {"id": 100 + number, "name": format!("flag {number}"), "type": "STANDARD"}, "enabled": true,
            "django_id": 100 + number, "feature_state_value": value, "multivariate_feature_state_values": [],
        })
    });
    whole["feature_states"].as_array_mut().unwrap().extend(features);
    whole
}

/// Returns a running pod with this layout.
fn pod(name: &str, layout: Layout) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "annotations": {"remora.dev/inject": "storefront"}},
        "spec": {"containers": [], "volumes": [layout.volume(&"storefront".parse().unwrap())]},
    })
}

/// Returns the layout that the webhook gives a pod that is admitted now.
fn layout_now(cluster: &Cluster) -> Layout {
    let core = usize::try_from(cluster.last_status()["coreBytes"].as_u64().unwrap()).unwrap();
    Layout::new(ObjectKind::ConfigMap, Slots::default(), Size { core, ..Size::default() })
}

fn message(status: &Value) -> String {
    let conditions = status["conditions"].as_array().unwrap();
    let published = conditions.iter().find(|condition| condition["type"] == "Published").unwrap();
    published["message"].as_str().unwrap().to_owned()
}

/// Publishes a small core, runs a pod that mounts it, and lets the core grow to several parts.
async fn grown() -> (Cluster, Operator) {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    cluster.run(vec![pod("web-1", layout_now(&cluster))]);
    cluster.put(&flags(&sized(2_000)));
    operator.turn(reported(&cluster, 2)).await;
    (cluster, operator)
}

#[tokio::test]
async fn core_without_room_is_withheld_until_pods_are_replaced() {
    let (cluster, mut operator) = grown().await;
    let (status, before) = (cluster.last_status(), cluster.get(CORE).unwrap());
    is(&status, "Published", ("False", "PodsWithoutRoom"));
    is(&status, "Ready", ("True", "LastGood"));
    is(&status, "Fetched", ("True", "Synced"));
    let said = message(&status);
    assert!(said.contains("the volumes of 1 pod (web-1) name fewer: restart these pods (kubectl rollout restart). The webhook gives new pods enough room"), "{said}");
    assert_eq!(status["revision"], before["metadata"]["annotations"]["remora.dev/revision"]);
    assert_eq!(cluster.ours().len(), 1, "{:?}", cluster.names());

    // While the core is withheld, the pods are looked at every 15 s, and a deleted object is restored.
    let (action, calls) = operator.turn(reported(&cluster, 2)).await;
    assert!(calls.is_empty(), "{calls:?}");
    assert!(wait(&action) <= Duration::from_secs(15), "{action:?}");
    cluster.take(CORE);
    operator.turn(reported(&cluster, 2)).await;
    assert_eq!(cluster.get(CORE).unwrap()["binaryData"], before["binaryData"]);

    // A pod that is admitted now has room, and the last pod without room keeps the core withheld.
    let new = layout_now(&cluster);
    assert!(new.slots.core_parts >= 4, "{new:?}");
    cluster.run(vec![pod("web-1", Layout::default()), pod("web-2", new)]);
    pass(Duration::from_secs(16)).await;
    let (_, calls) = operator.turn(reported(&cluster, 2)).await;
    assert!(calls.contains(&"list pods".to_owned()) && writes(&calls).is_empty(), "{calls:?}");
    cluster.run(vec![pod("web-2", new)]);
    pass(Duration::from_secs(16)).await;
    operator.turn(reported(&cluster, 2)).await;
    let status = cluster.last_status();
    is(&status, "Published", ("True", "Published"));
    assert_ne!(status["revision"], before["metadata"]["annotations"]["remora.dev/revision"]);
    let files = ["core", "core-a-00", "core-a-01"].map(|file| format!("remora-storefront-v3-{file}"));
    let published: Vec<&str> = status["objects"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(files.iter().all(|file| published.contains(&file.as_str())), "{published:?}");
    assert_eq!(status["history"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn withheld_core_stays_withheld_after_restart() {
    let (cluster, _) = grown().await;
    let before = cluster.get(CORE);
    let mut restarted = Operator::start(&cluster);
    let (_, calls) = restarted.turn(reported(&cluster, 3)).await;
    assert!(writes(&calls).is_empty(), "{calls:?}");
    is(&cluster.last_status(), "Published", ("False", "PodsWithoutRoom"));
    assert_eq!(cluster.get(CORE), before);
}

#[tokio::test]
async fn withheld_core_is_forgotten_when_document_shrinks_again() {
    let (cluster, mut operator) = grown().await;
    cluster.put(&flags(&document("b")));
    operator.turn(reported(&cluster, 3)).await;
    let status = cluster.last_status();
    is(&status, "Published", ("True", "Published"));
    assert!(status["coreBytes"].as_u64().unwrap() < 500_000, "new pods need no room for parts: {status}");
}

#[tokio::test]
async fn core_is_published_at_once_if_new_and_running_pods_have_room() {
    let room = Layout { slots: Slots { core_parts: 4, ..Slots::default() }, ..Layout::default() };
    for pods in [vec![], vec![pod("web-1", room)]] {
        let cluster = Cluster::default();
        cluster.put(&flags(&document("a")));
        let mut operator = Operator::start(&cluster);
        let spec = json!({"delivery": {"coreParts": 4}});
        operator.turn(fenv(1, &spec)).await;
        cluster.run(pods);
        cluster.put(&flags(&sized(2_000)));
        let mut object = fenv(2, &spec);
        object["status"] = cluster.last_status();
        operator.turn(object).await;
        is(&cluster.last_status(), "Published", ("True", "Published"));
        assert!(cluster.get("remora-storefront-v3-core-b-00").is_some(), "the core before is kept");
    }
}

/// A pod in admission has the former room, and no list shows it yet.
#[tokio::test]
async fn core_beyond_room_of_new_pods_is_published_after_admissions() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let before = cluster.get(CORE).unwrap();
    let in_admission = pod("web-1", layout_now(&cluster));
    cluster.put(&flags(&sized(2_000)));
    let (action, calls) = operator.turn(reported(&cluster, 2)).await;
    assert!(writes(&calls).is_empty(), "{calls:?}");
    assert!(wait(&action) <= Duration::from_secs(15), "{action:?}");
    is(&cluster.last_status(), "Published", ("False", "PodsWithoutRoom"));
    let said = message(&cluster.last_status());
    assert!(said.contains("pods that are being admitted name fewer: it is published in 15 s"), "{said}");

    cluster.run(vec![in_admission]);
    pass(Duration::from_secs(16)).await;
    operator.turn(reported(&cluster, 2)).await;
    assert_eq!(cluster.get(CORE).unwrap()["binaryData"], before["binaryData"]);
    let said = message(&cluster.last_status());
    assert!(said.contains("the volumes of 1 pod (web-1) name fewer"), "{said}");

    cluster.run(vec![pod("web-2", layout_now(&cluster))]);
    pass(Duration::from_secs(16)).await;
    operator.turn(reported(&cluster, 2)).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
}

/// New pods have the former room until the status is written, however long that takes.
#[tokio::test]
async fn core_waits_for_admissions_after_status_is_written() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let object = reported(&cluster, 2);
    cluster.put(&flags(&sized(2_000)));
    let refusal = json!({"status": "Failure", "message": "no space", "code": 500});
    cluster.refuse_writes(Some((500, refusal)));
    for _ in 0..3 {
        let (_, calls) = operator.turn(object.clone()).await;
        assert!(writes(&calls).is_empty(), "{calls:?}");
        pass(Duration::from_secs(16)).await;
    }
    cluster.refuse_writes(None);
    let (_, calls) = operator.turn(object).await;
    assert!(writes(&calls).is_empty() && calls.contains(&"report".to_owned()), "{calls:?}");
    pass(Duration::from_secs(16)).await;
    operator.turn(reported(&cluster, 2)).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
}

#[tokio::test]
async fn withheld_core_is_looked_at_every_quarter_of_a_minute() {
    let (cluster, mut operator) = grown().await;
    let (mut now, mut looks, mut turns) = (Duration::ZERO, 0, 0);
    while now < Duration::from_secs(300) {
        let (action, calls) = operator.turn(reported(&cluster, 2)).await;
        assert!(writes(&calls).is_empty(), "{calls:?}");
        looks += calls.iter().filter(|call| *call == "list pods").count();
        turns += 1;
        now += wait(&action);
        pass(wait(&action)).await;
    }
    // Polls of the source and looks at the rollout are further reconciliations and lists.
    assert!((19..=45).contains(&looks), "{looks} lists of pods");
    assert!(turns <= 60, "{turns} reconciliations");
    is(&cluster.last_status(), "Published", ("False", "PodsWithoutRoom"));
}

/// A publication that failed half-way is not repeated before the room step has looked at the pods again.
#[tokio::test]
async fn half_published_core_is_not_completed_while_source_is_slow() {
    let cluster = Cluster::default();
    let server = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    let mut spec = server.spec();
    spec["delivery"] = json!({"coreParts": 4});
    operator.turn(fenv(1, &spec)).await;
    let before = cluster.get(CORE).unwrap();
    let object = |cluster: &Cluster, generation| {
        let mut object = fenv(generation, &spec);
        object["status"] = cluster.last_status();
        object
    };
    server.serve(&sized(2_000));
    cluster.die_after(2);
    operator.turn(object(&cluster, 2)).await;
    is(&cluster.last_status(), "Published", ("False", "WriteFailed"));
    assert!(cluster.get("remora-storefront-v3-core-a-00").is_some(), "nothing was written before the failure");

    cluster.relent();
    cluster.run(vec![pod("web-1", Layout::default())]);
    let answering = server.stall().await;
    let asked = server.asked();
    let edited: DeserializeGuard<FeatureEnvironment> = serde_json::from_value(object(&cluster, 3)).unwrap();
    cluster.observe(&mut operator.writer);
    let reconciling = tokio::spawn(reconcile(Arc::new(edited), Arc::clone(&operator.context)));
    until("the source is asked", || server.asked() > asked).await;
    // Far beyond the time between two restorations of published objects.
    for _ in 0..10 {
        pass(Duration::from_secs(1)).await;
        settle().await;
    }
    assert!(!reconciling.is_finished(), "the source was not slow");
    assert_eq!(cluster.get(CORE).unwrap(), before, "the core was completed");
    drop(answering);
    reconciling.await.unwrap().unwrap();
    is(&cluster.last_status(), "Published", ("False", "PodsWithoutRoom"));
    assert_eq!(cluster.get(CORE).unwrap(), before);
}

/// With nothing published, a pod without room has no flags in either case.
#[tokio::test]
async fn first_core_is_published_though_pods_have_no_room() {
    let cluster = Cluster::default();
    cluster.put(&flags(&sized(2_000)));
    cluster.run(vec![pod("web-1", Layout::default())]);
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
}

#[tokio::test]
async fn core_is_withheld_while_pods_cannot_be_listed() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    cluster.hide_pods(true);
    cluster.put(&flags(&sized(2_000)));
    let (action, calls) = operator.turn(reported(&cluster, 2)).await;
    assert!(writes(&calls).is_empty(), "{calls:?}");
    is(&cluster.last_status(), "Published", ("False", "ListPods"));
    is(&cluster.last_status(), "Ready", ("True", "LastGood"));
    assert!(wait(&action) <= Duration::from_secs(15), "{action:?}");
    cluster.hide_pods(false);
    pass(Duration::from_secs(16)).await;
    operator.turn(reported(&cluster, 2)).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
}

/// A pin goes back to a core that a pod without parts cannot read.
#[tokio::test]
async fn pinned_core_without_room_is_withheld() {
    let cluster = Cluster::default();
    cluster.put(&flags(&sized(2_000)));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let large = cluster.last_status()["revision"].clone();
    cluster.put(&flags(&document("a")));
    operator.turn(reported(&cluster, 2)).await;
    let small = cluster.last_status()["revision"].clone();
    assert_ne!(large, small);
    cluster.run(vec![pod("web-1", Layout::default())]);
    let pinned = |cluster: &Cluster, generation| {
        let mut object = fenv(generation, &json!({"pin": large}));
        object["status"] = cluster.last_status();
        object
    };
    operator.turn(pinned(&cluster, 3)).await;
    is(&cluster.last_status(), "Published", ("False", "PodsWithoutRoom"));
    assert_eq!(cluster.last_status()["revision"], small);
    let new = layout_now(&cluster);
    cluster.run(vec![pod("web-2", new)]);
    pass(Duration::from_secs(16)).await;
    operator.turn(pinned(&cluster, 3)).await;
    is(&cluster.last_status(), "Published", ("True", "Pinned"));
    assert_eq!(cluster.last_status()["revision"], large);
}

#[tokio::test]
async fn core_that_soon_outgrows_volumes_of_pods_is_a_finding() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    cluster.run(vec![pod("web-1", layout_now(&cluster))]);
    cluster.put(&flags(&sized(850)));
    operator.turn(reported(&cluster, 2)).await;
    let status = cluster.last_status();
    is(&status, "Published", ("True", "Published"));
    let bytes = status["coreBytes"].as_u64().unwrap();
    assert!((700_000..=1_000_000).contains(&bytes), "{bytes}");
    assert_eq!(
        (&status["findings"][0]["subject"], &status["findingCount"]),
        (&json!("volumes of running pods"), &json!(5))
    );
    let said = status["findings"][0]["message"].as_str().unwrap();
    assert!(said.contains("the volumes of 1 pod (web-1) have room for 1000000: restart the pods before it grows further; the webhook gives"), "{said}");

    // A pod that was admitted since then has room for twice the core.
    cluster.run(vec![pod("web-2", layout_now(&cluster))]);
    pass(Duration::from_secs(301)).await;
    operator.turn(reported(&cluster, 2)).await;
    assert_eq!(cluster.last_status()["findingCount"], 4, "only those about the values remain");
}
