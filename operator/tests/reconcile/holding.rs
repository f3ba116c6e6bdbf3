//! The guard holds back a probable mistake until it is confirmed, or until the source answers with another document.

use serde_json::{Value, json};

use super::{
    CORE, Operator,
    cluster::{Cluster, fenv},
    flags, is,
    upstream::Upstream,
    writes,
};

const EARLIER: &str = "2026-11-20T00:00:00.100000+00:00";
const LATER: &str = "2026-11-20T00:00:00.200000+00:00";

/// Returns an environment with this many features, whose values contain the time of the change.
fn document(features: usize, updated_at: &str) -> Value {
    let feature = |id: usize| {
        json!({
            "feature": {"id": id, "name": format!("feature-{id}"), "type": "STANDARD"}, "enabled": true, "django_id": id,
            "feature_state_value": updated_at, "multivariate_feature_state_values": [],
        })
    };
    let features: Vec<Value> = (1..=features).map(feature).collect();
    json!({"id": 1, "api_key": "client", "updated_at": updated_at, "project": {}, "feature_states": features})
}

/// Returns the object as the API server has it after the last status report.
fn object(cluster: &Cluster, generation: i64, spec: &Value, confirmed: Option<&str>) -> Value {
    let mut object = fenv(generation, spec);
    object["status"] = cluster.last_status();
    if let Some(revision) = confirmed {
        object["metadata"]["annotations"] = json!({"remora.dev/confirm": revision});
    }
    object
}

fn message(status: &Value, kind: &str) -> String {
    let conditions = status["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap()["message"].as_str().unwrap().to_owned()
}

fn held(cluster: &Cluster) -> String {
    cluster.last_status()["heldRevision"].as_str().expect("nothing is held back").to_owned()
}

#[tokio::test]
async fn guard_holds_back_shrunken_document_until_approval() {
    let (cluster, spec) = (Cluster::default(), json!({}));
    cluster.put(&flags(&document(12, EARLIER)));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &spec)).await;
    let before = cluster.get(CORE);

    cluster.put(&flags(&document(2, LATER)));
    let (_, calls) = operator.turn(object(&cluster, 2, &spec, None)).await;
    assert!(writes(&calls).is_empty() && calls.contains(&"event SuspiciousShrink".to_owned()), "{calls:?}");
    assert_eq!(cluster.get(CORE), before);
    let status = cluster.last_status();
    is(&status, "Ready", ("True", "LastGood"));
    is(&status, "Fetched", ("True", "Synced"));
    is(&status, "Published", ("False", "SuspiciousShrink"));
    let (said, revision) = (message(&status, "Published"), held(&cluster));
    assert!(said.contains("2 features where 12 are published"), "{said}");
    let command = format!("kubectl -n shop annotate fenv storefront --overwrite remora.dev/confirm={revision}");
    assert!(said.ends_with(&command), "{said}");
    assert!(
        operator
            .metrics
            .text()
            .unwrap()
            .contains("remora_environment_held{namespace=\"shop\",environment=\"storefront\"} 1")
    );

    // The confirmation of another revision does not apply.
    let (_, calls) = operator.turn(object(&cluster, 2, &spec, Some("0123456789ab"))).await;
    assert!(calls.is_empty(), "{calls:?}");
    // The confirmation of the held revision needs no source.
    let (_, calls) = operator.turn(object(&cluster, 2, &spec, Some(&revision))).await;
    assert!(!calls.contains(&"get flags".to_owned()) && calls.contains(&format!("patch {CORE}")), "{calls:?}");
    let status = cluster.last_status();
    is(&status, "Published", ("True", "Published"));
    assert_eq!(status["revision"], revision);
    assert_eq!(status["heldRevision"], Value::Null);
    assert!(
        operator
            .metrics
            .text()
            .unwrap()
            .contains("remora_environment_held{namespace=\"shop\",environment=\"storefront\"} 0")
    );
    // A repeated confirmation changes nothing.
    let (_, calls) = operator.turn(object(&cluster, 2, &spec, Some(&revision))).await;
    assert!(calls.is_empty(), "{calls:?}");
}

#[tokio::test]
async fn guard_compares_with_published_document_after_restart() {
    let (cluster, spec) = (Cluster::default(), json!({}));
    cluster.put(&flags(&document(12, EARLIER)));
    Operator::start(&cluster).turn(fenv(1, &spec)).await;
    let before = cluster.get(CORE);
    cluster.put(&flags(&document(2, LATER)));
    let mut restarted = Operator::start(&cluster);
    restarted.turn(object(&cluster, 2, &spec, None)).await;
    is(&cluster.last_status(), "Published", ("False", "SuspiciousShrink"));
    assert_eq!(cluster.get(CORE), before);
    // The operator restores the published objects unchanged.
    cluster.take(CORE);
    restarted.turn(object(&cluster, 2, &spec, None)).await;
    assert_eq!(cluster.get(CORE).unwrap()["binaryData"], before.as_ref().unwrap()["binaryData"]);
    assert_eq!(
        cluster.get(CORE).unwrap()["metadata"]["annotations"],
        before.as_ref().unwrap()["metadata"]["annotations"]
    );

    // An operator after another restart publishes the confirmed revision.
    let revision = held(&cluster);
    Operator::start(&cluster).turn(object(&cluster, 3, &spec, Some(&revision))).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert_eq!(cluster.last_status()["revision"], revision);
}

#[tokio::test]
async fn held_back_document_is_forgotten_when_source_recovers() {
    let (cluster, spec) = (Cluster::default(), json!({}));
    cluster.put(&flags(&document(12, EARLIER)));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &spec)).await;
    cluster.put(&flags(&document(0, LATER)));
    operator.turn(object(&cluster, 2, &spec, None)).await;
    held(&cluster);
    cluster.put(&flags(&document(13, LATER)));
    operator.turn(object(&cluster, 3, &spec, None)).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert_eq!(cluster.last_status()["features"], 13);
    assert_eq!(cluster.last_status()["heldRevision"], Value::Null);
}

#[tokio::test]
async fn guard_that_allows_any_loss_accepts_empty_document() {
    let (cluster, spec) = (Cluster::default(), json!({"guard": {"maxShrinkPercent": 100}}));
    cluster.put(&flags(&document(12, EARLIER)));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &spec)).await;
    cluster.put(&flags(&document(0, LATER)));
    operator.turn(object(&cluster, 2, &spec, None)).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert_eq!(cluster.last_status()["features"], 0);
}

#[tokio::test]
async fn guard_holds_back_document_of_another_environment() {
    let (cluster, spec) = (Cluster::default(), json!({"guard": {"maxShrinkPercent": 100}}));
    cluster.put(&flags(&document(3, EARLIER)));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &spec)).await;
    let mut other = document(3, LATER);
    other["api_key"] = json!("canary");
    cluster.put(&flags(&other));
    operator.turn(object(&cluster, 2, &spec, None)).await;
    let status = cluster.last_status();
    is(&status, "Published", ("False", "OtherEnvironment"));
    is(&status, "Ready", ("True", "LastGood"));
    assert!(!status.to_string().contains("canary"), "{status}");
    operator.turn(object(&cluster, 2, &spec, Some(&held(&cluster)))).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert!(!cluster.get(CORE).unwrap()["metadata"].to_string().contains("canary"));
}

#[tokio::test]
async fn guard_holds_back_older_document() {
    let (cluster, upstream) = (Cluster::default(), Upstream::start(&document(3, LATER)).await);
    let (spec, origins) = (upstream.spec(), [upstream.origin.clone()]);
    Operator::start_with(&cluster, &origins).turn(fenv(1, &spec)).await;
    let before = cluster.get(CORE);

    // The check also works in an operator that only has the first one's published objects.
    upstream.serve(&document(3, EARLIER));
    let mut operator = Operator::start_with(&cluster, &origins);
    operator.turn(object(&cluster, 2, &spec, None)).await;
    let status = cluster.last_status();
    is(&status, "Published", ("False", "OlderDocument"));
    is(&status, "Ready", ("True", "LastGood"));
    let said = message(&status, "Published");
    assert!(said.contains("2026-11-20T00:00:00.1Z") && said.contains("2026-11-20T00:00:00.2Z"), "{said}");
    assert_eq!(cluster.get(CORE), before);

    // The upstream's cache has caught up.
    let mut newer = document(3, "2026-11-20T00:00:01+00:00");
    upstream.serve(&newer);
    operator.turn(object(&cluster, 3, &spec, None)).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
    // A document with the same age as the published one is not older.
    newer["feature_states"][0]["enabled"] = json!(false);
    upstream.serve(&newer);
    operator.turn(object(&cluster, 4, &spec, None)).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
}

#[tokio::test]
async fn approved_older_document_is_published() {
    let (cluster, upstream) = (Cluster::default(), Upstream::start(&document(3, LATER)).await);
    let (spec, origins) = (upstream.spec(), [upstream.origin.clone()]);
    let mut operator = Operator::start_with(&cluster, &origins);
    operator.turn(fenv(1, &spec)).await;
    upstream.serve(&document(3, EARLIER));
    operator.turn(object(&cluster, 2, &spec, None)).await;
    let revision = held(&cluster);
    operator.turn(object(&cluster, 2, &spec, Some(&revision))).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert_eq!(cluster.last_status()["revision"], revision);
    // From here on, the guard compares with the confirmed document, also in a new operator.
    upstream.serve(&document(3, "2026-11-20T00:00:00.150000+00:00"));
    Operator::start_with(&cluster, &origins).turn(object(&cluster, 3, &spec, Some(&revision))).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert_ne!(cluster.last_status()["revision"], revision);
}

#[tokio::test]
async fn edited_source_needs_no_approval() {
    let (cluster, upstream) = (Cluster::default(), Upstream::start(&document(12, LATER)).await);
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&upstream.origin));
    operator.turn(fenv(1, &upstream.spec())).await;
    let mut other = document(1, EARLIER);
    other["api_key"] = json!("other");
    cluster.put(&flags(&other));
    operator.turn(object(&cluster, 2, &json!({}), None)).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert_eq!(cluster.last_status()["features"], 1);
}

/// A server whose clock is wrong, or a person who wants to stop all changes, states a time in the future once.
#[tokio::test]
async fn document_of_the_future_holds_back_no_later_one() {
    let (cluster, upstream) = (Cluster::default(), Upstream::start(&document(3, "9999-01-01T00:00:00Z")).await);
    let (spec, origins) = (upstream.spec(), [upstream.origin.clone()]);
    let mut operator = Operator::start_with(&cluster, &origins);
    operator.turn(fenv(1, &spec)).await;
    let before = cluster.get(CORE);
    let mut genuine = document(3, LATER);
    genuine["feature_states"][0]["feature_state_value"] = json!("changed");
    upstream.serve(&genuine);
    operator.turn(object(&cluster, 2, &spec, None)).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert_ne!(cluster.get(CORE), before);
}
