//! Documents that exceed the compiler's limits: their environment reports it, and no other environment is affected.

use std::{
    convert::Infallible,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body, core::DeserializeGuard};
use remora_operator::{
    api::FeatureEnvironment,
    compiler::Compiler,
    controller::{
        leader::{Election, LeaseFence},
        reconcile::reconcile,
    },
    source::fetch::DOCUMENT_MAX,
};
use serde_json::{Value, json};

use super::{
    CORE, Cluster, Operator, document, fenv, flags, is,
    program::{directory, script},
    reported,
    upstream::Upstream,
};

const LONG: Duration = Duration::from_secs(60);
/// Script that compiles every environment except `bad`.
const DISPATCH: &str = "\
    cat > $directory/$$\n\
    if grep -q '\"environment\":\"bad\"' $directory/$$; then\n\
      printf 'p\\022\\000\\000\\000segment \"beta\" (7)'\n\
      touch $directory/began\n";

fn otherwise_compile(text: &str) -> String {
    format!("{DISPATCH}{text}\nfi\nexec \"$operator\" \"$@\" < $directory/$$")
}

fn operator(cluster: &Cluster, directory: &Path, text: &str) -> Operator {
    let compiler = Compiler::with_program(script(directory, &otherwise_compile(text)), DOCUMENT_MAX);
    Operator::start_compiling(cluster, &[], LONG, compiler)
}

/// Returns the FeatureEnvironment `bad`, which gets the test's own behaviour in place of the compiler.
fn bad() -> Value {
    let mut object = fenv(1, &json!({}));
    object["metadata"]["name"] = json!("bad");
    object["metadata"]["uid"] = json!("uid-2");
    object
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

fn message(status: &Value, kind: &str) -> String {
    let conditions = status["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap()["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn failed_child_sets_condition_with_cause_and_segment() {
    for (text, reason, says) in [
        ("kill -ABRT $$", "CompileCrashed", "signal 6"),
        ("kill -SEGV $$", "CompileCrashed", "stack"),
        ("ulimit -S -t 1; while :; do :; done", "CompileOutOfTime", "CPU time"),
        ("echo 'memory allocation of 99 bytes failed' >&2; kill -ABRT $$", "CompileOutOfMemory", "256 MiB"),
    ] {
        let cluster = Cluster::default();
        cluster.put(&flags(&document("a")));
        let mut operator = operator(&cluster, &directory(), text);
        operator.turn(bad()).await;
        let status = cluster.last_status();
        is(&status, "Fetched", ("True", "Synced"));
        is(&status, "Published", ("False", reason));
        is(&status, "Ready", ("False", "NothingPublished"));
        let message = message(&status, "Published");
        assert!(message.contains(says) && message.contains("segment \"beta\" (7)"), "{message}");
    }
}

#[tokio::test]
async fn failed_child_leaves_last_good_published() {
    let (cluster, directory) = (Cluster::default(), directory());
    cluster.put(&flags(&document("a")));
    let mut operator = operator(&cluster, &directory, "[ -e $directory/end ] && kill -ABRT $$");
    let core = CORE.replace("storefront", "bad");
    operator.turn(bad()).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));
    let before = cluster.get(&core).unwrap();
    fs::write(directory.join("end"), "").unwrap();
    cluster.put(&flags(&document("b")));
    let mut edited = bad();
    edited["metadata"]["generation"] = json!(2);
    edited["status"] = cluster.last_status();
    operator.turn(edited).await;
    is(&cluster.last_status(), "Ready", ("True", "LastGood"));
    is(&cluster.last_status(), "Published", ("False", "CompileCrashed"));
    assert_eq!(cluster.get(&core).unwrap(), before);
}

/// Returns an API server with one Lease that counts renewals.
fn leases(renewed: &Arc<Mutex<usize>>) -> Client {
    let (lease, renewed): (Arc<Mutex<Option<Value>>>, _) = (Arc::default(), Arc::clone(renewed));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (lease, renewed) = (Arc::clone(&lease), Arc::clone(&renewed));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let mut lease = lease.lock().unwrap();
            if parts.method != Method::GET {
                let mut written: Value = serde_json::from_slice(&body).unwrap();
                *renewed.lock().unwrap() += 1;
                written["metadata"]["resourceVersion"] = json!(renewed.lock().unwrap().to_string());
                *lease = Some(written);
            }
            let missing = json!({"status": "Failure", "message": "not found", "reason": "NotFound", "code": 404});
            let (code, answer) = lease.clone().map_or((404, missing), |lease| (200, lease));
            Ok::<_, Infallible>(
                Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap(),
            )
        }
    });
    Client::new(service, "remora-system")
}

#[tokio::test]
async fn spinning_child_stops_neither_lease_nor_other_environments() {
    let (cluster, directory) = (Cluster::default(), directory());
    cluster.put(&flags(&document("a")));
    let mut operator = operator(&cluster, &directory, "while [ ! -e $directory/end ]; do :; done; kill -ABRT $$");
    operator.turn(fenv(1, &json!({}))).await;
    is(&cluster.last_status(), "Published", ("True", "Published"));

    let renewed = Arc::new(Mutex::new(0));
    let election =
        Election::new(leases(&renewed), "remora-system", "lease", "me".to_owned(), None, LeaseFence::default());
    election.acquire().await;
    let keeping = tokio::spawn(async move { election.renew_until_lost().await });

    let of = |object: Value| -> Arc<DeserializeGuard<FeatureEnvironment>> {
        Arc::new(serde_json::from_value(object).unwrap())
    };
    let spinning = tokio::spawn(reconcile(of(bad()), Arc::clone(&operator.context)));
    until("the child did not start", || directory.join("began").exists()).await;

    // Published objects are checked at once; a new document is published when the compiler is free.
    let before = cluster.take(CORE).unwrap();
    operator.turn(reported(&cluster, 1)).await;
    assert_eq!(cluster.get(CORE).unwrap()["binaryData"], before["binaryData"]);
    cluster.put(&flags(&document("b")));
    cluster.observe(&mut operator.writer);
    let edited = fenv(2, &json!({}));
    let publishing = tokio::spawn(reconcile(of(edited), Arc::clone(&operator.context)));
    let count = *renewed.lock().unwrap();
    until("the lease was not renewed", || *renewed.lock().unwrap() > count).await;
    assert!(!spinning.is_finished() && !keeping.is_finished(), "it does not spin any more");
    // The object is deleted while its own document waits for the compiler.
    cluster.take(CORE);
    cluster.observe(&mut operator.writer);
    until("what is published did not come back", || cluster.get(CORE).is_some()).await;
    assert!(!spinning.is_finished(), "it does not spin any more");

    fs::write(directory.join("end"), "").unwrap();
    spinning.await.unwrap().unwrap();
    publishing.await.unwrap().unwrap();
    assert_ne!(cluster.get(CORE).unwrap()["binaryData"], before["binaryData"]);
    keeping.abort();
}

#[tokio::test]
async fn malformed_answer_keeps_state_of_last_document() {
    let cluster = Cluster::default();
    let upstream = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&upstream.origin));
    operator.turn(fenv(1, &upstream.spec())).await;
    upstream.serve(&json!({"api_key": "canary"}));
    operator.turn(fenv(2, &upstream.spec())).await;
    is(&cluster.last_status(), "Fetched", ("False", "ParseError"));
    assert!(!cluster.last_status().to_string().contains("canary"));
}

#[tokio::test]
async fn changing_pages_are_fetched_three_times() {
    for (rests_after, reason, asked) in [(1, "Synced", 4), (usize::MAX, "PagesChanged", 6)] {
        let cluster = Cluster::default();
        let upstream = Upstream::paged(rests_after).await;
        let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&upstream.origin));
        operator.turn(fenv(1, &upstream.spec())).await;
        let expected = if reason == "Synced" { "True" } else { "False" };
        is(&cluster.last_status(), "Fetched", (expected, reason));
        assert_eq!(upstream.asked(), asked);
    }
}
