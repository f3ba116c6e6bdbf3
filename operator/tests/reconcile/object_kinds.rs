//! Snapshots in Secrets, and the change from one object kind to the other.

use std::time::Duration;

use kube::runtime::controller::Action;
use remora_operator::{api::names::FORMAT, injection::Layout};
use serde_json::{Value, json};

use super::{CORE, Cluster, Operator, asks_source, delivery, document, fenv, flags, is, pass, settle, wait, writes};
use remora_operator::api::ObjectKind;

const SECRET: &str = "secret/remora-storefront-v3-core";

pub(super) fn secret() -> Value {
    json!({"delivery": {"as": "Secret"}})
}

/// Returns the object as the API server has it after the last status report.
pub(super) fn reported(cluster: &Cluster, generation: i64, spec: &Value) -> Value {
    let mut object = fenv(generation, spec);
    object["status"] = cluster.last_status();
    object
}

/// Returns a pod that was admitted while the environment used this object kind.
pub(super) fn pod(object_kind: ObjectKind) -> Value {
    let volume = Layout { object_kind, ..Layout::default() }.volume(&"storefront".parse().unwrap());
    json!({
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "p", "annotations": {"remora.dev/inject": "storefront"}},
        "spec": {"containers": [], "volumes": [volume]},
    })
}

/// The record of a core may name thousands of copies, and its Secret may refuse every write, as an immutable one does.
#[tokio::test]
async fn refused_write_reads_only_secrets_of_the_published_revision_again() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    let spec = json!({"delivery": {"as": "Secret"}, "refresh": {"interval": "1s"}});
    operator.turn(fenv(1, &spec)).await;
    cluster.refuse(SECRET, 422, "field is immutable when `immutable` is set");
    let mut attempts = 0;
    for number in 0..4 {
        cluster.put(&flags(&document(&format!("b{number}"))));
        let (_, calls) = operator.turn(reported(&cluster, 1, &spec)).await;
        attempts += writes(&calls).iter().filter(|call| call.contains(SECRET)).count();
        let read: Vec<&String> = calls.iter().filter(|call| call.starts_with("get secret/")).collect();
        // The core, and the copy that the publication writes first.
        assert!(read.len() <= 2, "{read:?}");
        pass(Duration::from_secs(12)).await;
    }
    assert!(attempts >= 3, "{attempts} attempts");
}

#[tokio::test]
async fn snapshot_in_secret_writes_no_config_map() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    let (_, calls) = operator.turn(fenv(1, &secret())).await;
    let series = |format: String| {
        ["core", "overrides-00", "document-00", "core-a-00"]
            .map(|file| format!("get secret/remora-storefront-{format}-{file}"))
    };
    // One number may be missing in the series of this format.
    let with_next =
        |name: String| if name.ends_with("-00") { vec![name.clone(), name.replace("-00", "-01")] } else { vec![name] };
    let mut expected: Vec<String> = series(FORMAT.to_string()).into_iter().flat_map(with_next).collect();
    expected.extend(FORMAT.earlier().flat_map(|format| series(format.to_string())));
    expected.push(format!("get {SECRET}"));
    let read: Vec<&String> = calls.iter().filter(|call| call.starts_with("get secret/")).collect();
    assert_eq!(read, expected.iter().collect::<Vec<_>>(), "each Secret is read by its name");
    assert_eq!(writes(&calls), [&format!("patch {SECRET}")]);
    let written = cluster.get(SECRET).unwrap();
    assert_eq!((&written["type"], &written["kind"]), (&json!("remora.dev/snapshot"), &json!("Secret")));
    assert_eq!(written["metadata"]["labels"]["app.kubernetes.io/managed-by"], "remora");
    assert_eq!(written["metadata"]["ownerReferences"][0]["uid"], "uid-1");
    assert!(cluster.get(CORE).is_none());
    let status = cluster.last_status();
    is(&status, "Ready", ("True", "Published"));
    assert_eq!(delivery(&cluster), json!({"as": "Secret", "overridesFiles": 0}));
    assert_eq!(status["conditions"][2]["message"], "published in one Secret");

    let (_, calls) = operator.turn(reported(&cluster, 1, &secret())).await;
    assert!(calls.is_empty(), "{calls:?}");
}

/// Without the right, each attempt would be refused, and the reason would name the API server.
#[tokio::test]
async fn secret_delivery_that_chart_excludes_is_not_accepted() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start_without_secrets(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let before = cluster.get(CORE);
    assert!(before.is_some(), "ConfigMaps are published");

    let (action, calls) = operator.turn(reported(&cluster, 2, &secret())).await;
    assert!(writes(&calls).is_empty() && !calls.iter().any(|call| call.contains("secret/")), "{calls:?}");
    let status = cluster.last_status();
    is(&status, "Accepted", ("False", "DeliveryNotAllowed"));
    let message = status["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("delivery.secrets") && message.contains("spec.delivery.as to ConfigMap"), "{message}");
    assert!(!format!("{action:?}").contains("ms"), "no attempt follows at once: {action:?}");
    assert_eq!(cluster.get(CORE), before, "pods stay served");

    operator.turn(reported(&cluster, 3, &json!({}))).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
}

#[tokio::test]
async fn published_secret_is_found_after_restart_and_left() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    Operator::start(&cluster).turn(fenv(1, &secret())).await;
    let (before, object) = (cluster.get(SECRET), reported(&cluster, 1, &secret()));
    let (_, calls) = Operator::start(&cluster).turn(object.clone()).await;
    assert!(calls.iter().all(|call| call.starts_with("get secret/")), "{calls:?}");
    assert_eq!(cluster.get(SECRET), before);

    // The reconciliation does not need the source either.
    cluster.take("flags");
    let mut edited = object;
    edited["metadata"]["generation"] = json!(2);
    let mut restarted = Operator::start(&cluster);
    restarted.turn(edited.clone()).await;
    is(&cluster.last_status(), "Ready", ("True", "LastGood"));
    assert_eq!(cluster.get(SECRET), before);
}

/// Secrets are polled, because they are not watched.
#[tokio::test]
async fn deleted_secret_is_restored_within_a_minute_whatever_the_interval_is() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    let daily = json!({"delivery": {"as": "Secret"}, "refresh": {"interval": "24h"}});
    operator.turn(fenv(1, &daily)).await;
    let (action, _) = operator.turn(reported(&cluster, 1, &daily)).await;
    assert!(wait(&action) <= Duration::from_secs(66), "{action:?}");
    cluster.take(SECRET);
    pass(wait(&action)).await;
    let (_, calls) = operator.turn(reported(&cluster, 1, &daily)).await;
    assert!(!asks_source(&calls), "{calls:?}");
    assert!(cluster.get(SECRET).is_some(), "{calls:?}");
    let suspended = json!({"delivery": {"as": "Secret"}, "refresh": {"interval": "24h"}, "suspend": true});
    operator.turn(reported(&cluster, 2, &suspended)).await;
    let (action, _) = operator.turn(reported(&cluster, 2, &suspended)).await;
    assert_eq!(action, Action::await_change());
}

#[tokio::test]
async fn reconciliation_of_published_config_maps_without_due_fetch_makes_no_call() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    let daily = json!({"refresh": {"interval": "24h"}});
    operator.turn(fenv(1, &daily)).await;
    for round in 0..8 {
        let (action, calls) = operator.turn(reported(&cluster, 1, &daily)).await;
        // The first rounds of questions to pods find that there are none, which is reported.
        assert!(calls.is_empty() || round < 3 && calls == ["report"], "{round}: {calls:?}");
        pass(wait(&action)).await;
        settle().await;
    }
}

#[tokio::test]
async fn secret_of_another_owner_is_not_touched() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    cluster.put_foreign(SECRET);
    let before = cluster.get(SECRET);
    let mut operator = Operator::start(&cluster);
    let (_, calls) = operator.turn(fenv(1, &secret())).await;
    assert!(!calls.iter().any(|call| call.starts_with("patch")), "{calls:?}");
    is(&cluster.last_status(), "Published", ("False", "Conflict"));
    assert!(cluster.last_status()["conditions"][2]["message"].as_str().unwrap().starts_with("Secret remora-"));
    assert_eq!(cluster.get(SECRET), before);
}

/// Both kinds hold the current flags, including a change, while a pod mounts the previous kind. Then the previous kind
/// is deleted.
#[tokio::test]
async fn previous_kind_is_updated_until_no_pod_mounts_it() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start_patient(&cluster, &[], Duration::ZERO);
    operator.turn(fenv(1, &json!({}))).await;
    cluster.run(vec![pod(ObjectKind::ConfigMap)]);

    operator.turn(reported(&cluster, 2, &secret())).await;
    let content = |name: &str| {
        let object = cluster.get(name)?;
        Some(object["binaryData"]["core"].as_str().or(object["data"]["core"].as_str())?.to_owned())
    };
    assert!(content(SECRET).is_some() && content(SECRET) == content(CORE));
    let both = json!({"as": "Secret", "overridesFiles": 0, "formerly": "ConfigMap"});
    assert_eq!(delivery(&cluster), both);
    assert_eq!(
        cluster.last_status()["conditions"][2]["message"],
        "published in one Secret, and in ConfigMaps while pods mount those"
    );

    cluster.put(&flags(&document("b")));
    let edited = json!({"delivery": {"as": "Secret"}, "revisionHistoryLimit": 4});
    let before = content(CORE);
    operator.turn(reported(&cluster, 3, &edited)).await;
    assert_ne!(content(CORE), before);
    assert_eq!(content(SECRET), content(CORE));

    // After a restart during the change, the operator knows both kinds without its source.
    let flags = cluster.take("flags").unwrap();
    let mut restarted = Operator::start_patient(&cluster, &[], Duration::ZERO);
    restarted.turn(reported(&cluster, 4, &edited)).await;
    is(&cluster.last_status(), "Ready", ("True", "LastGood"));
    assert_eq!(delivery(&cluster), both);
    cluster.put(&flags);

    cluster.run(vec![pod(ObjectKind::Secret)]);
    restarted.turn(reported(&cluster, 5, &edited)).await;
    assert!(content(CORE).is_none() && content(SECRET).is_some());
    assert!(cluster.names().iter().all(|name| name == "flags" || name.starts_with("secret/")), "{:?}", cluster.names());
    assert_eq!(delivery(&cluster), json!({"as": "Secret", "overridesFiles": 0}));
}

/// An operator without permission to write Secrets continues with the existing objects.
#[tokio::test]
async fn refused_kind_leaves_previous_kind_published() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start_patient(&cluster, &[], Duration::ZERO);
    operator.turn(fenv(1, &json!({}))).await;
    let before = cluster.get(CORE);
    cluster.refuse(SECRET, 403, "secrets is forbidden");
    operator.turn(reported(&cluster, 2, &secret())).await;
    let status = cluster.last_status();
    is(&status, "Published", ("False", "WriteFailed"));
    is(&status, "Ready", ("True", "LastGood"));
    assert_eq!(cluster.get(CORE), before);
    assert_eq!(status["delivery"]["as"], "ConfigMap", "new pods mount what there is");

    operator.turn(reported(&cluster, 3, &json!({}))).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert_eq!(cluster.last_status()["unfinished"], Value::Null, "there is no Secret");
}

/// The status is written before the first Secret, and neither a request nor a due fetch shortens the pause after it failed.
#[tokio::test]
async fn refused_status_before_first_secret_is_retried_with_back_off() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let mut object = reported(&cluster, 2, &secret());
    object["metadata"]["annotations"] = json!({"remora.dev/refresh": "1"});
    cluster.refuse_writes(Some((500, json!({"status": "Failure", "message": "no", "code": 500}))));
    let (mut reports, mut waited) = (0, Duration::ZERO);
    while waited < Duration::from_secs(120) {
        let (action, calls) = operator.turn(object.clone()).await;
        reports += calls.iter().filter(|call| *call == "report").count();
        pass(wait(&action)).await;
        waited += wait(&action);
    }
    assert!((4..=60).contains(&reports), "{reports} writes of the status in {waited:?}");
    cluster.refuse_writes(None);
    pass(Duration::from_secs(330)).await;
    let (_, calls) = operator.turn(object).await;
    assert!(cluster.get(SECRET).is_some(), "{calls:?}");
}

/// The next process finds Secrets by their names only if the status says that there may be some.
#[tokio::test]
async fn secret_of_publication_that_was_cut_off_is_deleted_after_change_back() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let (_, calls) = operator.turn(reported(&cluster, 2, &secret())).await;
    let place = |wanted: &str| calls.iter().position(|call| call == wanted);
    let written = place(&format!("patch {SECRET}"));
    assert!(written.is_some() && place("report") < written, "{calls:?}");
    assert_eq!(cluster.last_status()["unfinished"], Value::Null, "the publication is complete");
    let cut_off = cluster.first_status(|status| status["unfinished"] == "Secret");

    let mut object = fenv(3, &json!({}));
    object["status"] = cut_off.unwrap();
    Operator::start_patient(&cluster, &[], Duration::ZERO).turn(object).await;
    assert!(cluster.get(CORE).is_some() && cluster.get(SECRET).is_none(), "{:?}", cluster.names());
    assert_eq!(cluster.last_status()["unfinished"], Value::Null, "the Secret is deleted");
}

/// While nothing is published, new pods mount objects of the kind in the spec.
#[tokio::test]
async fn secret_of_first_publication_that_was_cut_off_is_updated_while_pod_mounts_it() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    Operator::start(&cluster).turn(fenv(1, &secret())).await;
    let cut_off = cluster.first_status(|status| status["unfinished"] == "Secret");
    cluster.run(vec![pod(ObjectKind::Secret)]);

    let mut object = fenv(2, &json!({}));
    object["status"] = cut_off.unwrap();
    let mut operator = Operator::start_patient(&cluster, &[], Duration::ZERO);
    operator.turn(object).await;
    let both = json!({"as": "ConfigMap", "overridesFiles": 0, "formerly": "Secret"});
    assert_eq!(delivery(&cluster), both);
    cluster.put(&flags(&document("b")));
    operator.turn(reported(&cluster, 3, &json!({"revisionHistoryLimit": 4}))).await;
    let content = |name: &str, data: &str| cluster.get(name).unwrap()[data]["core"].clone();
    assert_eq!(content(SECRET, "data"), content(CORE, "binaryData"));

    cluster.run(Vec::new());
    operator.turn(reported(&cluster, 4, &json!({}))).await;
    assert!(cluster.get(SECRET).is_none(), "{:?}", cluster.names());
    operator.turn(reported(&cluster, 5, &json!({}))).await;
    assert_eq!(delivery(&cluster), json!({"as": "ConfigMap", "overridesFiles": 0}));
    assert_eq!(cluster.last_status()["unfinished"], Value::Null);
}

#[tokio::test]
async fn change_back_to_config_map_deletes_secret() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start_patient(&cluster, &[], Duration::ZERO);
    operator.turn(fenv(1, &secret())).await;
    operator.turn(reported(&cluster, 2, &json!({}))).await;
    assert!(cluster.get(CORE).is_some() && cluster.get(SECRET).is_none(), "{:?}", cluster.names());
    assert_eq!(delivery(&cluster), json!({"as": "ConfigMap", "overridesFiles": 0}));
}
