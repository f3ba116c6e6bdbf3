//! ConfigMaps with Remora's labels that nobody published: whoever may write ConfigMaps decides how many there are, and what
//! they carry.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use remora_operator::{
    api::ObjectKind,
    memory::Memory,
    publish::{Error, File, Record},
};
use remora_snapshot::files;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::{
    Operator,
    cluster::{Cluster, fenv},
    document, flags,
    parts::{carried, large},
    pass,
    publishing::{Desk, destination, snapshot},
    wait,
};

/// Returns a ConfigMap with the labels of this environment's objects that carries these bytes.
fn labelled(environment: &str, file: &str, bytes: &[u8]) -> Value {
    let digest = File::new(file.to_owned(), bytes.to_vec()).digest;
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "binaryData": {file: STANDARD.encode(bytes)},
        "metadata": {
            "name": format!("remora-{environment}-v3-{file}"), "namespace": "shop",
            "annotations": {"remora.dev/content": digest},
            "labels": {"app.kubernetes.io/managed-by": "remora", "remora.dev/environment": environment},
        },
    })
}

fn deletions(calls: &[String]) -> usize {
    calls.iter().filter(|call| call.starts_with("delete ")).count()
}

#[tokio::test]
async fn labelled_objects_that_no_snapshot_has_are_not_read_back() {
    let mut desk = Desk::new(Duration::MAX);
    let published = snapshot("1", &[("core", "c"), ("overrides-00", "x"), ("document-00", "d")]);
    desk.publish(&published).await.0.unwrap();
    for number in 0..600 {
        desk.cluster.put(&labelled("a", &format!("x-{number}"), b"x"));
    }
    desk.cluster.observe(&mut desk.writer);
    desk.cluster.calls();
    assert_eq!(desk.publisher.read_published(&destination()).await.unwrap(), Some((published, None)));
    let read = ["core", "overrides-00", "document-00"].map(|file| format!("get remora-a-v3-{file}"));
    assert_eq!(desk.cluster.calls(), read);
}

#[tokio::test]
async fn pointer_in_other_object_than_core_is_not_followed() {
    let mut desk = Desk::new(Duration::MAX);
    desk.publish(&large(2, "x")).await.0.unwrap();
    let pointer = carried(&desk.cluster, ObjectKind::ConfigMap, files::CORE).unwrap();
    for slot in 0..35 {
        desk.cluster.put(&labelled("a", &files::overrides(slot), &pointer));
    }
    desk.cluster.observe(&mut desk.writer);
    desk.cluster.calls();
    desk.publisher.read_published(&destination()).await.unwrap();
    let calls = desk.cluster.calls();
    let parts = calls.iter().filter(|call| call.starts_with("get remora-a-v3-core-")).count();
    assert_eq!(parts, 2, "each part of the core is read once: {calls:?}");
}

#[tokio::test]
async fn snapshot_with_file_beyond_its_limit_is_not_read_back() {
    let mut desk = Desk::new(Duration::MAX);
    desk.publish(&snapshot("1", &[("core", "c"), ("overrides-00", "x")])).await.0.unwrap();
    desk.cluster.put(&labelled("a", "overrides-00", "x".repeat(files::MAX_FILE_BYTES + 1).as_bytes()));
    desk.cluster.observe(&mut desk.writer);
    assert_eq!(desk.publisher.read_published(&destination()).await.unwrap(), None);
}

/// Whoever may write ConfigMaps decides how large the objects are that a restarted controller reads.
#[tokio::test]
async fn snapshot_beyond_memory_of_namespace_is_not_read_to_its_end() {
    let memory = Memory::new(450_000);
    let mut desk = Desk::within(Cluster::default(), Duration::MAX, &memory);
    let large = "x".repeat(100_000);
    let files = ["overrides-00", "overrides-01", "overrides-02", "overrides-03"].map(|name| (name, large.as_str()));
    let published = snapshot("1", &[[("core", "c")].as_slice(), &files].concat());
    desk.publish(&published).await.0.unwrap();
    desk.cluster.observe(&mut desk.writer);

    // Another environment of the namespace has most of the memory.
    let mut other = published.clone();
    other.files.truncate(2);
    other.reserve_in(&memory, "shop", 0).unwrap();
    desk.cluster.calls();
    let read = desk.publisher.read_published(&destination()).await;
    assert!(matches!(read, Err(Error::OutOfMemory { .. })), "{read:?}");
    let calls = ["core", "overrides-00", "overrides-01", "overrides-02"].map(|file| format!("get remora-a-v3-{file}"));
    assert_eq!(desk.cluster.calls(), calls);

    // The memory of the part that was read is returned, and a snapshot that was read has its memory once.
    drop(other);
    let (mut found, _) = desk.publisher.read_published(&destination()).await.unwrap().unwrap();
    found.reserve_in(&memory, "shop", 0).unwrap();
    assert_eq!(found, published);
}

#[tokio::test]
async fn publication_deletes_at_most_two_hundred_surplus_objects() {
    let mut desk = Desk::new(Duration::ZERO);
    let published = snapshot("1", &[("core", "c")]);
    desk.publish(&published).await.0.unwrap();
    for number in 0..450 {
        desk.cluster.put(&labelled("a", &format!("x-{number}"), b""));
    }
    for expected in [200, 200, 50, 0] {
        let (_, calls) = desk.publish(&published).await;
        assert_eq!(deletions(&calls), expected);
    }
    assert_eq!(desk.cluster.names(), ["remora-a-v3-core"]);
}

#[tokio::test]
async fn surplus_objects_beyond_one_publication_are_deleted_at_next_look() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    for number in 0..250 {
        cluster.put(&labelled("storefront", &format!("x-{number}"), b""));
    }
    let mut operator = Operator::start_patient(&cluster, &[], Duration::ZERO);
    let spec = json!({"refresh": {"interval": "24h"}});
    let (action, calls) = operator.turn(fenv(1, &spec)).await;
    assert_eq!(deletions(&calls), 200);
    assert!(wait(&action) <= Duration::from_secs(66), "{action:?}");
    pass(wait(&action)).await;
    let mut object = fenv(1, &spec);
    object["status"] = cluster.last_status();
    let (_, calls) = operator.turn(object).await;
    assert_eq!(deletions(&calls), 50);
}

/// Whoever may write ConfigMaps may give them finalizers, which hold deleted objects for ever.
#[tokio::test]
async fn objects_that_finalizers_hold_take_no_deletion_from_others() {
    let mut desk = Desk::new(Duration::ZERO);
    let published = snapshot("1", &[("core", "c")]);
    for number in 0..300 {
        let mut held = labelled("a", &format!("z-{number}"), b"");
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        held["metadata"]["deletionTimestamp"] = json!("2026-11-20T00:00:00Z");
        desk.cluster.put(&held);
    }
    desk.cluster.put(&labelled("a", "x", b""));
    let (_, calls) = desk.publish(&published).await;
    assert_eq!(calls.iter().filter(|call| call.starts_with("delete ")).collect::<Vec<_>>(), ["delete remora-a-v3-x"]);
    assert_eq!(deletions(&desk.publish(&published).await.1), 0, "held objects are not deleted again");
}

#[tokio::test]
async fn obsolete_objects_are_deleted_at_pace_of_surplus() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start_patient(&cluster, &[], Duration::ZERO);
    operator.turn(fenv(1, &json!({}))).await;
    // Their names precede the one of the core, which the publisher keeps up to date until all are deleted.
    for number in 0..430 {
        cluster.put(&labelled("storefront", &format!("a-{number}"), b""));
    }
    let spec = json!({"delivery": {"as": "Secret"}, "refresh": {"interval": "24h"}});
    let core = "remora-storefront-v3-core".to_owned();
    // A publication deletes 200 as surplus of the other kind, and the same reconciliation deletes 200 as obsolete.
    for (generation, expected) in [(2, 400), (3, 31), (4, 0)] {
        let mut object = fenv(generation, &spec);
        object["status"] = cluster.last_status();
        let (action, calls) = operator.turn(object).await;
        assert_eq!(deletions(&calls), expected, "generation {generation}");
        assert!(generation == 2 || !calls.contains(&format!("patch {core}")), "the core was deleted too early");
        let is_last = generation > 2;
        assert_eq!(cluster.names().contains(&core), !is_last);
        assert_eq!(cluster.last_status()["delivery"]["formerly"].is_null(), is_last);
        assert!(wait(&action) <= Duration::from_secs(66), "{action:?}");
    }
}

/// Without the digests of their records, the cores beyond the bound would be written by each publication.
#[tokio::test]
async fn publication_beyond_room_for_records_writes_nothing_twice() {
    let mut desk = Desk::new(Duration::MAX);
    // Together, these are as many bytes as a namespace may have.
    let record = "x".repeat(64 << 10);
    for number in 0..64 {
        let mut other = labelled(&format!("e{number}"), "core", b"");
        other["metadata"]["annotations"]["remora.dev/record"] = json!(record);
        desk.cluster.put(&other);
    }
    desk.cluster.observe(&mut desk.writer);
    let published = snapshot("1", &[("core", "c")]);
    let document = json!({"source": "s", "environment": "e", "features": 1, "segments": 0, "overrides": 0});
    let record = json!({"publishedAt": "2026-11-20T00:00:00Z", "document": document});
    let record: Record = serde_json::from_value(record).unwrap();
    for expected in [1, 0] {
        let published = desk.publisher.publish(&destination(), &published, Some(&record), &mut desk.cache).await;
        assert_eq!(published.unwrap().written, expected);
        desk.cluster.observe(&mut desk.writer);
    }
}

/// Returns the time that the current thread has used a core, which other programs do not add to.
fn core_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Returns the shortest time on the core of a publication beside so many labelled objects.
async fn publication_beside(objects: usize) -> Duration {
    let mut desk = Desk::new(Duration::MAX);
    for number in 0..objects {
        desk.cluster.put(&labelled("a", &format!("x-{number}"), b""));
    }
    let published = snapshot("1", &[("core", "c")]);
    desk.publish(&published).await.0.unwrap();
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        let began = core_time();
        desk.publisher.publish(&destination(), &published, None, &mut desk.cache).await.unwrap();
        shortest = shortest.min(core_time() - began);
    }
    shortest
}

/// Eight times as many objects take about eight times as long. With a comparison of each with each, they would take 64
/// times as long.
#[tokio::test]
async fn time_of_publication_is_linear_in_labelled_objects() {
    let (few, many) = (publication_beside(4_000).await, publication_beside(32_000).await);
    assert!(many < 30 * few, "{few:?} and {many:?}");
}
