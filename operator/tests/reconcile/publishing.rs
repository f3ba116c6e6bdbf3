//! The publisher alone: snapshots with several objects.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use remora_operator::api::{ObjectKind, Revision};
use remora_operator::memory::Memory;
use remora_operator::publish::{
    ArchivedRevision, Destination, Error, File, ObjectsFeed, Owner, Permits, Publisher, Snapshot, WriteCache,
};
use remora_snapshot::files;

use super::cluster::{Cluster, watch};

pub(super) struct Desk {
    pub(super) cluster: Cluster,
    pub(super) publisher: Publisher,
    pub(super) writer: ObjectsFeed,
    pub(super) cache: WriteCache,
}

impl Desk {
    pub(super) fn new(grace: Duration) -> Self {
        Self::of(Cluster::default(), grace)
    }

    /// Returns a process with the objects of this cluster, which it does not know yet.
    pub(super) fn of(cluster: Cluster, grace: Duration) -> Self {
        Self::within(cluster, grace, &Memory::new(usize::MAX))
    }

    /// Returns a process that reads snapshots back into this memory.
    pub(super) fn within(cluster: Cluster, grace: Duration, memory: &Arc<Memory>) -> Self {
        let (objects, writer) = watch();
        let publisher = Publisher::new(cluster.client(), objects, grace, Permits::default(), Arc::clone(memory));
        Self { cluster, publisher, writer, cache: WriteCache::default() }
    }

    pub(super) async fn publish(&mut self, snapshot: &Snapshot) -> (Result<usize, Error>, Vec<String>) {
        self.cluster.observe(&mut self.writer);
        self.cluster.calls();
        let published = self.publisher.publish(&destination(), snapshot, None, &mut self.cache).await;
        (published.map(|published| published.written), self.cluster.calls())
    }
}

pub(super) fn destination() -> Destination {
    let owner = Owner {
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
    };
    Destination { owner, object_kind: ObjectKind::ConfigMap, may_have_other_kind: false, has_unfinished: false }
}

pub(super) fn snapshot(revision: &str, files: &[(&str, &str)]) -> Snapshot {
    let files = files.iter().map(|(name, bytes)| File::new((*name).to_owned(), bytes.as_bytes().to_vec()));
    Snapshot::new(Revision::new(revision), files.collect())
}

#[tokio::test]
async fn publisher_writes_shards_before_core() {
    let mut desk = Desk::new(Duration::MAX);
    let (written, calls) =
        desk.publish(&snapshot("1", &[("core", "c"), ("overrides-01", "y"), ("overrides-00", "x")])).await;
    assert_eq!(written.unwrap(), 3);
    let patches: Vec<&str> = calls.iter().filter_map(|call| call.strip_prefix("patch ")).collect();
    assert_eq!(patches, ["remora-a-v3-overrides-00", "remora-a-v3-overrides-01", "remora-a-v3-core"]);
}

#[tokio::test]
async fn publisher_writes_only_changed_objects() {
    let mut desk = Desk::new(Duration::MAX);
    desk.publish(&snapshot("1", &[("core", "c"), ("overrides-00", "x"), ("overrides-01", "y")])).await.0.unwrap();
    let (written, calls) =
        desk.publish(&snapshot("2", &[("core", "d"), ("overrides-00", "x"), ("overrides-01", "z")])).await;
    assert_eq!(written.unwrap(), 2);
    assert_eq!(calls, ["patch remora-a-v3-overrides-01", "patch remora-a-v3-core"]);
    // The result is the same for a publisher without its write cache.
    desk.cache = WriteCache::default();
    let (written, calls) =
        desk.publish(&snapshot("2", &[("core", "d"), ("overrides-00", "x"), ("overrides-01", "z")])).await;
    assert_eq!((written.unwrap(), calls), (0, Vec::new()));
}

#[tokio::test]
async fn core_is_not_written_if_shard_is_refused() {
    let mut desk = Desk::new(Duration::MAX);
    desk.cluster.refuse("remora-a-v3-overrides-01", 500, "no");
    let new = snapshot("1", &[("core", "c"), ("overrides-00", "x"), ("overrides-01", "y")]);
    let (written, _) = desk.publish(&new).await;
    assert!(matches!(written, Err(Error::WriteFailed { .. })));
    assert_eq!(desk.cluster.names(), ["remora-a-v3-overrides-00"]);
    desk.cluster.relent();
    let (written, _) = desk.publish(&new).await;
    assert_eq!(written.unwrap(), 2);
}

#[tokio::test]
async fn conflict_is_found_before_any_write() {
    let mut desk = Desk::new(Duration::MAX);
    desk.cluster.put_foreign("remora-a-v3-core");
    let (written, calls) = desk.publish(&snapshot("1", &[("core", "c"), ("overrides-00", "x")])).await;
    assert!(matches!(written, Err(Error::Conflict(name)) if name == "ConfigMap remora-a-v3-core"));
    assert!(calls.iter().all(|call| call.starts_with("get ")), "{calls:?}");
}

#[tokio::test]
async fn oversized_file_is_refused_without_call() {
    let mut desk = Desk::new(Duration::MAX);
    let (written, calls) =
        desk.publish(&snapshot("1", &[("overrides-00", &"c".repeat(files::MAX_FILE_BYTES + 1))])).await;
    assert!(matches!(written, Err(Error::CapacityExceeded { .. })));
    assert!(calls.is_empty());
}

#[tokio::test]
async fn surplus_object_stays_within_grace_period() {
    let mut desk = Desk::new(Duration::from_secs(600));
    desk.publish(&snapshot("1", &[("core", "c"), ("overrides-00", "x")])).await.0.unwrap();
    let (_, calls) = desk.publish(&snapshot("2", &[("core", "d")])).await;
    assert_eq!(calls, ["patch remora-a-v3-core"]);
    let (_, calls) = desk.publish(&snapshot("2", &[("core", "d")])).await;
    assert!(calls.is_empty(), "{calls:?}");
}

#[tokio::test]
async fn surplus_object_is_deleted_after_grace_period() {
    let mut desk = Desk::new(Duration::ZERO);
    desk.publish(&snapshot("1", &[("core", "c"), ("overrides-00", "x")])).await.0.unwrap();
    let (_, calls) = desk.publish(&snapshot("2", &[("core", "d")])).await;
    assert_eq!(calls, ["patch remora-a-v3-core", "delete remora-a-v3-overrides-00"]);
    assert_eq!(desk.cluster.names(), ["remora-a-v3-core"]);
}

#[tokio::test]
async fn refused_deletion_of_surplus_object_does_not_fail_publication() {
    let mut desk = Desk::new(Duration::ZERO);
    desk.publish(&snapshot("1", &[("core", "c"), ("overrides-00", "x")])).await.0.unwrap();
    desk.cluster.refuse("remora-a-v3-overrides-00", 403, "no");
    let (written, calls) = desk.publish(&snapshot("2", &[("core", "d")])).await;
    assert_eq!(written.unwrap(), 1);
    assert_eq!(calls, ["patch remora-a-v3-core", "delete remora-a-v3-overrides-00"]);
    desk.cluster.relent();
    let (written, calls) = desk.publish(&snapshot("2", &[("core", "d")])).await;
    assert_eq!((written.unwrap(), calls), (0, vec!["delete remora-a-v3-overrides-00".to_owned()]));
}

#[tokio::test]
async fn published_snapshot_is_recovered_whole_or_not_at_all() {
    let mut desk = Desk::new(Duration::MAX);
    let published = snapshot("1", &[("core", "c"), ("overrides-00", "x")]);
    desk.publish(&published).await.0.unwrap();
    desk.cluster.observe(&mut desk.writer);
    assert_eq!(desk.publisher.read_published(&destination()).await.unwrap(), Some((published, None)));
    let mut altered = desk.cluster.get("remora-a-v3-overrides-00").unwrap();
    altered["binaryData"]["overrides-00"] = serde_json::json!("AAAA");
    desk.cluster.put(&altered);
    assert_eq!(desk.publisher.read_published(&destination()).await.unwrap(), None);
}

#[tokio::test]
async fn archived_revisions_share_unchanged_files() {
    let mut desk = Desk::new(Duration::MAX);
    let (first, second) = (
        snapshot("1", &[("core", "c"), ("overrides-00", "x")]),
        snapshot("2", &[("core", "d"), ("overrides-00", "x")]),
    );
    for snapshot in [&first, &second] {
        desk.cluster.observe(&mut desk.writer);
        desk.publisher.archive(&destination(), snapshot, &mut desk.cache).await.unwrap();
    }
    let names = desk.cluster.names();
    assert_eq!(names.len(), 3, "{names:?}");
    let past = |snapshot: &Snapshot| ArchivedRevision::of(snapshot, Time(Timestamp::UNIX_EPOCH), None);
    assert_eq!(desk.publisher.read_archived(&destination(), &past(&first)).await.unwrap().as_ref(), Some(&first));
    assert_eq!(desk.publisher.read_archived(&destination(), &past(&second)).await.unwrap().as_ref(), Some(&second));

    // Objects that another revision still needs stay.
    desk.cluster.observe(&mut desk.writer);
    desk.publisher.delete_copies(&destination(), &[past(&first)], &[past(&second)], &mut desk.cache).await.unwrap();
    assert_eq!(desk.cluster.names().len(), 2);
    assert_eq!(desk.publisher.read_archived(&destination(), &past(&second)).await.unwrap().as_ref(), Some(&second));
    assert_eq!(desk.publisher.read_archived(&destination(), &past(&first)).await.unwrap(), None);
}

#[tokio::test]
async fn archived_copies_are_not_recovered_as_published() {
    let mut desk = Desk::new(Duration::ZERO);
    let first = snapshot("1", &[("core", "c")]);
    desk.publish(&first).await.0.unwrap();
    desk.publisher.archive(&destination(), &first, &mut desk.cache).await.unwrap();
    desk.cluster.observe(&mut desk.writer);
    assert_eq!(desk.publisher.read_published(&destination()).await.unwrap(), Some((first.clone(), None)));
    // A copy without a record is surplus.
    let (_, calls) = desk.publish(&first).await;
    assert_eq!(calls, ["delete remora-a-v3-history-1-core"]);
}

#[tokio::test]
async fn secrets_are_found_by_their_numbers_after_restart() {
    let mut desk = Desk::new(Duration::ZERO);
    let secrets = Destination { object_kind: ObjectKind::Secret, ..destination() };
    let many: Vec<String> = (0..16).map(files::overrides).collect();
    let mut all: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "x")).collect();
    all.push(("core", "c"));
    let first = snapshot("1", &all);
    desk.publisher.refresh_secrets(&secrets, &mut desk.cache).await.unwrap();
    desk.publisher.publish(&secrets, &first, None, &mut desk.cache).await.unwrap();
    assert_eq!(desk.cluster.names().len(), 17);

    // Another process, for which two overrides objects are enough.
    let mut other = Desk::of(desk.cluster.clone(), Duration::ZERO);
    other.publisher.refresh_secrets(&secrets, &mut other.cache).await.unwrap();
    assert_eq!(other.publisher.read_published(&secrets).await.unwrap(), Some((first, None)));
    let second = snapshot("2", &[("core", "d"), ("overrides-00", "x"), ("overrides-01", "y")]);
    other.cluster.calls();
    other.publisher.publish(&secrets, &second, None, &mut other.cache).await.unwrap();
    let deleted: Vec<String> = other.cluster.calls().into_iter().filter(|call| call.starts_with("delete")).collect();
    assert_eq!(deleted.len(), 14);
    assert_eq!(deleted[0], "delete secret/remora-a-v3-overrides-15", "the highest first, so that numbers have no gap");
    assert_eq!(other.cluster.names().len(), 3);
}

/// The publisher is killed after any write: its successor reaches the same end state, and no core ever names a missing
/// object.
#[tokio::test]
async fn publication_killed_at_any_write_is_completed_by_next_process() {
    let names: Vec<String> = (0..4).map(files::overrides).collect();
    let first: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).chain([("core", "1")]).collect();
    let second: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "y")).chain([("core", "2")]).collect();
    for object_kind in [ObjectKind::ConfigMap, ObjectKind::Secret] {
        let destination = Destination { object_kind, ..destination() };
        for survives in 0..=second.len() {
            let mut desk = Desk::new(Duration::MAX);
            desk.publisher.refresh_secrets(&destination, &mut desk.cache).await.unwrap();
            desk.publisher.publish(&destination, &snapshot("1", &first), None, &mut desk.cache).await.unwrap();
            desk.cluster.observe(&mut desk.writer);
            desk.cluster.die_after(survives);
            let killed = desk.publisher.publish(&destination, &snapshot("2", &second), None, &mut desk.cache).await;
            assert_eq!(killed.is_ok(), survives == second.len(), "{survives}");
            let prefix = if object_kind == ObjectKind::Secret { "secret/" } else { "" };
            let tells = |cluster: &Cluster, file: &str| {
                let object = cluster.get(&format!("{prefix}remora-a-v3-{file}")).unwrap();
                object["metadata"]["annotations"]["remora.dev/content"].clone()
            };
            let digest = |files: &[(&str, &str)], name: &str| {
                let (_, bytes) = files.iter().find(|(file, _)| *file == name).unwrap();
                serde_json::json!(File::new(name.to_owned(), bytes.as_bytes().to_vec()).digest)
            };
            let is_new = tells(&desk.cluster, "core") == digest(&second, "core");
            if is_new {
                assert!(names.iter().all(|name| tells(&desk.cluster, name) == digest(&second, name)), "{survives}");
            }

            desk.cluster.relent();
            let mut next = Desk::of(desk.cluster.clone(), Duration::MAX);
            next.cluster.observe(&mut next.writer);
            next.publisher.refresh_secrets(&destination, &mut next.cache).await.unwrap();
            let ended =
                next.publisher.publish(&destination, &snapshot("2", &second), None, &mut next.cache).await.unwrap();
            assert_eq!(ended.written, second.len() - survives, "what was written is not written again");
            assert!(second.iter().all(|(name, _)| tells(&next.cluster, name) == digest(&second, name)), "{survives}");
        }
    }
}
