//! Sidecars on real sockets, and an API server that lists and patches their pods.

use std::{convert::Infallible, net::Ipv4Addr, time::Duration};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    time::timeout,
};

use super::*;
use crate::{
    api::Carrier,
    names::Format,
    wake::{Call, Haste},
};

/// Longer than anything here takes, on any machine.
const CAP: Duration = Duration::from_secs(30);

#[derive(Default)]
struct State {
    pods: Vec<Value>,
    /// Pod and annotation, in order.
    told: Vec<(String, String)>,
}

#[derive(Clone, Default)]
struct Cluster(Arc<Mutex<State>>);

impl Cluster {
    fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let mut state = cluster.0.lock().unwrap();
                let answer = if parts.method == "PATCH" {
                    let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
                    let patch: Value = serde_json::from_slice(&body).unwrap();
                    let told = patch["metadata"]["annotations"]["remora.dev/revision.storefront"].as_str().unwrap();
                    state.told.push((name.clone(), told.to_owned()));
                    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": name}})
                } else {
                    assert_eq!(parts.uri.path(), "/api/v1/namespaces/shop/pods");
                    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": state.pods})
                };
                Ok::<_, Infallible>(Response::new(Body::from(serde_json::to_vec(&answer).unwrap())))
            }
        });
        Client::new(service, "shop")
    }

    /// A pod whose sidecar answers this; or nothing, on a port where nobody listens.
    async fn pod(&self, name: &str, memory: Option<&str>, answer: Arc<Mutex<Option<String>>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let answer = answer.lock().unwrap().clone();
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
        self.0.lock().unwrap().pods.push(json!({
            "metadata": {"name": name, "uid": name, "annotations": {"remora.dev/inject": "storefront"}},
            "spec": {"containers": [], "initContainers": [{
                "name": "remora", "restartPolicy": "Always", "resources": resources,
                "ports": [{"name": "remora-admin", "containerPort": port}],
            }]},
            "status": {"podIP": "127.0.0.1", "initContainerStatuses": [
                {"name": "remora", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}},
            ]},
        }));
    }

    /// The pod that came last was admitted by a version of this format.
    fn mount(&self, format: Format) {
        let core = json!({"configMap": {"name": format!("remora-storefront-{format}-core")}});
        let volume = json!({"name": "remora-storefront", "projected": {"sources": [core]}});
        self.0.lock().unwrap().pods.last_mut().unwrap()["spec"]["volumes"] = json!([volume]);
    }

    fn told(&self) -> Vec<(String, String)> {
        self.0.lock().unwrap().told.clone()
    }
}

fn serves(revision: &str) -> Arc<Mutex<Option<String>>> {
    Arc::new(Mutex::new(Some(format!("other 0000\nstorefront {revision}\n"))))
}

struct Scene {
    cluster: Cluster,
    followers: Followers,
    calls: mpsc::Receiver<Call>,
}

impl Scene {
    fn new(pace: f64) -> Self {
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let cluster = Cluster::default();
        let client = cluster.client();
        let (wake, calls) = Wake::new();
        let means = Means { nudger: Nudger::new(client.clone()), client, asker: Asker::new().unwrap(), wake, pace };
        Self { cluster, followers: Followers { means: Arc::new(means), attended: Mutex::default() }, calls }
    }

    fn attend(&self, revision: &str) -> Option<Pods> {
        self.followers.attend(Subject {
            uid: "uid-1".to_owned(),
            namespace: "shop".to_owned(),
            environment: "storefront".parse().unwrap(),
            revision: revision.to_owned(),
            bytes: 12_000_000,
            carrier: Carrier::ConfigMap,
            overrides_files: 8,
            nudge: true,
        })
    }

    /// The next report.
    async fn report(&mut self, revision: &str) -> Pods {
        let call = timeout(CAP, self.calls.recv()).await.expect("nobody reports").unwrap();
        assert_eq!((call.name.as_str(), call.haste), ("storefront", Haste::Look));
        self.attend(revision).unwrap()
    }
}

#[tokio::test]
async fn pods_that_follow_are_counted_once_and_left_alone() {
    let mut scene = Scene::new(0.01);
    for name in ["web-1", "web-2", "web-3"] {
        scene.cluster.pod(name, None, serves("aa")).await;
    }
    assert_eq!(scene.attend("aa"), None);
    let pods = scene.report("aa").await;
    assert_eq!((pods.revision.as_deref(), pods.total, pods.current, pods.behind), (Some("aa"), 3, 3, 0));
    assert_eq!(pods.problem, None);
    assert!(scene.cluster.told().is_empty());
    // The same again is no news.
    assert!(timeout(Duration::from_millis(200), scene.calls.recv()).await.is_err());
}

#[tokio::test]
async fn a_pod_that_is_behind_is_nudged_again_and_then_current() {
    let mut scene = Scene::new(0.02);
    let late = serves("aa");
    scene.cluster.pod("web-1", None, serves("bb")).await;
    scene.cluster.pod("web-2", None, Arc::clone(&late)).await;
    scene.attend("bb");
    let nudged = async {
        while scene.cluster.told().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(CAP, nudged).await.expect("nobody is nudged");
    *late.lock().unwrap() = Some("storefront bb\n".to_owned());
    loop {
        let pods = scene.report("bb").await;
        if pods.behind == 0 {
            assert_eq!((pods.current, pods.problem), (2, None));
            break;
        }
    }
    // In other words than before, and only to the one that was behind.
    let told = scene.cluster.told();
    assert_eq!(told[0], ("web-2".to_owned(), "bb 2".to_owned()));
    assert!(told.iter().all(|(pod, _)| pod == "web-2"), "{told:?}");
}

/// The volume of a pod with limits on memory is a tmpfs of that size, and an update needs room for two snapshots.
#[tokio::test]
async fn who_cannot_follow_is_reported_with_the_reason() {
    let mut scene = Scene::new(0.01);
    scene.cluster.pod("cramped", Some("20Mi"), serves("aa")).await;
    scene.cluster.pod("late", None, serves("aa")).await;
    scene.cluster.pod("dumb", None, Arc::default()).await;
    scene.attend("bb");
    let problem = loop {
        if let Some(problem) = scene.report("bb").await.problem {
            break problem;
        }
    };
    assert!(problem.contains("1 pod (cramped); their memory limits leave 20971520 bytes"), "{problem}");
    assert!(problem.contains("an update needs 24000000"), "{problem}");
    assert!(problem.contains("still at an older revision: 1 pod (late)"), "{problem}");
    assert!(problem.contains("no answer: 1 pod (dumb)"), "{problem}");
    let times: Vec<String> =
        scene.cluster.told().into_iter().filter(|(pod, _)| pod == "late").map(|(_, text)| text).collect();
    assert_eq!(times[..3], ["bb 2", "bb 3", "bb 4"]);
}

/// The names in its volume are those of another version: there is nothing to wait for.
#[tokio::test]
async fn who_mounts_another_format_is_reported_and_neither_asked_nor_nudged() {
    let mut scene = Scene::new(0.01);
    let format = FORMAT.earlier().next().unwrap();
    // Whom nobody asks is not silent.
    scene.cluster.pod("old", None, Arc::default()).await;
    scene.cluster.mount(format);
    scene.cluster.pod("late", None, serves("aa")).await;
    scene.attend("bb");
    let pods = loop {
        let pods = scene.report("bb").await;
        if pods.problem.as_ref().is_some_and(|problem| problem.contains("late")) {
            break pods;
        }
    };
    assert_eq!((pods.total, pods.current, pods.behind, pods.silent), (2, 0, 2, 0));
    let problem = pods.problem.unwrap();
    assert!(
        problem.starts_with(&format!("made for format {format}, where {FORMAT} is published: 1 pod (old);")),
        "{problem}"
    );
    assert!(problem.contains("still at an older revision: 1 pod (late);"), "{problem}");
    assert!(scene.cluster.told().iter().all(|(pod, _)| pod == "late"), "{:?}", scene.cluster.told());
}

#[tokio::test]
async fn asking_ends_with_the_environment() {
    let mut scene = Scene::new(0.01);
    scene.cluster.pod("web-1", None, serves("aa")).await;
    scene.attend("bb");
    scene.followers.leave("shop", "storefront");
    scene.attend("bb");
    scene.followers.retain(|_, _, uid| uid != "uid-1");
    assert!(timeout(Duration::from_millis(200), scene.calls.recv()).await.is_err());
    assert!(scene.cluster.told().is_empty());
}
