//! The publisher alone: snapshots of several objects.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};
use kube::{core::PartialObjectMeta, runtime::reflector::store::Writer};
use remora_operator::publish::{Error, File, Ledger, Owner, Past, Publisher, Snapshot};
use remora_snapshot::files;

use super::cluster::{Cluster, watch};

struct Desk {
    cluster: Cluster,
    publisher: Publisher,
    writer: Writer<PartialObjectMeta<ConfigMap>>,
    ledger: Ledger,
}

impl Desk {
    fn new(grace: Duration) -> Self {
        let cluster = Cluster::default();
        let (objects, writer) = watch();
        let publisher = Publisher::new(cluster.client(), objects, grace);
        Self { cluster, publisher, writer, ledger: Ledger::default() }
    }

    async fn publish(&mut self, snapshot: &Snapshot) -> (Result<usize, Error>, Vec<String>) {
        self.cluster.observe(&mut self.writer);
        self.cluster.calls();
        let published = self.publisher.publish(&owner(), snapshot, None, &mut self.ledger).await;
        (published.map(|published| published.written), self.cluster.calls())
    }
}

fn owner() -> Owner {
    Owner {
        namespace: "shop".to_owned(),
        environment: "a".parse().unwrap(),
        reference: OwnerReference {
            api_version: "remora.dev/v1alpha1".to_owned(),
            kind: "FeatureEnvironment".to_owned(),
            name: "a".to_owned(),
            uid: "uid-1".to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        },
    }
}

fn snapshot(revision: &str, files: &[(&str, &str)]) -> Snapshot {
    let files = files.iter().map(|(name, bytes)| File::new((*name).to_owned(), bytes.as_bytes().to_vec()));
    Snapshot::new(revision.to_owned(), files.collect())
}

#[tokio::test]
async fn shards_are_written_before_the_core() {
    let mut desk = Desk::new(Duration::MAX);
    let (written, calls) =
        desk.publish(&snapshot("1", &[("core", "c"), ("overrides-01", "y"), ("overrides-00", "x")])).await;
    assert_eq!(written.unwrap(), 3);
    let patches: Vec<&str> = calls.iter().filter_map(|call| call.strip_prefix("patch ")).collect();
    assert_eq!(patches, ["remora-a-v1-overrides-00", "remora-a-v1-overrides-01", "remora-a-v1-core"]);
}

#[tokio::test]
async fn only_what_changed_is_written() {
    let mut desk = Desk::new(Duration::MAX);
    desk.publish(&snapshot("1", &[("core", "c"), ("overrides-00", "x"), ("overrides-01", "y")])).await.0.unwrap();
    let (written, calls) =
        desk.publish(&snapshot("2", &[("core", "d"), ("overrides-00", "x"), ("overrides-01", "z")])).await;
    assert_eq!(written.unwrap(), 2);
    assert_eq!(calls, ["patch remora-a-v1-overrides-01", "patch remora-a-v1-core"]);
    // Also by somebody who remembers nothing.
    desk.ledger = Ledger::default();
    let (written, calls) =
        desk.publish(&snapshot("2", &[("core", "d"), ("overrides-00", "x"), ("overrides-01", "z")])).await;
    assert_eq!((written.unwrap(), calls), (0, Vec::new()));
}

#[tokio::test]
async fn a_core_never_tells_of_a_shard_that_is_not_there() {
    let mut desk = Desk::new(Duration::MAX);
    desk.cluster.refuse("remora-a-v1-overrides-01", 500, "no");
    let new = snapshot("1", &[("core", "c"), ("overrides-00", "x"), ("overrides-01", "y")]);
    let (written, _) = desk.publish(&new).await;
    assert!(matches!(written, Err(Error::WriteFailed { .. })));
    assert_eq!(desk.cluster.names(), ["remora-a-v1-overrides-00"]);
    desk.cluster.relent();
    let (written, _) = desk.publish(&new).await;
    assert_eq!(written.unwrap(), 2);
}

#[tokio::test]
async fn a_conflict_is_found_before_anything_is_written() {
    let mut desk = Desk::new(Duration::MAX);
    desk.cluster.put_foreign("remora-a-v1-core");
    let (written, calls) = desk.publish(&snapshot("1", &[("core", "c"), ("overrides-00", "x")])).await;
    assert!(matches!(written, Err(Error::Conflict(name)) if name == "remora-a-v1-core"));
    assert!(calls.iter().all(|call| call.starts_with("get ")), "{calls:?}");
}

#[tokio::test]
async fn what_is_too_large_is_not_tried() {
    let mut desk = Desk::new(Duration::MAX);
    let (written, calls) = desk.publish(&snapshot("1", &[("core", &"c".repeat(files::MAX_FILE_BYTES + 1))])).await;
    assert!(matches!(written, Err(Error::CapacityExceeded { .. })));
    assert!(calls.is_empty());
}

#[tokio::test]
async fn surplus_stays_for_a_while() {
    let mut desk = Desk::new(Duration::from_secs(600));
    desk.publish(&snapshot("1", &[("core", "c"), ("overrides-00", "x")])).await.0.unwrap();
    let (_, calls) = desk.publish(&snapshot("2", &[("core", "d")])).await;
    assert_eq!(calls, ["patch remora-a-v1-core"]);
    let (_, calls) = desk.publish(&snapshot("2", &[("core", "d")])).await;
    assert!(calls.is_empty(), "{calls:?}");
}

#[tokio::test]
async fn surplus_goes_when_its_time_is_up() {
    let mut desk = Desk::new(Duration::ZERO);
    desk.publish(&snapshot("1", &[("core", "c"), ("overrides-00", "x")])).await.0.unwrap();
    let (_, calls) = desk.publish(&snapshot("2", &[("core", "d")])).await;
    assert_eq!(calls, ["patch remora-a-v1-core", "delete remora-a-v1-overrides-00"]);
    assert_eq!(desk.cluster.names(), ["remora-a-v1-core"]);
}

#[tokio::test]
async fn what_is_published_can_be_recovered_whole_or_not_at_all() {
    let mut desk = Desk::new(Duration::MAX);
    let published = snapshot("1", &[("core", "c"), ("overrides-00", "x")]);
    desk.publish(&published).await.0.unwrap();
    desk.cluster.observe(&mut desk.writer);
    assert_eq!(desk.publisher.recover(&owner()).await.unwrap(), Some((published, None)));
    let mut altered = desk.cluster.get("remora-a-v1-overrides-00").unwrap();
    altered["binaryData"]["overrides-00"] = serde_json::json!("AAAA");
    desk.cluster.put(&altered);
    assert_eq!(desk.publisher.recover(&owner()).await.unwrap(), None);
}

#[tokio::test]
async fn earlier_revisions_share_what_did_not_change() {
    let mut desk = Desk::new(Duration::MAX);
    let (first, second) = (
        snapshot("1", &[("core", "c"), ("overrides-00", "x")]),
        snapshot("2", &[("core", "d"), ("overrides-00", "x")]),
    );
    for snapshot in [&first, &second] {
        desk.cluster.observe(&mut desk.writer);
        desk.publisher.archive(&owner(), snapshot, &desk.ledger).await.unwrap();
    }
    let names = desk.cluster.names();
    assert_eq!(names.len(), 3, "{names:?}");
    let past = |snapshot: &Snapshot| Past::of(snapshot, Time(Timestamp::UNIX_EPOCH));
    assert_eq!(desk.publisher.restore(&owner(), &past(&first)).await.unwrap().as_ref(), Some(&first));
    assert_eq!(desk.publisher.restore(&owner(), &past(&second)).await.unwrap().as_ref(), Some(&second));

    // What one of them still needs stays.
    desk.cluster.observe(&mut desk.writer);
    desk.publisher.forget(&owner(), &[past(&first)], &[past(&second)]).await.unwrap();
    assert_eq!(desk.cluster.names().len(), 2);
    assert_eq!(desk.publisher.restore(&owner(), &past(&second)).await.unwrap().as_ref(), Some(&second));
    assert_eq!(desk.publisher.restore(&owner(), &past(&first)).await.unwrap(), None);
}

#[tokio::test]
async fn copies_are_no_part_of_what_is_published() {
    let mut desk = Desk::new(Duration::ZERO);
    let first = snapshot("1", &[("core", "c")]);
    desk.publish(&first).await.0.unwrap();
    desk.publisher.archive(&owner(), &first, &desk.ledger).await.unwrap();
    desk.cluster.observe(&mut desk.writer);
    assert_eq!(desk.publisher.recover(&owner()).await.unwrap(), Some((first.clone(), None)));
    // A copy that no record tells of is surplus.
    let (_, calls) = desk.publish(&first).await;
    assert_eq!(calls, ["delete remora-a-v1-history-1-core"]);
}
