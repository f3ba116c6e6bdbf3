//! Cores in several objects: a pod that starts finds one whole core, whatever happens to the publisher.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use remora_operator::{
    api::{ObjectKind, Revision},
    publish::{ArchivedRevision, Destination, Error, File, Snapshot, WriteCache},
};
use remora_snapshot::{
    Pointer, Snapshot as Reader, core_length,
    files::{self, CoreSet, MAX_CORE_BYTES, MAX_FILE_BYTES, PART_BYTES},
    model::{Context, Environment, Feature},
    write,
};
use serde_json::{Value, json};

use super::{
    cluster::Cluster,
    publishing::{Desk, destination},
};

/// Compiles an environment whose core has this many bytes of values.
fn snapshot(bytes: usize, fill: &str) -> Snapshot {
    let default = Context { enabled: true, value: json!(fill.repeat(bytes)).to_string(), split: None };
    let feature =
        Feature { id: 1, name: "a".to_owned(), kind: "STANDARD".to_owned(), served: true, server_only: false, default };
    let environment =
        Environment { client_key: "client".to_owned(), features: vec![feature], ..Environment::default() };
    let written = write(&environment, MAX_FILE_BYTES).unwrap();
    let files = written.files.into_iter().map(|file| File::new(file.name, file.bytes)).collect();
    Snapshot::new(Revision::new(written.revision.to_string()), files)
}

fn small(fill: &str) -> Snapshot {
    snapshot(10, fill)
}

/// Compiles an environment with a core of at least this many parts.
pub(super) fn large(parts: usize, fill: &str) -> Snapshot {
    // The core has each value twice: in the context and in the answers.
    let snapshot = (1..).map(|share| snapshot(share * PART_BYTES / 4, fill)).find(|one| one.core_parts() >= parts);
    snapshot.unwrap()
}

fn name(kind: ObjectKind, file: &str) -> String {
    let prefix = if kind == ObjectKind::Secret { "secret/" } else { "" };
    format!("{prefix}remora-a-v3-{file}")
}

/// Reads the file that an object carries.
pub(super) fn carried(cluster: &Cluster, kind: ObjectKind, file: &str) -> Option<Vec<u8>> {
    let object = cluster.get(&name(kind, file))?;
    let field = if kind == ObjectKind::Secret { "data" } else { "binaryData" };
    Some(STANDARD.decode(object[field][file].as_str().unwrap()).unwrap())
}

/// Reads the parts of a set, `length` bytes in all, or as many as the first part states.
fn parts(cluster: &Cluster, kind: ObjectKind, set: CoreSet, length: Option<usize>) -> Option<Vec<u8>> {
    let first = carried(cluster, kind, &files::core_part(set, 0))?;
    let length = length.or_else(|| core_length(&first).ok())?;
    let mut core = Vec::new();
    for (number, length) in files::part_lengths(length).enumerate() {
        let part = carried(cluster, kind, &files::core_part(set, number))?;
        if part.len() != length {
            return None;
        }
        core.extend(part);
    }
    Some(core)
}

/// Returns the revision that a sidecar serves if it starts now, by the rules of the format.
fn served(cluster: &Cluster, kind: ObjectKind) -> Option<Revision> {
    let core = carried(cluster, kind, files::CORE)?;
    let Some(pointer) = Pointer::read(&core).unwrap() else {
        return Some(Revision::new(Reader::read(core).unwrap().revision().to_string()));
    };
    let pointed = parts(cluster, kind, pointer.set(), Some(pointer.length()));
    let pointed = pointed.and_then(|core| Reader::read_parts(core, &pointer).ok());
    let other = || {
        let core = parts(cluster, kind, pointer.set().other(), None)?;
        Reader::read_other_parts(core, &pointer).ok()
    };
    pointed.or_else(other).map(|core| Revision::new(core.revision().to_string()))
}

fn patches(calls: &[String]) -> Vec<&str> {
    calls.iter().filter_map(|call| call.strip_prefix("patch remora-a-v3-")).collect()
}

/// Returns another process with the objects of this cluster.
async fn restarted(cluster: &Cluster, grace: Duration, to: &Destination) -> Desk {
    let mut next = Desk::of(cluster.clone(), grace);
    next.cluster.observe(&mut next.writer);
    next.publisher.refresh_secrets(to, &mut next.cache).await.unwrap();
    next
}

#[tokio::test]
async fn core_beyond_one_object_is_written_in_parts_before_its_pointer() {
    let mut desk = Desk::new(Duration::MAX);
    let (first, second, third) = (large(2, "x"), large(3, "y"), large(2, "z"));
    let (written, calls) = desk.publish(&first).await;
    assert_eq!((written.unwrap(), patches(&calls)), (3, vec!["core-a-00", "core-a-01", "core"]));
    let core = desk.cluster.get("remora-a-v3-core").unwrap();
    let annotations = &core["metadata"]["annotations"];
    assert_eq!(
        (&annotations["remora.dev/core-set"], &annotations["remora.dev/revision"]),
        (&json!("a"), &json!(first.revision))
    );
    assert_eq!(served(&desk.cluster, ObjectKind::ConfigMap).as_ref(), Some(&first.revision));

    let (_, calls) = desk.publish(&second).await;
    assert_eq!(patches(&calls), ["core-b-00", "core-b-01", "core-b-02", "core"]);
    assert_eq!(served(&desk.cluster, ObjectKind::ConfigMap).as_ref(), Some(&second.revision));
    let (_, calls) = desk.publish(&third).await;
    assert_eq!(patches(&calls), ["core-a-00", "core-a-01", "core"]);
    let (_, calls) = desk.publish(&third).await;
    assert!(calls.is_empty(), "{calls:?}");
    // The result is the same for another process.
    let mut next = restarted(&desk.cluster, Duration::MAX, &destination()).await;
    let (_, calls) = next.publish(&third).await;
    assert!(calls.len() == 1 && calls[0].starts_with("get"), "the place of the published core: {calls:?}");
    let (_, calls) = next.publish(&first).await;
    assert_eq!(patches(&calls), ["core-b-00", "core-b-01", "core"]);
}

#[tokio::test]
async fn core_that_outgrows_its_object_stays_in_other_set() {
    let mut desk = Desk::new(Duration::ZERO);
    let (first, second) = (small("x"), large(2, "y"));
    desk.publish(&first).await.0.unwrap();
    let (_, calls) = desk.publish(&second).await;
    assert_eq!(patches(&calls), ["core-a-00", "core-a-01", "core-b-00", "core"]);
    assert_eq!(carried(&desk.cluster, ObjectKind::ConfigMap, "core-b-00").as_ref(), Some(&first.files[0].bytes));
    // The other set is not surplus while the core is in parts.
    desk.publish(&second).await.0.unwrap();
    desk.cluster.take("remora-a-v3-core-a-01");
    assert_eq!(served(&desk.cluster, ObjectKind::ConfigMap), Some(first.revision));
    desk.publish(&second).await.0.unwrap();
    assert_eq!(served(&desk.cluster, ObjectKind::ConfigMap), Some(second.revision));
}

#[tokio::test]
async fn parts_of_core_that_fits_into_one_object_again_are_surplus() {
    let mut desk = Desk::new(Duration::from_secs(600));
    for snapshot in [large(3, "x"), large(2, "y"), small("z")] {
        desk.publish(&snapshot).await.0.unwrap();
    }
    assert_eq!(desk.cluster.names().len(), 6, "{:?}", desk.cluster.names());
    let mut next = restarted(&desk.cluster, Duration::ZERO, &destination()).await;
    let (_, calls) = next.publish(&small("z")).await;
    let order = ["core-b-01", "core-b-00", "core-a-02", "core-a-01", "core-a-00"];
    assert_eq!(calls, order.map(|file| format!("delete remora-a-v3-{file}")), "set b first, and the highest number");
    assert_eq!(next.cluster.names(), ["remora-a-v3-core"]);
}

#[tokio::test]
async fn lagging_watch_does_not_direct_publication_to_published_set() {
    let mut desk = Desk::new(Duration::MAX);
    desk.publish(&large(2, "x")).await.0.unwrap();
    desk.cluster.observe(&mut desk.writer);
    // The watch does not report the second publication.
    let second = large(2, "y");
    desk.publisher.publish(&destination(), &second, None, &mut desk.cache).await.unwrap();
    desk.cluster.calls();
    desk.publisher.publish(&destination(), &large(2, "z"), None, &mut desk.cache).await.unwrap();
    assert_eq!(patches(&desk.cluster.calls()), ["core-a-00", "core-a-01", "core"]);
    let other = parts(&desk.cluster, ObjectKind::ConfigMap, CoreSet::B, None).unwrap();
    assert_eq!(Reader::read(other).unwrap().revision().to_string(), second.revision.as_str());
}

/// A pointer whose write timed out may have arrived, and the watch may not show it yet.
#[tokio::test]
async fn write_without_answer_does_not_direct_publication_to_published_set() {
    let mut desk = Desk::new(Duration::MAX);
    desk.publish(&small("x")).await.0.unwrap();
    desk.cluster.observe(&mut desk.writer);
    let second = large(2, "y");
    desk.publisher.publish(&destination(), &second, None, &mut desk.cache).await.unwrap();
    desk.cache = WriteCache::default();
    desk.cluster.calls();
    desk.publisher.publish(&destination(), &large(2, "z"), None, &mut desk.cache).await.unwrap();
    assert_eq!(patches(&desk.cluster.calls()), ["core-b-00", "core-b-01", "core"]);
    let other = parts(&desk.cluster, ObjectKind::ConfigMap, CoreSet::A, None).unwrap();
    assert_eq!(Reader::read(other).unwrap().revision().to_string(), second.revision.as_str());
}

#[tokio::test]
async fn core_beyond_all_parts_is_refused_without_write() {
    let mut desk = Desk::new(Duration::MAX);
    let core = File::new(files::CORE.to_owned(), vec![0; MAX_CORE_BYTES + 1]);
    let (written, calls) = desk.publish(&Snapshot::new(Revision::new("1"), vec![core])).await;
    assert!(matches!(written, Err(Error::CapacityExceeded { .. })) && calls.is_empty(), "{calls:?}");
    let core = File::new(files::CORE.to_owned(), vec![0; MAX_FILE_BYTES + 1]);
    let (written, calls) = desk.publish(&Snapshot::new(Revision::new("1"), vec![core])).await;
    assert!(matches!(written, Err(Error::Indivisible(_))) && patches(&calls).is_empty(), "{calls:?}");
}

#[tokio::test]
async fn parts_are_recovered_whole_or_not_at_all() {
    for kind in [ObjectKind::ConfigMap, ObjectKind::Secret] {
        let to = Destination { object_kind: kind, ..destination() };
        let mut desk = Desk::new(Duration::MAX);
        desk.publisher.refresh_secrets(&to, &mut desk.cache).await.unwrap();
        let (first, second) = (large(2, "x"), large(3, "y"));
        for snapshot in [&first, &second] {
            desk.cluster.observe(&mut desk.writer);
            desk.publisher.publish(&to, snapshot, None, &mut desk.cache).await.unwrap();
        }
        let next = restarted(&desk.cluster, Duration::MAX, &to).await;
        assert_eq!(next.publisher.read_published(&to).await.unwrap(), Some((second.clone(), None)));
        // A part of the other set is a file of Remora, with its digest, and belongs to another revision.
        let mixed = desk.cluster.get(&name(kind, "core-a-01")).unwrap().to_string().replace("core-a-01", "core-b-01");
        desk.cluster.put_as(&name(kind, "core-b-01"), &serde_json::from_str::<Value>(&mixed).unwrap());
        assert_eq!(next.publisher.read_published(&to).await.unwrap(), None);
        desk.cluster.take(&name(kind, "core-b-01"));
        assert_eq!(next.publisher.read_published(&to).await.unwrap(), None);
    }
}

#[tokio::test]
async fn archived_core_in_parts_is_restored_and_forgotten() {
    let mut desk = Desk::new(Duration::MAX);
    let (first, second) = (large(2, "x"), large(2, "y"));
    let past = |snapshot: &Snapshot| ArchivedRevision::of(snapshot, Time(Timestamp::UNIX_EPOCH), None);
    for snapshot in [&first, &second] {
        desk.cluster.observe(&mut desk.writer);
        desk.publisher.archive(&destination(), snapshot, &mut desk.cache).await.unwrap();
    }
    assert_eq!(desk.cluster.names().len(), 4, "{:?}", desk.cluster.names());
    for snapshot in [&first, &second] {
        let restored = desk.publisher.read_archived(&destination(), &past(snapshot)).await.unwrap();
        assert_eq!(restored.as_ref(), Some(snapshot));
    }
    desk.cluster.observe(&mut desk.writer);
    desk.publisher.delete_copies(&destination(), &[past(&first)], &[past(&second)], &mut desk.cache).await.unwrap();
    assert_eq!(desk.publisher.read_archived(&destination(), &past(&first)).await.unwrap(), None);
    assert_eq!(desk.publisher.read_archived(&destination(), &past(&second)).await.unwrap(), Some(second));
}

/// The publisher is killed after any write: a sidecar that starts serves the revision before or the new one, and the
/// next process completes the publication, or publishes another revision.
#[tokio::test]
async fn sidecar_that_starts_after_any_write_finds_whole_core() {
    let (one, two, three, four) = (small("1"), large(2, "2"), large(3, "3"), large(2, "4"));
    // The last snapshot of each list is the one whose publication is killed.
    let growth = [&one, &two];
    let change = [&two, &three];
    let return_to_single = [&two, &three, &one];
    let second_growth = [&two, &three, &one, &four];
    let of_config_maps: &[&[&Snapshot]] = &[&growth, &change, &return_to_single, &second_growth];
    let of_secrets: &[&[&Snapshot]] = &[&growth, &change];
    for (kind, stories) in [(ObjectKind::ConfigMap, of_config_maps), (ObjectKind::Secret, of_secrets)] {
        let to = Destination { object_kind: kind, ..destination() };
        for story in stories {
            let (last, earlier) = story.split_last().unwrap();
            let before = &earlier.last().unwrap().revision;
            for survives in 0.. {
                let mut desk = Desk::new(Duration::MAX);
                desk.publisher.refresh_secrets(&to, &mut desk.cache).await.unwrap();
                for snapshot in earlier {
                    desk.cluster.observe(&mut desk.writer);
                    desk.publisher.publish(&to, snapshot, None, &mut desk.cache).await.unwrap();
                }
                desk.cluster.observe(&mut desk.writer);
                desk.cluster.die_after(survives);
                let killed = desk.publisher.publish(&to, last, None, &mut desk.cache).await;
                let is = served(&desk.cluster, kind);
                assert_eq!(is.as_ref(), Some(if killed.is_ok() { &last.revision } else { before }), "{survives}");
                desk.cluster.relent();
                if killed.is_ok() {
                    break;
                }
                for ended in [last, &four] {
                    let mut next = restarted(&desk.cluster, Duration::MAX, &to).await;
                    next.publisher.publish(&to, ended, None, &mut next.cache).await.unwrap();
                    assert_eq!(served(&desk.cluster, kind).as_ref(), Some(&ended.revision), "{survives}");
                }
            }
        }
    }
}

#[tokio::test]
async fn secrets_of_both_sets_are_found_after_restart() {
    let to = Destination { object_kind: ObjectKind::Secret, ..destination() };
    let mut desk = Desk::new(Duration::ZERO);
    desk.publisher.refresh_secrets(&to, &mut desk.cache).await.unwrap();
    for snapshot in [large(3, "x"), large(2, "y")] {
        desk.publisher.publish(&to, &snapshot, None, &mut desk.cache).await.unwrap();
    }
    let mut next = restarted(&desk.cluster, Duration::ZERO, &to).await;
    next.publisher.publish(&to, &small("z"), None, &mut next.cache).await.unwrap();
    assert_eq!(next.cluster.names(), ["secret/remora-a-v3-core"]);
}

/// A publisher without its cache knows the set from the annotation of the object `core`.
#[tokio::test]
async fn publication_without_cache_goes_to_unpublished_set() {
    let mut desk = Desk::new(Duration::MAX);
    for (snapshot, set) in [(large(2, "x"), "a"), (large(2, "y"), "b"), (large(2, "z"), "a")] {
        desk.cache = WriteCache::default();
        desk.publish(&snapshot).await.0.unwrap();
        let core = desk.cluster.get("remora-a-v3-core").unwrap();
        assert_eq!(core["metadata"]["annotations"]["remora.dev/core-set"], set);
    }
}
