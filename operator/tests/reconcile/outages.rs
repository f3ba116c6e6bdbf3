//! Outages of the cluster or the source: the published objects stay, retries back off, and everything recovers.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use kube::{core::DeserializeGuard, runtime::controller::Action};
use remora_operator::{api::FeatureEnvironment, controller::reconcile::reconcile, source::fetch::Origin};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::Instant,
};

use super::{
    CORE, Cluster, Operator, asks_source, document, fenv, flags, is, pass, reported, server_that_falls_silent, wait,
    writes,
};

/// The API server's message for every write while etcd has its alarm.
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
/// Default interval, which is also the longest wait between two attempts, within a tenth.
const INTERVAL: Duration = Duration::from_secs(30);

/// Runs the operator as its schedule says, for this time on the clock. Returns the calls with the time of each.
async fn scheduled(operator: &mut Operator, object: &Value, time: Duration) -> Vec<(Duration, String)> {
    let (began, mut calls) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        let now = began.elapsed();
        let (action, made) = operator.turn(object.clone()).await;
        calls.extend(made.into_iter().map(|call| (now, call)));
        let wait = wait(&action);
        assert!(wait >= Duration::from_millis(100), "the operator does not rest: {wait:?}");
        pass(wait).await;
    }
    calls
}

/// Returns the times between calls of one kind.
fn gaps(calls: &[(Duration, String)], kind: &str) -> Vec<Duration> {
    let times: Vec<Duration> = calls.iter().filter(|(_, call)| call == kind).map(|(time, _)| *time).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Checks that wait `n` is at least a fifth of `2^n` seconds, until the interval is reached.
fn assert_backs_off(waits: &[Duration]) {
    for (n, wait) in waits.iter().enumerate() {
        let ceiling = Duration::from_secs(1 << n.min(16));
        let least = if ceiling < INTERVAL { ceiling.mul_f64(0.2) } else { INTERVAL.mul_f64(0.9) };
        // A short time passes between the decision and the answer.
        assert!(*wait + Duration::from_millis(100) >= least, "attempt {n} waits {wait:?}: {waits:?}");
    }
}

#[tokio::test]
async fn full_cluster_is_written_to_with_back_off_and_recovers() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let (before, object) = (cluster.get(CORE), reported(&cluster, 1));
    let statuses = cluster.statuses();

    cluster.put(&flags(&document("b")));
    cluster.refuse_writes(Some((500, json!({"status": "Failure", "message": NO_SPACE, "code": 500}))));
    let mut edited = object.clone();
    edited["metadata"]["generation"] = json!(2); // a new generation reads the source at once
    let calls = scheduled(&mut operator, &edited, Duration::from_secs(300)).await;
    let publish = format!("patch {CORE}");
    let attempts = gaps(&calls, &publish);
    assert!(attempts.len() > 8, "{attempts:?}");
    assert_backs_off(&attempts);
    assert_eq!((cluster.get(CORE), cluster.statuses()), (before.clone(), statuses));

    // The operator writes nothing but the snapshot and the status.
    let is_write = |call: &&String| ["patch ", "delete ", "event "].iter().any(|kind| call.starts_with(kind));
    let others: Vec<&String> =
        calls.iter().map(|(_, call)| call).filter(is_write).filter(|call| **call != publish).collect();
    let archives = |[first, again]: [&String; 2]| first.contains("-history-") && first == again;
    assert!(matches!(others[..], [first, again] if archives([first, again])), "{others:?}");
    let count = |kind: &str| calls.iter().filter(|(_, call)| call == kind).count();
    let metrics = operator.metrics.text().unwrap();
    for line in [
        format!(r#"remora_controller_steps_total{{step="publish",outcome="WriteFailed"}} {}"#, count(&publish)),
        format!(r#"remora_controller_steps_total{{step="report",outcome="ReportFailed"}} {}"#, count("report")),
        r#"remora_environment_condition{namespace="shop",environment="storefront",condition="Published"} 0"#.to_owned(),
    ] {
        assert!(metrics.contains(&line), "no {line} in:\n{metrics}");
    }

    // If only ConfigMaps are refused, the status says so.
    cluster.refuse_writes(None);
    cluster.refuse(CORE, 500, NO_SPACE);
    operator.turn(edited.clone()).await;
    is(&cluster.last_status(), "Published", ("False", "WriteFailed"));
    is(&cluster.last_status(), "Ready", ("True", "LastGood"));
    // The operator read the source while no status could be written.
    is(&cluster.last_status(), "Fetched", ("True", "Synced"));
    assert!(cluster.last_status().to_string().contains(NO_SPACE));

    cluster.relent();
    pass(INTERVAL * 2).await;
    let (action, _) = operator.turn(edited).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
    assert_ne!(cluster.get(CORE).unwrap()["binaryData"], before.unwrap()["binaryData"]);
    assert!(wait(&action) > Duration::from_secs(10), "there is nothing left to repeat: {action:?}");
}

/// Accepts a second document whose publication fails, and deletes the document. Returns the objects that pods mount.
async fn accept_without_publication(cluster: &Cluster, operator: &mut Operator) -> Value {
    cluster.put(&flags(&document("a")));
    operator.turn(fenv(1, &json!({}))).await;
    let published = cluster.get(CORE).unwrap()["binaryData"].clone();
    cluster.put(&flags(&document("b")));
    cluster.refuse(CORE, 500, NO_SPACE);
    pass(INTERVAL * 2).await;
    operator.turn(reported(cluster, 1)).await;
    is(&cluster.last_status(), "Published", ("False", "WriteFailed"));
    cluster.relent();
    cluster.take("flags");
    published
}

/// An edit may exist to keep a revision out that could not be published so far. Only its document shows whether it does.
#[tokio::test]
async fn unpublished_revision_waits_for_read_after_edit_that_may_exclude_it() {
    let other = json!({"source": {"document": {"configMapKeyRef": {"name": "other", "key": "environment.json"}}}});
    for (edit, source) in [(json!({"prune": {"features": {"exclude": ["b"]}}}), "flags"), (other, "other")] {
        let cluster = Cluster::default();
        let mut operator = Operator::start(&cluster);
        let published = accept_without_publication(&cluster, &mut operator).await;
        let mut edited = fenv(2, &edit);
        edited["status"] = cluster.last_status();
        for _ in 0..2 {
            operator.turn(edited.clone()).await;
            is(&cluster.last_status(), "Accepted", ("False", "ConfigMapNotFound"));
            assert_eq!(cluster.get(CORE).unwrap()["binaryData"], published, "{edit}");
            // A deleted object is restored, too.
            cluster.take(CORE);
            pass(INTERVAL * 2).await;
        }
        let mut readable = flags(&document("c"));
        readable["metadata"]["name"] = json!(source);
        cluster.put(&readable);
        operator.turn(edited).await;
        is(&cluster.last_status(), "Published", ("True", "Published"));
        assert_ne!(cluster.get(CORE).unwrap()["binaryData"], published, "{edit}");
    }
}

#[tokio::test]
async fn unpublished_revision_is_published_after_edit_that_cannot_exclude_it() {
    let cluster = Cluster::default();
    let mut operator = Operator::start(&cluster);
    let published = accept_without_publication(&cluster, &mut operator).await;
    let mut edited = reported(&cluster, 2);
    edited["spec"]["revisionHistoryLimit"] = json!(2);
    operator.turn(edited).await;
    is(&cluster.last_status(), "Accepted", ("False", "ConfigMapNotFound"));
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert_ne!(cluster.get(CORE).unwrap()["binaryData"], published);
}

/// A status that could not be written is kept: the operator writes it as soon as possible, even without a change.
#[tokio::test]
async fn refused_status_is_written_later() {
    let cluster = Cluster::default();
    let mut operator = Operator::start(&cluster);
    cluster.refuse_writes(Some((500, json!({"status": "Failure", "message": NO_SPACE, "code": 500}))));
    // The document does not exist.
    operator.turn(fenv(1, &json!({}))).await;
    cluster.refuse_writes(None);
    let (_, calls) = operator.turn(fenv(1, &json!({}))).await;
    assert!(!asks_source(&calls) && calls.contains(&"event ConfigMapNotFound".to_owned()), "{calls:?}");
    is(&cluster.last_status(), "Accepted", ("False", "ConfigMapNotFound"));

    // Suspension stops all work except a pending status write.
    cluster.refuse_writes(Some((500, json!({"status": "Failure", "message": NO_SPACE, "code": 500}))));
    let suspended = fenv(2, &json!({"suspend": true}));
    let (action, _) = operator.turn(suspended.clone()).await;
    assert_ne!(action, Action::await_change());
    cluster.refuse_writes(None);
    let (action, calls) = operator.turn(suspended).await;
    assert!(calls.contains(&"report".to_owned()), "{calls:?}");
    is(&cluster.last_status(), "Accepted", ("True", "Suspended"));
    assert_eq!(action, Action::await_change());
}

/// Returns the API server's answer to a creation in a namespace that is being deleted.
fn terminating() -> Value {
    json!({
        "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": format!("configmaps \"{CORE}\" is forbidden: unable to create new content in namespace shop because it is being terminated"),
        "details": {"name": CORE, "kind": "configmaps", "causes": [
            {"reason": "NamespaceTerminating", "message": "namespace shop is being terminated", "field": "metadata.namespace"},
        ]},
    })
}

#[tokio::test]
async fn terminating_namespace_is_written_to_with_back_off() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    // Kubernetes deletes the namespace's objects one by one: first the published objects, then the FeatureEnvironment.
    cluster.take(CORE);
    cluster.refuse_with(CORE, 403, terminating());
    let object = reported(&cluster, 1);
    let (action, calls) = operator.turn(object.clone()).await;
    assert_eq!(writes(&calls), [&format!("patch {CORE}")]);
    for event in ["event NamespaceTerminating", "event NothingPublished"] {
        assert!(calls.contains(&event.to_owned()), "{calls:?}");
    }
    is(&cluster.last_status(), "Published", ("False", "NamespaceTerminating"));
    pass(wait(&action)).await;
    let calls = scheduled(&mut operator, &object, Duration::from_secs(1_500)).await;
    // Such a namespace takes no object any more.
    let attempts = gaps(&calls, &format!("patch {CORE}"));
    assert!((3..=6).contains(&attempts.len()), "every five minutes: {attempts:?}");
    // A repetition of the same state causes no status write and no Event.
    assert!(!calls.iter().any(|(_, call)| call == "report" || call.starts_with("event ")), "{calls:?}");
}

#[tokio::test]
async fn failed_publication_keeps_back_off_while_source_is_polled() {
    let cluster = Cluster::default();
    let object = fenv(1, &json!({"refresh": {"interval": "1s"}}));
    cluster.put(&flags(&document("a")));
    cluster.refuse(CORE, 403, "exceeded quota: few");
    let mut operator = Operator::start(&cluster);
    let calls = scheduled(&mut operator, &object, Duration::from_secs(120)).await;
    let (polls, attempts) = (gaps(&calls, "get flags").len(), gaps(&calls, &format!("patch {CORE}")).len());
    // Waits grow to ten seconds, within a tenth.
    assert!(polls > 90 && (8..25).contains(&attempts), "{polls} polls, {attempts} attempts to publish");
    is(&cluster.last_status(), "Published", ("False", "QuotaExceeded"));
    assert_eq!(calls.iter().filter(|(_, call)| call == "report").count(), 1, "the status flaps: {calls:?}");

    cluster.relent();
    scheduled(&mut operator, &object, Duration::from_secs(12)).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
}

#[tokio::test]
async fn edited_spec_ends_back_off_of_failed_publication() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    cluster.refuse(CORE, 403, "exceeded quota: few");
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    cluster.relent();
    let (_, calls) = operator.turn(reported(&cluster, 1)).await;
    assert!(calls.is_empty(), "{calls:?}");
    let mut edited = fenv(2, &json!({"revisionHistoryLimit": 3}));
    edited["status"] = cluster.last_status();
    operator.turn(edited).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
}

#[tokio::test]
async fn unreadable_secrets_are_read_with_back_off() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    let secret = json!({"delivery": {"as": "Secret"}});
    operator.turn(fenv(1, &secret)).await;
    let mut object = fenv(1, &secret);
    object["status"] = cluster.last_status();
    cluster.hide_secrets();
    pass(Duration::from_secs(61)).await;
    let calls = scheduled(&mut operator, &object, Duration::from_secs(120)).await;
    let asked = calls.iter().filter(|(_, call)| call.starts_with("get secret/")).count();
    assert!((4..20).contains(&asked), "{asked} requests: {calls:?}");
    is(&cluster.last_status(), "Published", ("False", "ReadFailed"));
    is(&cluster.last_status(), "Ready", ("True", "LastGood"));
}

#[tokio::test]
async fn failed_restoration_during_fetch_backs_off() {
    let cluster = Cluster::default();
    let (origin, asked) = server_that_falls_silent().await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&origin));
    let source =
        json!({"flagsmith": {"apiUrl": format!("{origin}/api/v1/"), "environmentKeySecretRef": {"name": "flagsmith"}}});
    let spec = json!({"source": source, "refresh": {"timeout": "10m"}});
    operator.turn(fenv(1, &spec)).await;
    cluster.take(CORE);
    cluster.refuse(CORE, 403, "exceeded quota: few");
    cluster.observe(&mut operator.writer);
    cluster.calls();
    let edited: DeserializeGuard<FeatureEnvironment> = serde_json::from_value(fenv(2, &spec)).unwrap();
    let waiting = tokio::spawn(reconcile(Arc::new(edited), Arc::clone(&operator.context)));
    let arrived = async {
        while asked.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), arrived).await.expect("the source was not asked");
    // The fetch gives up after 15 s of silence.
    for _ in 0..16 {
        pass(Duration::from_millis(500)).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    assert!(!waiting.is_finished(), "the source was not silent");
    waiting.abort();
    let attempts = cluster.calls().iter().filter(|call| **call == format!("patch {CORE}")).count();
    assert!((2..12).contains(&attempts), "{attempts} attempts in 8 s");
}

/// Framing of an answer's body.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    Chunks,
    Close,
}

/// Server that sends the beginning of a document, and then closes or resets the connection.
struct Cutting {
    origin: Origin,
    script: Arc<Mutex<(Framing, String, usize, bool)>>,
    answered: Arc<Mutex<usize>>,
}

impl Cutting {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let script = Arc::new(Mutex::new((Framing::Length, String::new(), 0, false)));
        let answered = Arc::new(Mutex::new(0));
        let (scripted, counted) = (Arc::clone(&script), Arc::clone(&answered));
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let _ = connection.read(&mut [0; 4096]).await.unwrap();
                let (framing, body, cut, reset) = scripted.lock().unwrap().clone();
                let answer = framed(framing, &body);
                let beginning = &answer[..cut.min(answer.len())];
                // A client that has read enough may have disconnected already.
                let _ = connection.write_all(beginning).await;
                if reset {
                    connection.set_zero_linger().unwrap();
                }
                *counted.lock().unwrap() += 1;
            }
        });
        Self { origin, script, answered }
    }

    fn serve(&self, framing: Framing, document: &Value, cut: usize, reset: bool) {
        *self.script.lock().unwrap() = (framing, document.to_string(), cut, reset);
    }

    fn spec(&self) -> Value {
        let url = format!("{}/api/v1/", self.origin);
        json!({"source": {"flagsmith": {"apiUrl": url, "environmentKeySecretRef": {"name": "flagsmith"}}}})
    }
}

fn framed(framing: Framing, body: &str) -> Vec<u8> {
    let text = match framing {
        Framing::Length => {
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
        }
        Framing::Close => format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}"),
        Framing::Chunks => {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n".to_owned();
            let pieces = body.as_bytes().chunks(50).map(|piece| std::str::from_utf8(piece).unwrap());
            pieces.fold(head, |text, piece| text + &format!("{:x}\r\n{piece}\r\n", piece.len())) + "0\r\n\r\n"
        }
    };
    text.into_bytes()
}

#[tokio::test]
async fn document_that_is_cut_off_leaves_last_good_published() {
    let cluster = Cluster::default();
    let upstream = Cutting::start().await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&upstream.origin));
    upstream.serve(Framing::Length, &document("a"), usize::MAX, false);
    operator.turn(fenv(1, &upstream.spec())).await;
    let before = cluster.get(CORE).unwrap();

    let mut generation = 1;
    for framing in [Framing::Length, Framing::Chunks, Framing::Close] {
        // After the last brace, only the end of the framing is missing.
        let last = framed(framing, &document("b").to_string()).len();
        for share in [0, 20, 60, 80, 95, 100] {
            let cut = (last * share / 100).min(last - 1);
            generation += 1;
            let asked = *upstream.answered.lock().unwrap();
            upstream.serve(framing, &document("b"), cut, share % 40 == 0);
            let mut object = fenv(generation, &upstream.spec());
            object["status"] = cluster.last_status();
            operator.turn(object).await;
            assert!(*upstream.answered.lock().unwrap() > asked, "{framing:?} cut at {cut}: nobody asked");
            assert_eq!(cluster.get(CORE).unwrap(), before, "{framing:?} cut at {cut} of {last}");
            assert_eq!(cluster.last_status()["revision"], before["metadata"]["annotations"]["remora.dev/revision"]);
            is(&cluster.last_status(), "Ready", ("True", "LastGood"));
        }
    }

    upstream.serve(Framing::Chunks, &document("b"), usize::MAX, false);
    operator.turn(fenv(generation + 1, &upstream.spec())).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
    assert_ne!(cluster.get(CORE).unwrap()["binaryData"], before["binaryData"]);
}

/// An environment that outgrows all parts of a core is refused as a whole, reported, and published again when it fits.
#[tokio::test]
async fn document_grown_beyond_all_parts_leaves_last_good_published() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let before = cluster.get(CORE).unwrap();

    let mut grown = document("a");
    grown["updated_at"] = json!("2026-11-21T00:00:00+00:00");
    for number in 0..70 {
        let value = format!("{number:05}").repeat(25_000);
        let feature = json!({
            "feature": {"id": 100 + number, "name": format!("flag {number}"), "type": "STANDARD"}, "enabled": true,
            "django_id": 100 + number, "feature_state_value": value, "multivariate_feature_state_values": [],
        });
        grown["feature_states"].as_array_mut().unwrap().push(feature);
    }
    cluster.put(&flags(&grown));
    let mut object = reported(&cluster, 1);
    object["metadata"]["generation"] = json!(2);
    operator.turn(object).await;
    is(&cluster.last_status(), "Published", ("False", "CapacityExceeded"));
    is(&cluster.last_status(), "Ready", ("True", "LastGood"));
    assert_eq!(cluster.get(CORE).unwrap(), before);
    assert_eq!(cluster.ours().len(), 1, "a part of it was published");
    let metrics = operator.metrics.text().unwrap();
    assert!(metrics.contains(r#"outcome="CapacityExceeded"} 1"#), "it is not counted:\n{metrics}");

    grown["feature_states"].as_array_mut().unwrap().truncate(20);
    cluster.put(&flags(&grown));
    let mut object = reported(&cluster, 2);
    object["metadata"]["generation"] = json!(3);
    operator.turn(object).await;
    // The status gives new pods room for the core first.
    pass(Duration::from_secs(16)).await;
    operator.turn(reported(&cluster, 3)).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
    assert_ne!(cluster.get(CORE).unwrap()["binaryData"], before["binaryData"]);
    assert!(cluster.ours().len() > 3, "the core is not in parts");
}
