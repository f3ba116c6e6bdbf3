//! Tests the auditor and the self-check against a simulated API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{body::Body, http::Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::Client;
use prometheus_client::registry::Registry;
use remora_operator::injection::{
    auditor::{self, Auditor, Options},
    self_check::{self, SelfCheck},
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::service_fn;

/// A simulated API server: its objects and the requests that it got.
#[derive(Clone, Default)]
struct Cluster(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    pods: Vec<Value>,
    evicted: Vec<Value>,
    events: Vec<Value>,
    /// Number of pods that were read in full.
    read: usize,
    /// Name of a pod that cannot be read.
    unreadable: Option<String>,
    /// True if a new pod gets its sidecar.
    injects: bool,
    created: Vec<String>,
}

impl Cluster {
    fn with<T>(&self, touch: impl FnOnce(&mut State) -> T) -> T {
        touch(&mut self.0.lock().unwrap())
    }

    fn client(&self) -> Client {
        let cluster = self.clone();
        let answer = move |request: http::Request<kube::client::Body>| {
            let cluster = cluster.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (status, body) = cluster.with(|state| state.answer(&head, &body));
                let response = Response::builder().status(status).header("content-type", "application/json");
                Ok::<_, Infallible>(response.body(Body::from(body.to_string())).unwrap())
            }
        };
        Client::new(service_fn(answer), "default")
    }

    /// Waits until the condition is true. The clock of these tests is paused and advances only while they wait.
    async fn until(&self, what: &str, condition: impl Fn(&State) -> bool) {
        for _ in 0..10_000 {
            if self.with(|state| condition(state)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("never: {what}");
    }
}

impl State {
    fn answer(&mut self, head: &http::request::Parts, body: &[u8]) -> (u16, Value) {
        let (method, path) = (head.method.as_str(), head.uri.path());
        let query = head.uri.query().unwrap_or_default();
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        let metadata_only =
            head.headers.get("accept").is_some_and(|mime| mime.to_str().unwrap().contains("PartialObjectMetadata"));
        match (method, path) {
            ("GET", "/api/v1/pods") => {
                assert!(metadata_only, "all pods of a cluster are never read whole");
                assert!(query.contains("labelSelector=remora.dev%2Fsidecar%21%3Dinjected"), "{query}");
                let items: Vec<_> = self.pods.iter().map(|pod| json!({"metadata": pod["metadata"]})).collect();
                // The list is answered in two pages.
                let (first, rest) = items.split_at(items.len() / 2);
                let (page, next) = if query.contains("continue=") { (rest, "") } else { (first, "next") };
                (
                    200,
                    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                             "metadata": {"continue": next}, "items": page}),
                )
            }
            ("GET", _) if path.starts_with("/api/v1/namespaces/") && path.ends_with("/pods") => {
                self.read += 1;
                if self.unreadable.as_ref().is_some_and(|name| query.contains(name)) {
                    return (500, json!({"kind": "Status", "status": "Failure", "code": 500, "message": "no"}));
                }
                let name = query.split("metadata.name%3D").nth(1).unwrap().split('&').next().unwrap();
                let items: Vec<_> = self.pods.iter().filter(|pod| pod["metadata"]["name"] == name).collect();
                (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
            }
            ("GET", _) => {
                assert!(metadata_only);
                let name = path.rsplit('/').next().unwrap();
                let labels = if name == "out" { json!({"remora.dev/admission": "disabled"}) } else { json!({}) };
                (
                    200,
                    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                             "metadata": {"name": name, "labels": labels}}),
                )
            }
            ("POST", _) if path.ends_with("/eviction") => {
                self.evicted.push(sent());
                let name = path.rsplit('/').nth(1).unwrap();
                if name.starts_with("kept") {
                    return (
                        429,
                        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429,
                                        "reason": "TooManyRequests", "message": "disruption budget"}),
                    );
                }
                self.pods.retain(|pod| pod["metadata"]["name"] != name);
                (201, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            ("POST", "/api/v1/namespaces/remora-system/pods") => {
                self.created.push(query.to_owned());
                let mut pod = sent();
                if self.injects {
                    pod["spec"]["initContainers"] = json!([{"name": "remora", "restartPolicy": "Always"}]);
                }
                (201, pod)
            }
            ("POST" | "PATCH", _) if path.contains("/events") => {
                let mut event = sent();
                event["apiVersion"] = json!("events.k8s.io/v1");
                event["kind"] = json!("Event");
                self.events.push(event.clone());
                (201, event)
            }
            _ => panic!("{method} {path}?{query}"),
        }
    }
}

fn pod(namespace: &str, name: &str, inject: &str, owner: Option<&str>) -> Value {
    let owners: Vec<_> = owner
        .map(|kind| json!({"apiVersion": "apps/v1", "kind": kind, "name": format!("o-{name}"), "uid": format!("o-{name}"), "controller": true}))
        .into_iter()
        .collect();
    json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owners,
            "annotations": {"remora.dev/inject": inject},
        },
        "spec": {"containers": [{"name": "web", "image": "shop/web:1"}]},
    })
}

fn options(evict: bool) -> Options {
    Options {
        own_namespace: "remora-system".to_owned(),
        watch_namespaces: Vec::new(),
        excluded_namespaces: vec!["payments".to_owned()],
        evict,
    }
}

struct Audit {
    cluster: Cluster,
    registry: Registry,
    works: watch::Sender<Option<Timestamp>>,
    running: tokio::task::JoinHandle<Infallible>,
}

fn audit(pods: Vec<Value>, evict: bool) -> Audit {
    let cluster = Cluster::default();
    cluster.with(|state| state.pods = pods);
    let mut registry = Registry::default();
    let metrics = auditor::Metrics::register(&mut registry);
    let (works, since) = watch::channel(None);
    let auditor = Auditor::new(cluster.client(), options(evict), "test".to_owned(), metrics, since);
    Audit { running: tokio::spawn(auditor.run()), cluster, registry, works }
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

fn reasons(state: &State, kind: &str) -> Vec<(String, String)> {
    let about = |event: &&Value| event["regarding"]["kind"] == kind;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = state.events.iter().filter(about);
    found.map(|event| (text(&event["reason"]), text(&event["regarding"]["name"]))).collect()
}

#[tokio::test(start_paused = true)]
async fn pod_without_sidecar_is_counted_and_reported_once() {
    let mut complete = pod("shop", "complete", "a", None);
    complete["spec"]["initContainers"] = json!([{"name": "remora", "restartPolicy": "Always"}]);
    let mut node = pod("shop", "node", "a", None);
    node["spec"]["hostNetwork"] = json!(true);
    let pods = vec![
        pod("shop", "web", "a", Some("ReplicaSet")),
        pod("shop", "bare", "a", None),
        pod("shop", "wrong", "A", Some("ReplicaSet")),
        pod("shop", "declines", "false", None),
        pod("out", "out", "a", None),
        pod("payments", "excluded", "a", None),
        pod("kube-system", "system", "a", None),
        complete,
        node,
    ];
    let audit = audit(pods, false);
    let looks = |count: usize| format!("remora_injection_audits_total{{outcome=\"Done\"}} {count}");
    audit.cluster.until("three looks", |_| text(&audit.registry).contains(&looks(3))).await;

    let metrics = text(&audit.registry);
    assert!(metrics.contains("remora_injection_missing_pods{namespace=\"shop\"} 3"), "{metrics}");
    assert_eq!(metrics.matches("remora_injection_missing_pods{").count(), 1, "{metrics}");
    audit.cluster.with(|state| {
        assert_eq!(state.read, 5, "each that may lack one was read once, in three looks");
        let told = |name: &str| ("NotInjected".to_owned(), name.to_owned());
        assert_eq!(reasons(state, "Pod"), [told("web"), told("bare"), told("wrong")]);
        assert_eq!(reasons(state, "ReplicaSet"), [told("o-web"), told("o-wrong")]);
        let refused = state.events.iter().any(|event| {
            event["note"]
                .as_str()
                .unwrap()
                .contains("a replacement would be denied: annotation remora.dev/inject is \"A\"")
        });
        assert!(refused, "{:?}", state.events);
        assert_eq!(state.evicted, [] as [Value; 0]);
        // Without pods, the metric must lose all of its series.
        state.pods.clear();
    });
    audit.cluster.until("it heals", |_| !text(&audit.registry).contains("remora_injection_missing_pods{")).await;
    audit.running.abort();
}

#[tokio::test(start_paused = true)]
async fn pod_that_cannot_be_read_leaves_audit_of_others_as_it_is() {
    let pods = ["a", "unreadable", "c"].map(|name| pod("shop", name, "storefront", Some("ReplicaSet")));
    let audit = audit(pods.to_vec(), false);
    audit.cluster.with(|state| state.unreadable = Some("unreadable".to_owned()));
    let two = r#"remora_injection_missing_pods{namespace="shop"} 2"#;
    audit.cluster.until("an audit ends", |_| text(&audit.registry).contains(r#"outcome="ReadPod"} 1"#)).await;
    assert!(text(&audit.registry).contains(two), "{}", text(&audit.registry));
    audit.cluster.with(|state| state.unreadable = None);
    let three = r#"remora_injection_missing_pods{namespace="shop"} 3"#;
    audit.cluster.until("all pods are counted", |_| text(&audit.registry).contains(three)).await;
    audit.running.abort();
}

#[tokio::test(start_paused = true)]
async fn evictions_wait_until_injection_works_and_name_pod_by_uid() {
    let pods = vec![
        pod("shop", "web", "a", Some("ReplicaSet")),
        pod("shop", "bare", "a", None),
        pod("shop", "wrong", "A", Some("ReplicaSet")),
        pod("shop", "kept", "a", Some("StatefulSet")),
    ];
    let audit = audit(pods, true);
    let looks = |count: usize| format!("remora_injection_audits_total{{outcome=\"Done\"}} {count}");
    audit.cluster.until("two looks", |_| text(&audit.registry).contains(&looks(2))).await;
    assert_eq!(audit.cluster.with(|state| state.evicted.len()), 0, "they would come back as they were");

    audit.works.send_replace(Some(Timestamp::now()));
    audit.cluster.until("both are tried", |state| state.evicted.len() >= 2).await;
    audit.cluster.with(|state| {
        let asked: Vec<_> = state.evicted.iter().map(|eviction| &eviction["metadata"]["name"]).collect();
        assert_eq!(asked, ["kept", "web"]);
        assert_eq!(state.evicted[1]["deleteOptions"]["preconditions"]["uid"], "uid-web");
    });
    audit
        .cluster
        .until("it is told", |state| {
            reasons(state, "Pod")
                .iter()
                .any(|(reason, name)| (reason.as_str(), name.as_str()) == ("EvictedForInjection", "web"))
        })
        .await;
    let blocked = "remora_injection_evictions_total{outcome=\"Blocked\"}";
    audit.cluster.until("the budget is counted", |_| text(&audit.registry).contains(blocked)).await;
    audit.running.abort();
}

/// Returns the names of the pods that the auditor tried to evict.
fn tried(state: &State) -> Vec<String> {
    let name = |eviction: &Value| eviction["metadata"]["name"].as_str().unwrap().to_owned();
    state.evicted.iter().map(name).collect()
}

#[tokio::test(start_paused = true)]
async fn blocked_evictions_of_one_namespace_hold_up_no_other() {
    let kept = (0..12).map(|number| pod("aaa", &format!("kept-{number:02}"), "a", Some("StatefulSet")));
    let audit = audit(kept.chain([pod("shop", "web", "a", Some("ReplicaSet"))]).collect(), true);
    audit.works.send_replace(Some(Timestamp::now()));
    audit.cluster.until("the other namespace has its turn", |state| tried(state).contains(&"web".to_owned())).await;
    audit.running.abort();
}

#[tokio::test(start_paused = true)]
async fn evictions_go_on_after_blocked_ones_until_ten_pods_are_evicted() {
    let kept = (0..30).map(|number| pod("shop", &format!("kept-{number:02}"), "a", Some("StatefulSet")));
    let evictable = (0..12).map(|number| pod("shop", &format!("web-{number:02}"), "a", Some("ReplicaSet")));
    let audit = audit(kept.chain(evictable).collect(), true);
    audit.works.send_replace(Some(Timestamp::now()));
    audit.cluster.until("forty are tried", |state| state.evicted.len() >= 40).await;
    // The next audit follows a minute after this one.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let names = audit.cluster.with(|state| tried(state));
    assert!(names.len() == 40 && names.iter().skip(30).all(|name| name.starts_with("web")), "{names:?}");
    audit.cluster.until("the next audit goes on", |state| tried(state).contains(&"web-11".to_owned())).await;
    audit.cluster.with(|state| assert_eq!(tried(state)[40..42], ["web-10", "web-11"]));
    audit.running.abort();
}

#[tokio::test(start_paused = true)]
async fn self_check_makes_replica_ready_once_and_keeps_reporting() {
    let cluster = Cluster::default();
    let mut registry = Registry::default();
    let metrics = self_check::Metrics::register(&mut registry);
    let (ready, gate) = watch::channel(false);
    let (since, works) = watch::channel(None);
    let check = SelfCheck::new(cluster.client(), "remora-system", "operator:1", metrics, ready, since);
    let running = tokio::spawn(check.run());
    let says = |text_of_it: &str| text(&registry).contains(text_of_it);

    cluster.until("it asks", |_| says("remora_injection_checks_total{outcome=\"NotInjected\"} 2")).await;
    assert!(!*gate.borrow() && works.borrow().is_none() && says("\nremora_injection_works 0\n"));
    cluster.with(|state| state.injects = true);
    cluster.until("it works", |_| says("\nremora_injection_works 1\n")).await;
    assert!(*gate.borrow());
    let first = works.borrow().expect("since when");
    cluster.until("it works again", |_| says("remora_injection_checks_total{outcome=\"Injected\"} 2")).await;
    assert_eq!(*works.borrow(), Some(first), "one row of successes");

    cluster.with(|state| state.injects = false);
    cluster.until("it is told", |_| says("\nremora_injection_works 0\n")).await;
    assert!(works.borrow().is_none());
    assert!(*gate.borrow(), "readiness is not taken back");
    cluster
        .with(|state| assert!(state.created.iter().all(|query| query.contains("dryRun=All")), "{:?}", state.created));
    running.abort();
}
