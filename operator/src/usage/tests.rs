//! Sidecars and a server on real sockets, a watch of their pods, and an API server that has the key's Secret and nothing else.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    net::Ipv4Addr,
    time::Duration,
};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body, runtime::watcher::Event};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::*;
use crate::{
    rollout::{RunningPodsFeed, running_pods},
    source::{
        fetch::{AllowedOrigins, FetcherOptions, SystemLookup},
        trigger::{Trigger, TriggerRequest},
    },
};

/// Longer than any step of these tests takes.
const CAP: Duration = Duration::from_secs(30);

/// Counts by the flag's name.
type Counts = BTreeMap<String, u64>;

fn shop(name: &str) -> NamespacedName {
    NamespacedName::new("shop", name)
}

/// A sidecar, whose counters a test sets.
#[derive(Default)]
struct Sidecar {
    process: String,
    age_ms: u64,
    counts: Counts,
    /// Number of next answers that are lost.
    loses: usize,
    /// Number of requests.
    asked: usize,
}

impl Sidecar {
    fn used(&mut self, flag: &str, times: u64) {
        *self.counts.entry(flag.to_owned()).or_default() += times;
    }
}

/// A fault of the server.
enum Behaviour {
    /// The server answers this status and stores no counts.
    Refuse(u16),
    /// The server stores the counts, and closes the connection without an answer.
    StoreAndBreakOff,
}

/// A server that stores counts.
#[derive(Default)]
struct Server {
    stored: Counts,
    requests: usize,
    script: VecDeque<Behaviour>,
}

/// Reads a request, and returns its head in lower case and its body.
async fn read(connection: &mut TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    loop {
        assert_ne!(connection.read_buf(&mut bytes).await.unwrap(), 0, "the request broke off");
        let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        let body = bytes.split_off(end + 4);
        if body.len() >= length {
            return (head, body);
        }
        bytes.extend(body);
    }
}

async fn write(connection: &mut TcpStream, status: u16, body: &str) {
    let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    connection.write_all(answer.as_bytes()).await.unwrap();
}

struct Scene {
    pods: Mutex<RunningPodsFeed>,
    /// Number of times that the Secret with the key was read.
    keys_read: Arc<Mutex<usize>>,
    server: Arc<Mutex<Server>>,
    collector: Collector,
    target: CollectionTarget,
    requests: mpsc::Receiver<TriggerRequest>,
}

impl Scene {
    /// Creates a collector whose rounds are some 60 ms apart.
    async fn new() -> Self {
        Self::with_memory(BYTES_MAX).await
    }

    async fn with_memory(bytes: usize) -> Self {
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let (running, mut pods) = running_pods();
        pods.apply_watcher_event(&Event::Init);
        pods.apply_watcher_event(&Event::InitDone);
        let keys_read: Arc<Mutex<usize>> = Arc::default();
        let read = Arc::clone(&keys_read);
        let service = tower::service_fn(move |request: Request<Body>| {
            let read = Arc::clone(&read);
            async move {
                let (parts, body) = request.into_parts();
                body.collect().await.unwrap();
                let answer = match parts.uri.path() {
                    "/api/v1/namespaces/shop/secrets/flagsmith" => {
                        *read.lock() += 1;
                        let metadata = json!({"name": "flagsmith", "labels": {"remora.dev/environment-key": "true"}});
                        // `ser.key` in base64.
                        json!({"metadata": metadata, "data": {"environment-key": "c2VyLmtleQ=="}})
                    }
                    other => panic!("nobody makes this call: {other}"),
                };
                Ok::<_, Infallible>(Response::new(Body::from(serde_json::to_vec(&answer).unwrap())))
            }
        });
        let client = Client::new(service, "shop");
        let server: Arc<Mutex<Server>> = Arc::default();
        let origin = serve(Arc::clone(&server)).await;
        let allowed = AllowedOrigins::new(&[origin.parse().unwrap()]).unwrap();
        let (triggers, requests) = TriggerSender::new();
        let context = Context {
            fetcher: Arc::new(Fetcher::new(client, FetcherOptions::new(allowed), Arc::new(SystemLookup))),
            pods: running,
            sidecars: SidecarClient::new().unwrap(),
            triggers,
            metrics: UsageMetrics::default(),
            memory: Memory::new(bytes),
            pause_factor: 0.001,
        };
        let reference = json!({"name": "flagsmith"});
        let flagsmith = json!({"apiUrl": format!("{origin}/api/v1/"), "environmentKeySecretRef": reference});
        let target = CollectionTarget {
            uid: "uid-1".into(),
            namespace: "shop".to_owned(),
            environment: "storefront".parse().unwrap(),
            flagsmith: serde_json::from_value(flagsmith).unwrap(),
        };
        Self {
            pods: Mutex::new(pods),
            keys_read,
            server,
            collector: Collector { context: Arc::new(context), collections: Tasks::default() },
            target,
            requests,
        }
    }

    /// Adds a pod whose sidecar answers with these counters.
    async fn pod(&self, name: &str, sidecar: Sidecar) -> Arc<Mutex<Sidecar>> {
        self.pod_with(&json!({"name": name, "uid": name}), sidecar).await
    }

    /// Adds a pod with this metadata, and with the annotation.
    async fn pod_with(&self, metadata: &Value, sidecar: Sidecar) -> Arc<Mutex<Sidecar>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let sidecar = Arc::new(Mutex::new(sidecar));
        let answering = Arc::clone(&sidecar);
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let (head, _) = read(&mut connection).await;
                assert!(head.starts_with("get /uses/storefront http/1.1\r\n"), "{head}");
                let answer = {
                    let mut sidecar = answering.lock();
                    sidecar.asked += 1;
                    let is_lost = sidecar.loses > 0;
                    sidecar.loses = sidecar.loses.saturating_sub(1);
                    let Sidecar { process, age_ms, counts, .. } = &*sidecar;
                    (!is_lost).then(|| json!({"process": process, "ageMs": age_ms, "uses": counts}).to_string())
                };
                if let Some(answer) = answer {
                    write(&mut connection, 200, &answer).await;
                }
            }
        });
        let mut metadata = metadata.clone();
        metadata["namespace"] = json!("shop");
        metadata["annotations"] = json!({"remora.dev/inject": "storefront"});
        let pod = json!({
            "metadata": metadata,
            "spec": {"containers": [], "initContainers": [{
                "name": "remora", "restartPolicy": "Always", "ports": [{"name": "remora-admin", "containerPort": port}],
            }]},
            "status": {"podIP": "127.0.0.1", "initContainerStatuses": [
                {"name": "remora", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}},
            ]},
        });
        self.pods.lock().apply_watcher_event(&Event::Apply(serde_json::from_value(pod).unwrap()));
        sidecar
    }

    fn collect(&self) -> Option<String> {
        self.collect_with(None)
    }

    /// Collects while this key is known.
    fn collect_with(&self, key: Option<&str>) -> Option<String> {
        let key = key.map(|key| EnvironmentKey::new(key.as_bytes()).unwrap());
        self.collector.ensure(&shop("storefront"), Some(self.target.clone()), key.as_ref())
    }

    fn stored(&self) -> Counts {
        self.server.lock().stored.clone()
    }

    fn script(&self, behaviours: impl IntoIterator<Item = Behaviour>) {
        self.server.lock().script.extend(behaviours);
    }

    /// Waits until the server has stored exactly these counts.
    async fn stores<const N: usize>(&self, expected: [(&str, u64); N]) {
        let expected: Counts = expected.map(|(flag, count)| (flag.to_owned(), count)).into();
        until(|| self.stored() == expected, || format!("{:?} instead of {expected:?}", self.stored())).await;
    }

    /// Waits until a collector that reads in rounds has read this sidecar so many times more.
    async fn reads(&self, sidecar: &Mutex<Sidecar>, times: usize) {
        let before = sidecar.lock().asked;
        until(|| sidecar.lock().asked >= before + times, || "the sidecar is not asked".to_owned()).await;
    }

    /// Waits for the next report, and returns the state for the status.
    async fn report(&mut self) -> String {
        let request = tokio::time::timeout(CAP, self.requests.recv()).await.expect("no report").unwrap();
        assert_eq!((request.environment.name.as_str(), request.trigger), ("storefront", Trigger::Report));
        self.collect().unwrap()
    }
}

async fn until(mut holds: impl FnMut() -> bool, what: impl Fn() -> String) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(CAP, wait).await.is_err() {
        panic!("{}", what());
    }
}

/// Starts the server, and returns its origin.
async fn serve(server: Arc<Mutex<Server>>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let (head, body) = read(&mut connection).await;
            assert!(head.starts_with("post /api/v1/analytics/flags/ http/1.1\r\n"), "{head}");
            assert!(
                head.contains("\r\nx-environment-key: ser.key") && head.contains("\r\ncontent-type: application/json"),
                "{head}"
            );
            let counts: Counts = serde_json::from_slice(&body).unwrap();
            assert!(!counts.is_empty() && counts.values().all(|count| *count > 0), "{counts:?}");
            let answer = {
                let mut server = server.lock();
                server.requests += 1;
                let behaviour = server.script.pop_front();
                if !matches!(behaviour, Some(Behaviour::Refuse(_))) {
                    for (flag, count) in counts {
                        *server.stored.entry(flag).or_default() += count;
                    }
                }
                match behaviour {
                    None => Some(200),
                    Some(Behaviour::Refuse(status)) => Some(status),
                    Some(Behaviour::StoreAndBreakOff) => None,
                }
            };
            if let Some(status) = answer {
                write(&mut connection, status, "").await;
            }
        }
    });
    origin
}

fn sidecar(process: &str) -> Sidecar {
    Sidecar { process: process.to_owned(), ..Sidecar::default() }
}

#[tokio::test]
async fn counts_sent_equal_counts_made() {
    let scene = Scene::new().await;
    let [one, two] = [scene.pod("web-1", sidecar("p1")).await, scene.pod("web-2", sidecar("p2")).await];
    assert_eq!(scene.collect().as_deref(), Some("collecting"));
    one.lock().used("banner", 3);
    two.lock().used("banner", 4);
    two.lock().used("dark mode", 1);
    scene.stores([("banner", 7), ("dark mode", 1)]).await;

    // Answers of a sidecar are lost, and the server fails.
    one.lock().loses = 3;
    scene.script([500, 503, 429, 403, 404].map(Behaviour::Refuse));
    for _ in 0..10 {
        one.lock().used("banner", 1);
        two.lock().used("limit", 2);
        scene.reads(&two, 1).await;
    }
    scene.stores([("banner", 17), ("dark mode", 1), ("limit", 20)]).await;
    assert!(scene.server.lock().script.is_empty());

    // A sidecar begins again, and a pod is new.
    *two.lock() = Sidecar { counts: Counts::from([("limit".to_owned(), 5)]), ..sidecar("p2 again") };
    let mut third = sidecar("p3");
    third.used("banner", 100);
    scene.pod("web-3", third).await;
    scene.stores([("banner", 117), ("dark mode", 1), ("limit", 25)]).await;
    let requests = scene.server.lock().requests;
    scene.reads(&one, 3).await;
    assert_eq!(scene.server.lock().requests, requests, "nothing new is nothing to send");
}

#[tokio::test]
async fn used_flags_are_named_once_with_their_day() {
    let scene = Scene::new().await;
    let pod = scene.pod("web-1", sidecar("p1")).await;
    let before = today();
    scene.collect();
    pod.lock().used("banner", 3);
    scene.stores([("banner", 3)]).await;
    let used = scene.collector.used(&shop("storefront"));
    assert!(used.len() == 1 && &*used[0].0 == "banner" && (before..=today()).contains(&used[0].1), "{used:?}");
    scene.reads(&pod, 2).await;
    assert_eq!(scene.collector.used(&shop("storefront")), []);
    assert_eq!(scene.collector.used(&shop("another")), []);
}

#[tokio::test]
async fn uses_before_the_collection_are_not_sent() {
    let scene = Scene::new().await;
    let mut old = Sidecar { age_ms: 3_600_000, ..sidecar("p1") };
    old.used("banner", 1_000_000);
    let old = scene.pod("web-1", old).await;
    scene.collect();
    scene.reads(&old, 2).await;
    old.lock().used("banner", 2);
    scene.stores([("banner", 2)]).await;
}

#[tokio::test]
async fn uses_that_may_have_arrived_are_not_sent_again() {
    let scene = Scene::new().await;
    let pod = scene.pod("web-1", sidecar("p1")).await;
    scene.script([Behaviour::StoreAndBreakOff, Behaviour::Refuse(504)]);
    pod.lock().used("banner", 3);
    scene.collect();
    scene.stores([("banner", 3)]).await;
    pod.lock().used("banner", 10);
    until(|| scene.server.lock().script.is_empty(), || "the server is not asked again".to_owned()).await;
    scene.reads(&pod, 2).await;
    pod.lock().used("banner", 100);
    scene.stores([("banner", 103)]).await;
    // The server stores uses before the collector has its answer and counts them.
    let sums = || ["Unconfirmed", "Sent", "Dropped"].map(|fate| scene.collector.context.metrics.sum(fate));
    until(|| sums() == [13, 100, 0], || format!("{:?} instead of [13, 100, 0]", sums())).await;
}

#[tokio::test]
async fn failures_in_a_row_are_reported_until_the_source_takes_counts() {
    let mut scene = Scene::new().await;
    let pod = scene.pod("web-1", sidecar("p1")).await;
    scene.script([500, 500, 500].map(Behaviour::Refuse));
    pod.lock().used("banner", 3);
    scene.collect();
    let problem = scene.report().await;
    assert!(problem.starts_with("not sent: http://127.0.0.1:") && problem.contains("HTTP 500"), "{problem}");
    assert_eq!(scene.stored(), Counts::new());
    assert_eq!(scene.report().await, "collecting");
    scene.stores([("banner", 3)]).await;
}

#[tokio::test]
async fn pod_without_room_in_memory_is_reported_and_others_are_collected() {
    let mut scene = Scene::with_memory(1000).await;
    let mut large = sidecar("p1");
    for number in 0..100 {
        large.used(&format!("flag-{number}"), 1);
    }
    scene.pod("web-1", large).await;
    let small = scene.pod("web-2", sidecar("p2")).await;
    small.lock().used("banner", 3);
    scene.collect();
    let state = scene.report().await;
    assert_eq!(
        state,
        "collecting, without 1 of the pods: the 33554432 bytes for counts of all environments have no room for more of this namespace"
    );
    scene.stores([("banner", 3)]).await;
}

#[tokio::test]
async fn known_key_saves_reading_its_secret_until_the_source_refuses_it() {
    let scene = Scene::new().await;
    let pod = scene.pod("web-1", sidecar("p1")).await;
    scene.collect_with(Some("ser.key"));
    pod.lock().used("banner", 3);
    scene.stores([("banner", 3)]).await;
    assert_eq!(*scene.keys_read.lock(), 0);
    scene.script([Behaviour::Refuse(401)]);
    pod.lock().used("banner", 2);
    scene.stores([("banner", 5)]).await;
    assert_eq!(*scene.keys_read.lock(), 1, "the Secret may hold another key by now");
}

#[tokio::test]
async fn pod_that_is_being_deleted_is_still_read() {
    let scene = Scene::new().await;
    let metadata = json!({"name": "web-1", "uid": "web-1", "deletionTimestamp": "2026-11-21T00:00:00Z"});
    let pod = scene.pod_with(&metadata, sidecar("p1")).await;
    pod.lock().used("banner", 3);
    scene.collect();
    scene.stores([("banner", 3)]).await;
}

#[tokio::test]
async fn collection_ends_with_its_environment() {
    let scene = Scene::new().await;
    let pod = scene.pod("web-1", sidecar("p1")).await;
    for end in [0, 1] {
        scene.collect();
        scene.reads(&pod, 1).await;
        match end {
            0 => assert_eq!(scene.collector.ensure(&shop("storefront"), None, None), None),
            _ => scene.collector.retain(|_, uid| uid.as_str() != "uid-1"),
        }
        assert!(scene.collector.collections.get(&shop("storefront")).is_none());
        pod.lock().used("banner", 3);
        let asked = pod.lock().asked;
        tokio::time::sleep(Duration::from_millis(200)).await;
        // One request may have been under way.
        assert!(pod.lock().asked <= asked + 1);
        assert_eq!(scene.stored(), Counts::new());
        pod.lock().counts.clear();
    }
}
