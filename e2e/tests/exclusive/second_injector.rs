//! Another webhook that adds containers, volumes and variables, called by the API server before Remora's webhook and
//! after it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use remora_e2e::harness::{Case, alone_in_namespace, eventually};
use remora_e2e::upstream::Ca;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::node::Node;

const CAP: Duration = Duration::from_secs(60);

fn push_named(list: &mut Value, item: Value) {
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut().filter(|list| !list.iter().any(|one| one["name"] == item["name"])) {
        list.push(item);
    }
}

/// Adds to the pod's spec a proxy container, an init container, a volume, and a variable for every container, including
/// the sidecar.
fn meshed(mut spec: Value) -> Value {
    push_named(&mut spec["containers"], json!({"name": "mesh-proxy", "image": "mesh:1"}));
    push_named(&mut spec["initContainers"], json!({"name": "mesh-late", "image": "mesh:1"}));
    push_named(&mut spec["volumes"], json!({"name": "mesh", "emptyDir": {}}));
    for kind in ["initContainers", "containers"] {
        for container in spec[kind].as_array_mut().into_iter().flatten() {
            push_named(&mut container["env"], json!({"name": "MESH", "value": "on"}));
            push_named(&mut container["volumeMounts"], json!({"name": "mesh", "mountPath": "/mesh"}));
        }
    }
    spec
}

async fn admit(request: Request<Incoming>, calls: &AtomicUsize) -> anyhow::Result<Value> {
    let review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    let spec = meshed(review["request"]["object"]["spec"].clone());
    calls.fetch_add(1, Ordering::Relaxed);
    let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]).to_string();
    Ok(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"], "allowed": true,
            "patchType": "JSONPatch", "patch": ByteString(patch.into_bytes()),
        },
    }))
}

/// Webhook on this machine, which the local cluster's API server shares.
struct Mesh {
    url: String,
    authority: String,
    calls: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Mesh {
    async fn start() -> anyhow::Result<Mesh> {
        let authority = Ca::new(&[])?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}/mutate", listener.local_addr()?);
        let calls = Arc::new(AtomicUsize::new(0));
        let (acceptor, counted) = (authority.acceptor(), Arc::clone(&calls));
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, counted) = (acceptor.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else { return };
                    let service = hyper::service::service_fn(|request| {
                        let counted = Arc::clone(&counted);
                        async move {
                            let answer = admit(request, &counted).await;
                            let body = answer.map_or_else(|error| error.to_string(), |answer| answer.to_string());
                            let response = Response::builder().header("content-type", "application/json");
                            Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).unwrap_or_default())
                        }
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _gone = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Mesh { url, authority: authority.pem().to_owned(), calls, task })
    }

    /// Returns its registration. The API server calls webhooks in the order of their configurations' names.
    fn registration(&self, name: &str, namespace: &str) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": "mesh.remora-e2e.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"url": self.url, "caBundle": ByteString(self.authority.clone().into_bytes())},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "reinvocationPolicy": "IfNeeded", "failurePolicy": "Fail", "timeoutSeconds": 10,
            }],
        })
    }
}

/// Returns the API server's result of a dry-run creation of a pod.
async fn created(case: &Case) -> anyhow::Result<Value> {
    let pod = json!({
        "metadata": {"name": "shop", "annotations": {"remora.dev/inject": "storefront", "remora.dev/unix-socket": "true"}},
        "spec": {
            "automountServiceAccountToken": false,
            "initContainers": [{"name": "migrate", "image": "shop:1"}],
            "containers": [{"name": "web", "image": "shop:1", "env": [{"name": "URL", "value": "$(OFREP_ENDPOINT)"}]}],
        },
    });
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let api: Api<Pod> = case.api();
    Ok(serde_json::to_value(api.create(&dry, &serde_json::from_value(pod)?).await?)?)
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|item| item["name"].as_str()).collect()
}

/// Removes what differs between creations, and sorts lists by name: their order depends on the order of the injectors.
fn canonical(mut pod: Value) -> Value {
    let by_name = |list: &mut Value| {
        if let Some(list) = list.as_array_mut() {
            list.sort_by_key(|item| item["name"].to_string());
        }
    };
    for kind in ["initContainers", "containers"] {
        for container in pod["spec"][kind].as_array_mut().into_iter().flatten() {
            by_name(&mut container["env"]);
            by_name(&mut container["volumeMounts"]);
        }
    }
    by_name(&mut pod["spec"]["containers"]);
    by_name(&mut pod["spec"]["volumes"]);
    json!({"spec": pod["spec"], "labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"]})
}

/// Registers the other webhook under this name. Returns the resulting pod, and the number of calls of the other
/// webhook.
async fn registered(case: &Case, mesh: &Mesh, name: &str) -> anyhow::Result<(Value, usize)> {
    let registrations: Api<MutatingWebhookConfiguration> = Api::all(case.cluster.client.clone());
    let made = case.cluster.apply(&mesh.registration(name, &case.namespace)).await;
    let created = async {
        made?;
        eventually("the other webhook is called", CAP, async || {
            let pod = created(case).await?;
            Ok(names(&pod["spec"]["containers"]).contains(&"mesh-proxy").then_some(()))
        })
        .await?;
        let before = mesh.calls.load(Ordering::Relaxed);
        let pod = created(case).await?;
        Ok((pod, mesh.calls.load(Ordering::Relaxed) - before))
    };
    let created = created.await;
    registrations.delete(name, &DeleteParams::default()).await.context("the other webhook stays registered")?;
    created
}

#[tokio::test]
async fn second_injector_before_or_after_ours_gives_same_pod() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let Some(_) = Node::local("a second injector").await? else { return Ok(()) };
        case.storefront().await?;
        let mesh = Mesh::start().await?;
        let (before, calls_before) = registered(&case, &mesh, &format!("a-mesh-{}", case.namespace)).await?;
        let gone = async || {
            let pod = created(&case).await?;
            Ok((!names(&pod["spec"]["containers"]).contains(&"mesh-proxy")).then_some(()))
        };
        eventually("the other webhook is gone", CAP, gone).await?;
        let (after, calls_after) = registered(&case, &mesh, &format!("z-mesh-{}", case.namespace)).await?;

        for (order, pod) in [("before", &before), ("after", &after)] {
            let init = names(&pod["spec"]["initContainers"]);
            anyhow::ensure!(init == ["remora", "migrate", "mesh-late"], "the mesh {order} us: {init:?}");
            for kind in ["initContainers", "containers"] {
                for container in pod["spec"][kind].as_array().context("no containers")? {
                    let variables = names(&container["env"]);
                    let told = variables.iter().filter(|name| **name == "OFREP_ENDPOINT").count();
                    let expected = usize::from(container["name"] != "remora");
                    anyhow::ensure!(
                        told == expected && variables.contains(&"MESH"),
                        "the mesh {order} us: {container}"
                    );
                }
            }
        }
        let (before, after) = (canonical(before), canonical(after));
        anyhow::ensure!(before == after, "the mesh before us: {before}\nthe mesh after us: {after}");
        // The API server calls each webhook once more if the other one changed something after it, and then stops.
        anyhow::ensure!((calls_before, calls_after) == (2, 2), "called {calls_before} and {calls_after} times");
        Ok(())
    })
    .await
}
