use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use bytes::Buf;
use memmap2::MmapMut;
use remora_compile::document::Original;
use remora_compile::prune::{Rules, prune};

use super::*;
use crate::http::body::Portions;
use crate::http::budget::InFlight;
use crate::http::progress::Progress;

/// Returns a document with this value of a feature. It inflates to more than 2 MB.
fn document(value: &str) -> Arc<Document> {
    document_after(value, None)
}

fn document_after(value: &str, previous: Option<&Document>) -> Arc<Document> {
    let state = serde_json::json!({
        "feature": {"id": 1, "name": "limit", "type": "STANDARD"}, "enabled": true, "feature_state_value": value,
        "django_id": 1, "multivariate_feature_state_values": [],
    });
    let overrides: Vec<serde_json::Value> = (0..10_000)
        .map(|number| serde_json::json!({"identifier": format!("user {number}"), "identity_features": [state]}))
        .collect();
    let source = serde_json::json!({
        "api_key": "client", "id": 1, "name": "shop", "updated_at": "2026-11-21T00:00:00+00:00",
        "project": {"id": 1, "segments": []}, "feature_states": [state], "identity_overrides": overrides,
    });
    let bytes = serde_json::to_vec(&source).unwrap();
    let pruned = prune(remora_compile::document::parse(&bytes).unwrap(), &Rules::default());
    let original = Original::new(bytes);
    let options = remora_compile::Options {
        environment: "shop",
        document: Some(&original),
        ..remora_compile::Options::default()
    };
    let compiled = remora_compile::compile_to_files_of(1_000_000, &pruned, &options).unwrap();
    Arc::new(read(&compiled.files, previous).unwrap())
}

/// Reads the document of an environment's files, of which the first is the core.
fn read(files: &[remora_compile::File], previous: Option<&Document>) -> Result<Document, DocumentError> {
    let region = |file: &remora_compile::File| {
        let mut map = MmapMut::map_anon(file.bytes.len()).unwrap();
        map.copy_from_slice(&file.bytes);
        Region::from(map.make_read_only().unwrap())
    };
    let snapshot = Snapshot::read(region(&files[0])).unwrap();
    let files = files.iter().filter(|file| file.name.starts_with("document")).map(region).collect();
    Document::read(files, &snapshot, previous, SystemTime::now())
}

fn inflated(document: &Arc<Document>, limits: &CopyLimits) -> Delivery {
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    Delivery::inflated(document, permit, limits.clone())
}

/// Receives a whole document, and the address of its first byte.
async fn receive(mut delivery: Delivery) -> (Vec<u8>, usize) {
    let (mut received, mut address) = (Vec::new(), 0);
    let expected = delivery.remaining();
    while let Some(piece) = poll_fn(|cx| delivery.poll(cx)).await {
        if received.is_empty() {
            address = piece.chunk().as_ptr().addr();
        }
        received.extend_from_slice(piece.chunk());
    }
    assert_eq!(expected, Some(received.len() as u64));
    (received, address)
}

/// Waits until a condition holds. It fails after 20 s.
async fn until(condition: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the condition does not hold after 20 s");
}

const LONG: Duration = Duration::from_secs(600);

fn unlimited() -> Option<u64> {
    Some(u64::MAX)
}

#[tokio::test]
async fn clients_at_same_time_share_one_copy_with_bytes_of_inflated_document() {
    let document = document("a");
    let without = CopyLimits::with(LONG, || None);
    let (streamed, _) = receive(inflated(&document, &without)).await;
    assert!(document.copy.made().is_none(), "the limit is not known");
    let limits = CopyLimits::with(LONG, unlimited);
    let clients = [(); 8].map(|()| tokio::spawn(receive(inflated(&document, &limits))));
    let mut addresses = Vec::new();
    for client in clients {
        let (received, address) = client.await.unwrap();
        assert!(received == streamed, "other bytes");
        addresses.push(address);
    }
    let copy = document.copy.made().expect("no copy was kept");
    assert!(copy.bytes.as_ref() == streamed);
    assert!(addresses.iter().all(|address| *address == copy.bytes.as_ref().as_ptr().addr()), "{addresses:?}");
    let (later, address) = receive(Delivery::copied(&document, copy)).await;
    assert!(later == streamed && address == addresses[0]);
}

#[tokio::test]
async fn copy_is_given_up_when_unused_and_made_again() {
    let document = document("a");
    let limits = CopyLimits::with(Duration::from_millis(5), unlimited);
    for _ in 0..3 {
        let (received, _) = receive(inflated(&document, &limits)).await;
        assert_eq!(received.len() as u64, document.content.length());
        until(|| document.copy.is_absent() && limits.places() == 2).await;
    }
}

#[tokio::test]
async fn copy_is_made_only_if_it_fits_below_memory_limit() {
    static FREE: AtomicU64 = AtomicU64::new(0);
    let document = document("a");
    let limits = CopyLimits::with(LONG, || Some(FREE.load(Ordering::Relaxed)));
    let needed = copy::HEADROOM + document.content.length();
    for free in [0, needed - 1] {
        FREE.store(free, Ordering::Relaxed);
        receive(inflated(&document, &limits)).await;
        assert!(document.copy.is_absent(), "with {free} bytes");
    }
    FREE.store(needed, Ordering::Relaxed);
    receive(inflated(&document, &limits)).await;
    assert!(document.copy.made().is_some());
    FREE.store(copy::HEADROOM - 1, Ordering::Relaxed);
    until(|| document.copy.is_absent()).await;
}

/// The memory in use does not count what an unfinished copy has yet to write.
#[tokio::test]
async fn copies_of_two_documents_are_made_one_after_the_other() {
    let limits = CopyLimits::with(LONG, unlimited);
    let (first, second) = (document("a"), document("b"));
    let (mut one, mut two) = (inflated(&first, &limits), inflated(&second, &limits));
    poll_fn(|cx| {
        let _ = (one.poll(cx), two.poll(cx));
        Poll::Ready(())
    })
    .await;
    assert!(!first.copy.is_absent() && second.copy.is_absent());
    until(|| first.copy.made().is_some()).await;
    receive(inflated(&second, &limits)).await;
    assert!(second.copy.made().is_some());
}

#[tokio::test]
async fn copy_ends_with_its_document_and_last_client() {
    let limits = CopyLimits::with(LONG, unlimited);
    let first = document("a");
    receive(inflated(&first, &limits)).await;
    let slow = Delivery::copied(&first, first.copy.made().unwrap());
    drop(first);
    let second = document("b");
    receive(inflated(&second, &limits)).await;
    assert_eq!((second.copy.made().is_some(), limits.places()), (true, 0));
    let third = document("c");
    let (received, _) = receive(inflated(&third, &limits)).await;
    assert_eq!(received.len() as u64, third.content.length());
    assert!(third.copy.is_absent(), "the slow client keeps the first copy");
    drop(slow);
    assert_eq!(limits.places(), 1);
    receive(inflated(&third, &limits)).await;
    assert!(third.copy.made().is_some());
}

#[tokio::test]
async fn request_without_body_makes_no_copy() {
    let document = document("a");
    drop(inflated(&document, &CopyLimits::with(LONG, unlimited)));
    assert!(document.copy.is_absent());
}

#[tokio::test]
async fn answer_ends_only_with_the_last_piece_of_the_document() {
    let document = document("a");
    let progress = Arc::new(Progress::new(&Arc::default(), &InFlight::of_data()));
    for limits in [CopyLimits::with(LONG, || None), CopyLimits::with(LONG, unlimited)] {
        let mut delivery = inflated(&document, &limits);
        progress.answering();
        delivery.track(&progress);
        let mut pieces = 0;
        while delivery.remaining() != Some(0) {
            assert!(
                poll_fn(|cx| {
                    let polled = delivery.poll(cx);
                    // Hyper flushes whenever it waits for the next piece.
                    if polled.is_pending() || delivery.remaining() != Some(0) {
                        progress.flushed();
                        assert!(!progress.is_idle(), "after {pieces} pieces");
                    }
                    polled
                })
                .await
                .is_some()
            );
            pieces += 1;
        }
        assert!(pieces > 2, "{pieces}");
        progress.flushed();
        assert!(progress.is_idle(), "hyper does not ask for more than the declared length");
    }
}

#[tokio::test]
async fn document_read_again_keeps_the_copy_of_equal_content() {
    let limits = CopyLimits::with(LONG, unlimited);
    let (first, other) = (document("a"), document("b"));
    receive(inflated(&first, &limits)).await;
    let copy = first.copy.made().unwrap();
    let again = document_after("a", Some(&first));
    assert_eq!(again.modified, first.modified);
    drop(first);
    assert!(again.copy.made().is_some_and(|kept| Arc::ptr_eq(&kept, &copy)));
    assert!(document_after("a", Some(&other)).copy.is_absent());
    drop((again, copy));
    until(|| limits.places() == 2).await;
}

#[test]
fn document_with_equal_bytes_and_another_length_is_refused() {
    use remora_snapshot::model::{Compressed, Environment};
    let first = document("a");
    let ranges =
        first.files().iter().enumerate().map(|(number, file)| &file.as_ref()[first.content.range(number).unwrap()]);
    let gzip = ranges.collect::<Vec<_>>().concat();
    let again = |length| {
        let document = Some(Compressed { gzip: gzip.clone(), length });
        let environment = Environment { client_key: "client".to_owned(), document, ..Environment::default() };
        read(&remora_snapshot::write(&environment, 1_000_000).unwrap().files, Some(&first))
    };
    let length = first.content.length();
    assert_eq!(again(length).unwrap().modified, first.modified);
    // A gzip stream has the lower 32 bits of the length.
    assert!(matches!(again(length + (1 << 32)), Err(DocumentError::Broken(_))));
}
