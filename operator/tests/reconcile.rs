//! Tests reconciliations against a simulated API server that records every call.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

#[path = "reconcile/changes.rs"]
mod changes;
#[path = "reconcile/cluster.rs"]
mod cluster;
#[path = "reconcile/collecting.rs"]
mod collecting;
#[path = "reconcile/formats.rs"]
mod formats;
#[path = "reconcile/freshness.rs"]
mod freshness;
#[path = "reconcile/history.rs"]
mod history;
#[path = "reconcile/holding.rs"]
mod holding;
#[path = "reconcile/keys.rs"]
mod keys;
#[path = "reconcile/labelled.rs"]
mod labelled;
#[path = "reconcile/memory.rs"]
mod memory;
#[path = "reconcile/namespaces.rs"]
mod namespaces;
#[path = "reconcile/object_kinds.rs"]
mod object_kinds;
#[path = "reconcile/outages.rs"]
mod outages;
#[path = "reconcile/parts.rs"]
mod parts;
#[path = "reconcile/processes.rs"]
mod processes;
#[path = "compiler/program.rs"]
mod program;
#[path = "reconcile/publishing.rs"]
mod publishing;
#[path = "reconcile/receiving.rs"]
mod receiving;
#[path = "reconcile/refresh.rs"]
mod refresh;
#[path = "reconcile/rollout.rs"]
mod rollout;
#[path = "reconcile/room.rs"]
mod room;
#[path = "reconcile/slow.rs"]
mod slow;
#[path = "reconcile/storm.rs"]
mod storm;
#[path = "reconcile/turns.rs"]
mod turns;
#[path = "reconcile/upstream.rs"]
mod upstream;
#[path = "reconcile/watches.rs"]
mod watches;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::{core::DeserializeGuard, runtime::controller::Action};
use remora_operator::{
    api::FeatureEnvironment,
    compiler::Compiler,
    controller::{
        metrics::Metrics,
        reconcile::{Context, Deps, SNAPSHOTS_MAX, reconcile},
    },
    memory::Memory,
    publish::ObjectsFeed,
    rollout::{RunningPodsFeed, running_pods, sidecar::SidecarClient},
    source::{
        fetch::{AllowedOrigins, DOCUMENT_MAX, Fetcher, FetcherOptions, Origin, SystemLookup},
        receiver::WebhookReceiver,
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use cluster::{Cluster, fenv, watch};
use program::OPERATOR;

const CORE: &str = "remora-storefront-v3-core";

/// One run of the operator. Its state ends with it, while the cluster stays.
struct Operator {
    cluster: Cluster,
    context: Arc<Context>,
    writer: ObjectsFeed,
    pods: RunningPodsFeed,
    receiver: WebhookReceiver,
    metrics: Metrics,
}

impl Operator {
    fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &[])
    }

    fn start_with(cluster: &Cluster, origins: &[Origin]) -> Self {
        Self::start_patient(cluster, origins, Duration::from_secs(600))
    }

    /// Starts an operator that keeps unused objects for `grace`.
    fn start_patient(cluster: &Cluster, origins: &[Origin], grace: Duration) -> Self {
        Self::start_compiling(cluster, origins, grace, Compiler::with_program(OPERATOR, DOCUMENT_MAX))
    }

    /// Starts an operator that keeps so many bytes of snapshots.
    fn start_within(cluster: &Cluster, bytes: usize) -> Self {
        let compiler = Compiler::with_program(OPERATOR, DOCUMENT_MAX);
        Self::start_bounded(cluster, &[], Duration::from_secs(600), compiler, bytes, true)
    }

    /// Starts an operator with this compiler.
    fn start_compiling(cluster: &Cluster, origins: &[Origin], grace: Duration, compiler: Compiler) -> Self {
        Self::start_bounded(cluster, origins, grace, compiler, SNAPSHOTS_MAX, true)
    }

    /// Starts an operator that may publish no Secrets.
    fn start_without_secrets(cluster: &Cluster) -> Self {
        let compiler = Compiler::with_program(OPERATOR, DOCUMENT_MAX);
        Self::start_bounded(cluster, &[], Duration::from_secs(600), compiler, SNAPSHOTS_MAX, false)
    }

    fn start_bounded(
        cluster: &Cluster,
        origins: &[Origin],
        grace: Duration,
        compiler: Compiler,
        snapshot_bytes: usize,
        publishes_secrets: bool,
    ) -> Self {
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let (objects, writer) = watch();
        let client = cluster.client();
        let allowed = AllowedOrigins::new(origins).unwrap();
        let fetcher = Fetcher::new(client.clone(), FetcherOptions::new(allowed), Arc::new(SystemLookup));
        let metrics = Metrics::default();
        let sidecars = SidecarClient::new().unwrap();
        let receiver = WebhookReceiver::default();
        receiver.set_leading(true);
        let deps = Deps {
            fetcher: Arc::new(fetcher),
            compiler: Arc::new(compiler),
            client,
            sidecars,
            webhook_receiver: receiver.clone(),
            metrics: metrics.clone(),
            memory: Memory::with_reserve(snapshot_bytes),
            instance: "test".to_owned(),
            publishes_secrets,
        };
        let (running, pods) = running_pods();
        let context = Context::new(deps, objects, running, grace);
        Self { cluster: cluster.clone(), context: Arc::new(context), writer, pods, receiver, metrics }
    }

    /// Updates the operator's caches, reconciles once, and returns the action and the API calls.
    async fn turn(&mut self, object: Value) -> (Action, Vec<String>) {
        self.cluster.observe(&mut self.writer);
        self.cluster.observe_pods(&mut self.pods);
        self.cluster.calls();
        let object: DeserializeGuard<FeatureEnvironment> = serde_json::from_value(object).unwrap();
        let action = reconcile(Arc::new(object), Arc::clone(&self.context)).await.unwrap();
        (action, self.cluster.calls())
    }
}

/// Returns the requeue time of a reconciliation. `Action` keeps it private, so it is parsed from the debug output.
fn wait(action: &Action) -> Duration {
    let text = format!("{action:?}");
    let number = text.split(['(', ')']).nth(1).unwrap_or_else(|| panic!("no time in {text}"));
    let unit = number.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let value: f64 = number.trim_end_matches(unit).parse().unwrap();
    let seconds = match unit {
        "s" => value,
        "ms" => value / 1e3,
        "µs" => value / 1e6,
        _ => panic!("no unit of time in {text}"),
    };
    Duration::from_secs_f64(seconds)
}

/// Moves the operator's clock forward.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Waits until a condition holds.
async fn until(condition: &str, holds: impl Fn() -> bool) {
    let held = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), held).await.unwrap_or_else(|_| panic!("not in time: {condition}"));
}

/// Lets the other tasks run until they wait.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Returns the calls that write or delete published objects.
fn writes(calls: &[String]) -> Vec<&String> {
    calls.iter().filter(|call| call.starts_with("patch ") || call.starts_with("delete ")).collect()
}

/// Asserts that one report follows all other calls, and one Event the report.
fn assert_ends_in_report(calls: &[String], event: &str) {
    let count = |prefix: &str| calls.iter().filter(|call| call.starts_with(prefix)).count();
    assert!(calls.ends_with(&["report".to_owned(), event.to_owned()]), "{calls:?}");
    assert_eq!((count("report"), count("event ")), (1, 1), "{calls:?}");
}

/// True if a call reads the ConfigMap that is the source.
fn asks_source(calls: &[String]) -> bool {
    calls.iter().any(|call| call == "get flags")
}

fn compiler() -> Arc<Compiler> {
    Arc::new(Compiler::with_program(OPERATOR, DOCUMENT_MAX))
}

fn flags(document: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flags", "namespace": "shop"},
        "data": {"environment.json": document.to_string()},
    })
}

fn document(name: &str) -> Value {
    let feature = json!({
        "feature": {"id": 1, "name": name, "type": "STANDARD"}, "enabled": true, "django_id": 1,
        "feature_state_value": null, "multivariate_feature_state_values": [],
    });
    json!({"id": 1, "api_key": "client", "updated_at": "2026-11-20T00:00:00+00:00", "project": {}, "feature_states": [feature]})
}

fn condition(status: &Value, kind: &str) -> (String, String) {
    let conditions = status["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
    (found["status"].as_str().unwrap().to_owned(), found["reason"].as_str().unwrap().to_owned())
}

fn is(status: &Value, kind: &str, expected: (&str, &str)) {
    assert_eq!(condition(status, kind), (expected.0.to_owned(), expected.1.to_owned()), "{kind}");
}

/// Returns how the published snapshot is delivered, without the size of its core, which is the newest one.
fn delivery(cluster: &Cluster) -> Value {
    let status = cluster.last_status();
    let mut delivery = status["delivery"].clone();
    let core_bytes = delivery.as_object_mut().unwrap().remove("coreBytes");
    assert!(core_bytes.is_some() && core_bytes.as_ref() == status.get("coreBytes"), "{status}");
    delivery
}

/// Returns the object with the status of the last report.
fn reported(cluster: &Cluster, generation: i64) -> Value {
    let mut object = fenv(generation, &json!({}));
    object["status"] = cluster.last_status();
    object
}

#[tokio::test]
async fn first_reconciliation_publishes_then_reports_then_records_event() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    let (_, calls) = operator.turn(fenv(1, &json!({}))).await;
    assert!(asks_source(&calls), "{calls:?}");
    assert_eq!(writes(&calls), [&format!("patch {CORE}")]);
    assert_ends_in_report(&calls, "event Published");
    let status = cluster.last_status();
    is(&status, "Ready", ("True", "Published"));
    assert_eq!(status["features"], 1);
    let published = cluster.get(CORE).unwrap();
    assert_eq!(published["metadata"]["ownerReferences"][0]["uid"], "uid-1");
    assert_eq!(published["metadata"]["annotations"]["remora.dev/revision"], status["revision"]);
}

#[tokio::test]
async fn reconciliation_without_change_makes_no_call() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let (action, calls) = operator.turn(reported(&cluster, 1)).await;
    assert!(calls.is_empty(), "{calls:?}");
    assert_ne!(action, Action::await_change());
}

#[tokio::test]
async fn deleted_core_is_restored_from_memory() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let before = cluster.take(CORE).unwrap();
    let (_, calls) = operator.turn(reported(&cluster, 1)).await;
    assert!(!asks_source(&calls), "{calls:?}");
    assert_eq!(cluster.get(CORE).unwrap()["binaryData"], before["binaryData"]);
}

/// Starts a server that answers one request, and accepts later connections without an answer. Returns its origin and
/// the number of connections.
async fn server_that_falls_silent() -> (Origin, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        let body = document("a").to_string();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        let mut silent = Vec::new();
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            if silent.is_empty() {
                let _ = connection.read(&mut [0; 4096]).await.unwrap();
                connection.write_all(answer.as_bytes()).await.unwrap();
            }
            silent.push(connection);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (origin, asked)
}

#[tokio::test]
async fn deleted_core_is_restored_while_source_is_silent() {
    let cluster = Cluster::default();
    let (origin, _) = server_that_falls_silent().await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&origin));
    let source =
        json!({"flagsmith": {"apiUrl": format!("{origin}/api/v1/"), "environmentKeySecretRef": {"name": "flagsmith"}}});
    let spec = json!({"source": source, "refresh": {"timeout": "10m"}});
    operator.turn(fenv(1, &spec)).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));

    let edited: DeserializeGuard<FeatureEnvironment> = serde_json::from_value(fenv(2, &spec)).unwrap();
    let waiting = tokio::spawn(reconcile(Arc::new(edited), Arc::clone(&operator.context)));
    cluster.take(CORE);
    cluster.observe(&mut operator.writer);
    let back = async {
        while cluster.get(CORE).is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), back).await.expect("it did not come back");
    assert!(!waiting.is_finished(), "the source was not silent");
    waiting.abort();
}

#[tokio::test]
async fn altered_core_is_written_again() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let before = cluster.get(CORE).unwrap();
    let mut altered = before.clone();
    altered["binaryData"]["core"] = json!("AAAA");
    cluster.put(&altered);
    let (_, calls) = operator.turn(reported(&cluster, 1)).await;
    assert!(!asks_source(&calls), "{calls:?}");
    assert_eq!(cluster.get(CORE).unwrap()["binaryData"], before["binaryData"]);
}

#[tokio::test]
async fn object_of_another_owner_is_not_touched() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    cluster.put_foreign(CORE);
    let before = cluster.get(CORE);
    let mut operator = Operator::start(&cluster);
    let (action, calls) = operator.turn(fenv(1, &json!({}))).await;
    assert!(writes(&calls).is_empty() && calls.contains(&"event Conflict".to_owned()), "{calls:?}");
    let status = cluster.last_status();
    is(&status, "Published", ("False", "Conflict"));
    is(&status, "Ready", ("False", "NothingPublished"));
    assert_eq!(cluster.get(CORE), before);
    assert_ne!(action, Action::await_change());
    // An object with Remora's labels and another controller is a conflict too.
    let mut labelled = cluster.take(CORE).unwrap();
    labelled["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "uid-2", "controller": true}]);
    labelled["metadata"]["labels"] =
        json!({"app.kubernetes.io/managed-by": "remora", "remora.dev/environment": "storefront"});
    cluster.put(&labelled);
    let mut fresh = Operator::start(&cluster);
    let (_, calls) = fresh.turn(fenv(1, &json!({}))).await;
    assert!(!calls.contains(&format!("patch {CORE}")), "{calls:?}");
}

#[tokio::test]
async fn restart_with_failing_source_changes_nothing() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    Operator::start(&cluster).turn(fenv(1, &json!({}))).await;
    let (before, object) = (cluster.get(CORE), reported(&cluster, 1));
    cluster.take("flags");

    let mut restarted = Operator::start(&cluster);
    let mut edited = object.clone();
    edited["metadata"]["generation"] = json!(2); // a new generation is reconciled at once
    let (_, calls) = restarted.turn(edited.clone()).await;
    assert!(asks_source(&calls) && writes(&calls).is_empty(), "{calls:?}");
    assert_ends_in_report(&calls, "event ConfigMapNotFound");
    assert_eq!(cluster.get(CORE), before);
    let status = cluster.last_status();
    is(&status, "Ready", ("True", "LastGood"));
    is(&status, "Accepted", ("False", "ConfigMapNotFound"));
    is(&status, "Stale", ("False", "Behind"));
    assert_eq!(status["revision"], object["status"]["revision"]);

    // The restarted operator has recovered the published bytes, and restores them without the source.
    cluster.take(CORE);
    restarted.turn(edited).await;
    assert_eq!(cluster.get(CORE).unwrap()["binaryData"], before.unwrap()["binaryData"]);
}

#[tokio::test]
async fn restart_after_success_delays_first_fetch() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    Operator::start(&cluster).turn(fenv(1, &json!({}))).await;
    let (_, calls) = Operator::start(&cluster).turn(reported(&cluster, 1)).await;
    assert!(calls.is_empty(), "{calls:?}");
}

#[tokio::test]
async fn edited_spec_is_reconciled_at_once() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let mut edited = fenv(2, &json!({"prune": {"features": {"exclude": ["a"]}}}));
    edited["status"] = cluster.last_status();
    let (_, calls) = operator.turn(edited).await;
    assert!(asks_source(&calls) && writes(&calls).contains(&&format!("patch {CORE}")), "{calls:?}");
    assert_eq!(cluster.last_status()["features"], 0);
    assert_eq!(cluster.last_status()["observedGeneration"], 2);
}

#[tokio::test]
async fn invalid_pattern_is_reported_before_any_fetch() {
    let cluster = Cluster::default();
    let mut operator = Operator::start(&cluster);
    let (_, calls) = operator.turn(fenv(1, &json!({"prune": {"features": {"include": ["[a"]}}}))).await;
    assert!(!asks_source(&calls) && calls.contains(&"event InvalidPattern".to_owned()), "{calls:?}");
    is(&cluster.last_status(), "Accepted", ("False", "InvalidPattern"));
}

#[tokio::test]
async fn suspended_environment_only_reports() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    cluster.take(CORE);
    let mut suspended = fenv(2, &json!({"suspend": true}));
    suspended["status"] = cluster.last_status();
    let (action, calls) = operator.turn(suspended).await;
    assert_eq!(action, Action::await_change());
    assert!(!asks_source(&calls) && writes(&calls).is_empty(), "{calls:?}");
    assert!(calls.contains(&"event NothingPublished".to_owned()), "{calls:?}");
    is(&cluster.last_status(), "Accepted", ("True", "Suspended"));
}

#[tokio::test]
async fn malformed_document_leaves_last_good_published() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let before = cluster.get(CORE);
    cluster.put(&flags(&json!({"api_key": "canary"})));
    let mut edited = fenv(2, &json!({}));
    edited["status"] = cluster.last_status();
    let (_, calls) = operator.turn(edited).await;
    assert!(writes(&calls).is_empty() && calls.contains(&"event ParseError".to_owned()), "{calls:?}");
    assert_eq!(cluster.get(CORE), before);
    let status = cluster.last_status();
    is(&status, "Fetched", ("False", "ParseError"));
    is(&status, "Ready", ("True", "LastGood"));
    assert!(!status.to_string().contains("canary"));
}

#[tokio::test]
async fn exceeded_quota_has_its_own_reason() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    cluster.refuse(CORE, 403, "configmaps \"x\" is forbidden: exceeded quota: few, requested: 1, used: 1, limited: 1");
    let mut operator = Operator::start(&cluster);
    let (action, _) = operator.turn(fenv(1, &json!({}))).await;
    is(&cluster.last_status(), "Published", ("False", "QuotaExceeded"));
    is(&cluster.last_status(), "Fetched", ("True", "Synced"));
    // The next attempt does not fetch the source.
    cluster.relent();
    pass(wait(&action)).await;
    let (_, calls) = operator.turn(reported(&cluster, 1)).await;
    assert!(!asks_source(&calls), "{calls:?}");
    is(&cluster.last_status(), "Ready", ("True", "Published"));
}

#[tokio::test]
async fn environment_being_deleted_is_ignored() {
    let cluster = Cluster::default();
    let mut operator = Operator::start(&cluster);
    let mut object = fenv(1, &json!({}));
    object["metadata"]["deletionTimestamp"] = json!("2026-11-20T00:00:00Z");
    let (action, calls) = operator.turn(object).await;
    assert_eq!((action, calls), (Action::await_change(), Vec::new()));
}

#[tokio::test]
async fn unreadable_environment_is_ignored() {
    let cluster = Cluster::default();
    let mut operator = Operator::start(&cluster);
    let mut object = fenv(1, &json!({}));
    object["spec"]["source"] = json!(7);
    let (action, calls) = operator.turn(object).await;
    assert_eq!((action, calls), (Action::await_change(), Vec::new()));
}
