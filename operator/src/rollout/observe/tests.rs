//! Sidecars on real sockets, a watch that shows their pods, and an API server that patches them.

use std::{convert::Infallible, net::Ipv4Addr, time::Duration};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body, runtime::watcher::Event};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::{mpsc, watch},
    time::timeout,
};

use super::*;
use crate::{
    api::{
        ObjectKind,
        names::{FORMAT, Format},
    },
    rollout::{RunningPodsFeed, nudge::Patches, running_pods},
    source::trigger::{Trigger, TriggerRequest},
};

/// Longer than any step of these tests takes.
const CAP: Duration = Duration::from_secs(30);

struct State {
    feed: RunningPodsFeed,
    pods: Vec<Value>,
    /// Pod and annotation, in order.
    patches: Vec<(String, String)>,
    /// Number of requests that sidecars have received.
    asked: usize,
    /// True if the API server answers requests.
    answers: watch::Sender<bool>,
}

#[derive(Clone)]
struct Cluster(Arc<Mutex<State>>);

impl Cluster {
    fn new() -> (Self, RunningPods) {
        let (pods, mut feed) = running_pods();
        feed.apply_watcher_event(&Event::Init);
        feed.apply_watcher_event(&Event::InitDone);
        let state = State { feed, pods: Vec::new(), patches: Vec::new(), asked: 0, answers: watch::Sender::new(true) };
        (Self(Arc::new(Mutex::new(state))), pods)
    }

    fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                assert_eq!(parts.method, "PATCH", "{}", parts.uri);
                let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
                let patch: Value = serde_json::from_slice(&body).unwrap();
                let set = patch.as_array().unwrap().last().unwrap();
                assert_eq!(set["path"], "/metadata/annotations/remora.dev~1revision.storefront");
                let value = set["value"].as_str().unwrap();
                let mut answers = {
                    let mut state = cluster.0.lock();
                    state.patches.push((name.clone(), value.to_owned()));
                    state.answers.subscribe()
                };
                answers.wait_for(|answers| *answers).await.unwrap();
                let answer = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": name}});
                Ok::<_, Infallible>(Response::new(Body::from(serde_json::to_vec(&answer).unwrap())))
            }
        });
        Client::new(service, "shop")
    }

    /// Adds a pod whose sidecar gives this answer, or closes the connection without one.
    async fn pod(&self, name: &str, memory: Option<&str>, answer: Arc<Mutex<Option<String>>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cluster = self.clone();
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                cluster.0.lock().asked += 1;
                let answer = answer.lock().clone();
                tokio::spawn(async move {
                    let mut request = [0; 1024];
                    let length = connection.read(&mut request).await.unwrap();
                    assert!(request[..length].starts_with(b"GET /revisions HTTP/1.1\r\n"));
                    if let Some(text) = answer {
                        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
                        connection.write_all(text.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        let resources = memory.map_or(json!({}), |memory| json!({"limits": {"memory": memory}}));
        let pod = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "annotations": {"remora.dev/inject": "storefront"}},
            "spec": {"containers": [], "initContainers": [{
                "name": "remora", "restartPolicy": "Always", "resources": resources,
                "ports": [{"name": "remora-admin", "containerPort": port}],
            }]},
            "status": {"podIP": "127.0.0.1", "initContainerStatuses": [
                {"name": "remora", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}},
            ]},
        });
        self.change(|pods| pods.push(pod));
    }

    /// Changes the pods, and shows the last one to the watch.
    fn change(&self, change: impl FnOnce(&mut Vec<Value>)) {
        let mut state = self.0.lock();
        change(&mut state.pods);
        let last = state.pods.last().unwrap().clone();
        state.feed.apply_watcher_event(&Event::Apply(serde_json::from_value(last).unwrap()));
    }

    /// Makes the volume of the last pod one of this format.
    fn mount(&self, format: Format) {
        let core = json!({"configMap": {"name": format!("remora-storefront-{format}-core")}});
        let volume = json!({"name": "remora-storefront", "projected": {"sources": [core]}});
        self.change(|pods| pods.last_mut().unwrap()["spec"]["volumes"] = json!([volume]));
    }

    fn patches(&self) -> Vec<(String, String)> {
        self.0.lock().patches.clone()
    }
}

fn serves(revision: &str) -> Arc<Mutex<Option<String>>> {
    Arc::new(Mutex::new(Some(format!("other 0000\nstorefront {revision}\n"))))
}

struct Scene {
    cluster: Cluster,
    observer: Observer,
    requests: mpsc::Receiver<TriggerRequest>,
}

impl Scene {
    fn new(pause_factor: f64) -> Self {
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let (cluster, pods) = Cluster::new();
        let client = cluster.client();
        let (triggers, requests) = TriggerSender::new();
        let deps = Deps {
            nudger: Nudger::new(client, pods.clone(), Patches::default()),
            pods,
            sidecars: SidecarClient::new().unwrap(),
            triggers,
            pause_factor,
        };
        Self { cluster, observer: Observer { deps: Arc::new(deps), observations: Tasks::default() }, requests }
    }

    fn observe(&self, revision: &str) -> Option<Pods> {
        self.observer.observe(ObservationTarget {
            uid: "uid-1".into(),
            namespace: "shop".to_owned(),
            environment: "storefront".parse().unwrap(),
            revision: Revision::new(revision),
            bytes: 12_000_000,
            object_kind: ObjectKind::ConfigMap,
            has_other_kind: false,
            slots: Slots { overrides: 8, core_parts: 0 },
            nudge: true,
            published_at: None,
        })
    }

    /// Waits for the next report.
    async fn report(&mut self, revision: &str) -> Pods {
        let request = timeout(CAP, self.requests.recv()).await.expect("no report").unwrap();
        assert_eq!((request.environment.name.as_str(), request.trigger), ("storefront", Trigger::Report));
        self.observe(revision).unwrap()
    }
}

#[tokio::test]
async fn pods_that_serve_the_revision_are_counted_once_and_not_notified() {
    // Rounds follow after 60 ms once all pods serve the revision.
    let mut scene = Scene::new(0.0002);
    for name in ["web-1", "web-2", "web-3"] {
        scene.cluster.pod(name, None, serves("aa")).await;
    }
    assert_eq!(scene.observe("aa"), None);
    let pods = scene.report("aa").await;
    assert_eq!(
        (pods.revision.as_ref().map(Revision::as_str), pods.total, pods.current, pods.behind),
        (Some("aa"), 3, 3, 0)
    );
    assert_eq!(pods.problem, None);
    assert!(scene.cluster.patches().is_empty());
    // The same counts request no reconciliation.
    assert!(timeout(Duration::from_millis(200), scene.requests.recv()).await.is_err());
}

#[tokio::test]
async fn pod_behind_is_notified_again_until_it_serves_the_revision() {
    let mut scene = Scene::new(0.02);
    let late = serves("aa");
    scene.cluster.pod("web-1", None, serves("bb")).await;
    scene.cluster.pod("web-2", None, Arc::clone(&late)).await;
    scene.observe("bb");
    let nudged = async {
        while scene.cluster.patches().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(CAP, nudged).await.expect("no pod is notified");
    *late.lock() = Some("storefront bb\n".to_owned());
    loop {
        let pods = scene.report("bb").await;
        if pods.behind == 0 {
            assert_eq!((pods.current, pods.problem), (2, None));
            break;
        }
    }
    // The value differs from the previous one, and only the pod that was behind gets it.
    let patches = scene.cluster.patches();
    assert_eq!(patches[0], ("web-2".to_owned(), "bb 2".to_owned()));
    assert!(patches.iter().all(|(pod, _)| pod == "web-2"), "{patches:?}");
}

#[tokio::test]
async fn pod_is_neither_asked_nor_notified_again_before_it_is_notified() {
    let scene = Scene::new(0.1);
    scene.cluster.pod("web-1", None, serves("aa")).await;
    scene.observe("bb");
    // The first rounds would begin after 0.2 s and 0.5 s, and wait for at most 3 s.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.cluster.0.lock().asked, 0);
    assert!(scene.cluster.patches().is_empty(), "{:?}", scene.cluster.patches());
    let told = json!("bb");
    scene
        .cluster
        .change(|pods| pods.last_mut().unwrap()["metadata"]["annotations"]["remora.dev/revision.storefront"] = told);
    let again = async {
        while scene.cluster.patches().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(CAP, again).await.expect("the pod is not notified again");
}

#[tokio::test]
async fn pod_is_not_notified_again_while_the_notification_is_in_progress() {
    let scene = Scene::new(0.005);
    scene.cluster.pod("web-1", None, serves("aa")).await;
    scene.cluster.0.lock().answers.send_replace(false);
    let nudger = scene.observer.deps.nudger.clone();
    let first =
        tokio::spawn(
            async move { nudger.nudge("shop", &"storefront".parse().unwrap(), &Revision::new("bb"), None).await },
        );
    scene.observe("bb");
    let eventually = async |what: &str, holds: &dyn Fn(&State) -> bool| {
        let waiting = async {
            while !holds(&scene.cluster.0.lock()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(CAP, waiting).await.expect(what);
    };
    // The rounds begin although the notification takes longer than they wait for it.
    eventually("the pod is asked in three rounds", &|state| state.asked >= 3).await;
    assert_eq!(scene.cluster.patches(), [("web-1".to_owned(), "bb".to_owned())]);
    scene.cluster.0.lock().answers.send_replace(true);
    first.await.unwrap().unwrap();
    eventually("the pod is notified again", &|state| state.patches.len() > 1).await;
}

/// A pod that starts after the notification never gets the annotation.
#[tokio::test]
async fn pod_that_starts_after_the_notification_does_not_delay_the_report() {
    let mut scene = Scene::new(1.0);
    scene.cluster.pod("web-1", None, serves("bb")).await;
    scene.observe("bb");
    tokio::time::sleep(Duration::from_millis(100)).await;
    scene.cluster.change(|pods| pods[0]["metadata"]["annotations"]["remora.dev/revision.storefront"] = json!("bb"));
    scene.cluster.pod("web-2", None, serves("bb")).await;
    let pods = scene.report("bb").await;
    assert_eq!((pods.current, pods.total), (2, 2), "{pods:?}");
}

/// The volume of a pod with limits on memory is a tmpfs of that size, and an update needs room for two snapshots.
#[tokio::test]
async fn pod_that_cannot_update_is_reported_with_its_cause() {
    let mut scene = Scene::new(0.01);
    scene.cluster.pod("small", Some("20Mi"), serves("aa")).await;
    scene.cluster.pod("late", None, serves("aa")).await;
    scene.cluster.pod("silent", None, Arc::default()).await;
    scene.observe("bb");
    let problem = loop {
        if let Some(problem) = scene.report("bb").await.problem {
            break problem;
        }
    };
    assert!(problem.contains("1 pod (small): the memory limits leave 20971520 bytes"), "{problem}");
    assert!(problem.contains("an update needs 24000000"), "{problem}");
    assert!(problem.contains("1 pod (late): serving another revision"), "{problem}");
    assert!(problem.contains("1 pod (silent): no answer"), "{problem}");
    let times: Vec<String> =
        scene.cluster.patches().into_iter().filter(|(pod, _)| pod == "late").map(|(_, text)| text).collect();
    assert_eq!(times[..3], ["bb 2", "bb 3", "bb 4"]);
}

#[tokio::test]
async fn pod_that_stays_silent_is_not_asked_in_each_round() {
    let mut scene = Scene::new(0.01);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let asked = Arc::new(Mutex::new(0));
    scene.cluster.pod("silent", None, Arc::default()).await;
    let port = listener.local_addr().unwrap().port();
    scene.cluster.change(|pods| pods[0]["spec"]["initContainers"][0]["ports"][0]["containerPort"] = json!(port));
    scene.cluster.pod("late", None, serves("aa")).await;
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            // Each connection is closed without an answer.
            drop(listener.accept().await.unwrap());
            *counted.lock() += 1;
        }
    });
    scene.observe("bb");
    let notified_eight_times = async {
        while scene.cluster.patches().iter().filter(|(pod, _)| pod == "late").count() < 8 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(CAP, notified_eight_times).await.expect("too few rounds");
    // Four of eight rounds ask.
    assert!(*asked.lock() < 8, "{} connections", asked.lock());
    assert_eq!(scene.report("bb").await.silent, 1);
}

/// The pod's volume names objects of another version, so that no update can reach it.
#[tokio::test]
async fn pod_of_other_format_is_reported_and_neither_asked_nor_notified() {
    let mut scene = Scene::new(0.01);
    let format = FORMAT.earlier().next().unwrap();
    // A pod that is not asked does not count as silent.
    scene.cluster.pod("old", None, Arc::default()).await;
    scene.cluster.mount(format);
    scene.cluster.pod("late", None, serves("aa")).await;
    scene.observe("bb");
    let pods = loop {
        let pods = scene.report("bb").await;
        if pods.problem.as_ref().is_some_and(|problem| problem.contains("late")) {
            break pods;
        }
    };
    assert_eq!((pods.total, pods.current, pods.behind, pods.silent), (2, 0, 2, 0));
    let problem = pods.problem.unwrap();
    assert!(
        problem.starts_with(&format!(
            "1 pod (old): the volume names objects of format {format}, and format {FORMAT} is published;"
        )),
        "{problem}"
    );
    assert!(problem.contains("1 pod (late): serving another revision;"), "{problem}");
    assert!(scene.cluster.patches().iter().all(|(pod, _)| pod == "late"), "{:?}", scene.cluster.patches());
}

#[tokio::test]
async fn observation_ends_with_its_environment() {
    let mut scene = Scene::new(0.01);
    scene.cluster.pod("web-1", None, serves("aa")).await;
    scene.observe("bb");
    let storefront = NamespacedName::new("shop", "storefront");
    let is_observed = |scene: &Scene| scene.observer.observations.get(&storefront).is_some();
    assert!(is_observed(&scene));
    scene.observer.stop(&storefront);
    assert!(!is_observed(&scene));
    scene.observe("bb");
    scene.observer.retain(|_, uid| uid.as_str() != "uid-1");
    assert!(!is_observed(&scene));
    assert!(timeout(Duration::from_millis(200), scene.requests.recv()).await.is_err());
    assert!(scene.cluster.patches().is_empty());
}
