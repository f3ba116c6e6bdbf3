//! API server for the plugin: objects by path, with refusals on request.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Parser;
use http::{Request, Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, client::Body};
use remora_compile::{
    Options, compile,
    document::parse,
    prune::{Rules, prune},
};
use remora_operator::{
    api::{Revision, names::EnvironmentName},
    ask::{self, Arguments, Cluster, Failure},
    publish::{ArchivedRevision, File, Snapshot},
};
use remora_snapshot::{
    files::{self, CoreSet},
    pointer,
};
use serde_json::{Value, json};

pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/remora-system/deployments";
pub(super) const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/remora-system/leases/remora-controller";
pub(super) const REGISTRATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(super) const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
pub(super) const SYSTEM_PODS: &str = "/api/v1/namespaces/remora-system/pods";
/// Expiry of the CA certificate in the registration: 1 January 4096, which rcgen sets.
pub(super) const AUTHORITY_EXPIRES: i64 = 67090118400;
const ENVIRONMENTS: &str = "/apis/remora.dev/v1alpha1/namespaces/shop/featureenvironments";
const CONFIG_MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const PODS: &str = "/api/v1/namespaces/shop/pods";

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    refused: BTreeSet<String>,
    patches: Vec<Value>,
    /// Resources on which the controller has no rights.
    withheld: BTreeSet<String>,
    /// True if pods of dry runs get no sidecar.
    leaves_out_sidecar: bool,
    /// True if requests for a fetch are served at once.
    serves_refreshes: bool,
}

/// Cluster with the environment `storefront` in the namespace `shop`.
#[derive(Default)]
pub(super) struct World {
    state: Arc<Mutex<State>>,
    /// Revisions of the environment, the published one last.
    pub(super) revisions: Vec<String>,
}

/// Features of a revision: name, state and value.
type Features<'a> = [(&'a str, bool, &'a str)];

/// Compiles a document with these features.
fn snapshot(features: &Features<'_>) -> Snapshot {
    let states: Vec<Value> = (1..)
        .zip(features)
        .map(|(id, (name, enabled, value))| {
            json!({
                "feature": {"id": id, "name": name, "type": "STANDARD"}, "enabled": enabled, "django_id": id,
                "feature_state_value": value, "multivariate_feature_state_values": [],
            })
        })
        .collect();
    let document = json!({"id": 1, "api_key": "client", "project": {}, "feature_states": states}).to_string();
    let pruned = prune(parse(document.as_bytes()).unwrap(), &Rules::default());
    let compiled = compile(&pruned, &Options { environment: "storefront", ..Options::default() }).unwrap();
    let files = compiled.files.into_iter().map(|file| File::new(file.name, file.bytes)).collect();
    Snapshot::new(Revision::new(compiled.revision.to_string()), files)
}

fn config_map(name: &str, file: &File, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
        "binaryData": {&file.name: BASE64_STANDARD.encode(&file.bytes)},
    })
}

fn list(items: &[Value]) -> Value {
    json!({"metadata": {}, "items": items})
}

impl World {
    /// Creates a cluster that has published two revisions, the second one last.
    pub(super) fn with_revisions(revisions: &[Vec<(&str, bool, &str)>; 2]) -> Self {
        let world = Self::default();
        let environment: EnvironmentName = "storefront".parse().unwrap();
        let [first, second] = revisions.each_ref().map(|features| snapshot(features));
        let at = Time(Timestamp::from_second(1_800_000_000).unwrap());
        let past = ArchivedRevision::of(&first, at.clone(), None);
        for (name, file) in past.objects(&environment).zip(&first.files) {
            world.put(&format!("{CONFIG_MAPS}/{name}"), config_map(&name, file, &json!({})));
        }
        let changes = json!({
            "previous": first.revision, "count": 3, "changed": ["banner"], "added": ["fresh"], "removed": ["old"],
        });
        let document = json!({"source": "s", "environment": "e", "features": 2, "segments": 0, "overrides": 0});
        let record = json!({"publishedAt": at, "document": document, "changes": changes, "history": [past]});
        for file in &second.files {
            let annotations = json!({"remora.dev/revision": second.revision, "remora.dev/record": record.to_string()});
            let name = environment.object(&file.name);
            world.put(&format!("{CONFIG_MAPS}/{name}"), config_map(&name, file, &annotations));
        }
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Fine", "message": "fine", "lastTransitionTime": at});
        let mut conditions = ["Accepted", "Fetched", "Published", "Ready"].map(|kind| condition(kind, "True")).to_vec();
        conditions.push(condition("Stale", "False"));
        let object = json!({
            "apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment",
            "metadata": {"name": "storefront", "namespace": "shop", "generation": 1, "annotations": {}},
            "spec": {"source": {"document": {"configMapKeyRef": {"name": "flags", "key": "environment.json"}}}},
            "status": {
                "observedGeneration": 1, "revision": second.revision, "publishedAt": at, "changes": changes,
                "conditions": conditions, "history": [{"revision": first.revision, "publishedAt": at}],
            },
        });
        world.put(&format!("{ENVIRONMENTS}/storefront"), object);
        Self { revisions: [first, second].map(|snapshot| snapshot.revision.to_string()).to_vec(), ..world }
    }

    /// Replaces the published core by one in parts, with flags of 20,000 characters. Returns the number of its parts.
    pub(super) fn publish_core_in_parts(&self) -> usize {
        let value = "x".repeat(20_000);
        let names: Vec<String> = (0..60).map(|number| format!("large-{number}")).collect();
        let features: Vec<(&str, bool, &str)> =
            names.iter().map(|name| (name.as_str(), true, value.as_str())).collect();
        let large = snapshot(&features);
        let core = large.files.iter().find(|file| file.is_core()).unwrap();
        let environment: EnvironmentName = "storefront".parse().unwrap();
        let store = |file: &File, annotations: &Value| {
            let name = environment.object(&file.name);
            self.put(&format!("{CONFIG_MAPS}/{name}"), config_map(&name, file, annotations));
        };
        let parts = files::parts(&core.bytes).enumerate();
        let parts = parts.map(|(number, part)| File::new(files::core_part(CoreSet::B, number), part.to_vec()));
        let count = parts.inspect(|part| store(part, &json!({}))).count();
        let pointer = File::new(files::CORE.to_owned(), pointer(&core.bytes, CoreSet::B).unwrap());
        store(&pointer, &json!({"remora.dev/revision": large.revision}));
        count
    }

    /// Adds a healthy installation of Remora.
    pub(super) fn install(&self) {
        let labels =
            json!({"app.kubernetes.io/name": "remora", "app.kubernetes.io/version": env!("CARGO_PKG_VERSION")});
        let deployment = |component: &str| {
            let selector = json!({"matchLabels": {"app.kubernetes.io/component": component}});
            json!({
                "metadata": {"name": format!("remora-{component}"), "namespace": "remora-system", "labels": labels},
                "spec": {"replicas": 2, "selector": selector, "template": {}}, "status": {"readyReplicas": 2},
            })
        };
        self.put(DEPLOYMENTS, list(&[deployment("controller"), deployment("webhook")]));
        let renewed = Timestamp::now().to_string();
        self.put(LEASE, json!({"metadata": {}, "spec": {"holderIdentity": "remora-1", "renewTime": renewed}}));
        let certificate = rcgen::generate_simple_self_signed(vec!["remora".to_owned()]).unwrap().cert.pem();
        let webhook = json!({
            "name": "pods.remora.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
            "clientConfig": {"caBundle": BASE64_STANDARD.encode(certificate)},
        });
        self.put(REGISTRATIONS, list(&[json!({"metadata": {"name": "remora"}, "webhooks": [webhook]})]));
        self.put("/version", json!({
            "major": "1", "minor": "34", "gitVersion": "v1.34.1", "gitCommit": "", "gitTreeState": "", "buildDate": "",
            "goVersion": "", "compiler": "", "platform": "",
        }));
        self.put(PODS, list(&[]));
        self.put(SYSTEM_PODS, list(&[json!({"metadata": {"name": "webhook-1"}, "status": {"phase": "Running"}})]));
        self.put_webhook_metrics(Timestamp::now().as_second() + 600_000, AUTHORITY_EXPIRES);
        self.put("/api/v1/namespaces/shop/resourcequotas", list(&[]));
        for version in ["v1", "v1beta1"] {
            let path = format!("/apis/admissionregistration.k8s.io/{version}/mutatingadmissionpolicies");
            self.put(&path, list(&[]));
        }
    }

    /// Sets the expiries that the webhook's replica states: of its certificate, and of its CA.
    pub(super) fn put_webhook_metrics(&self, certificate: i64, authority: i64) {
        let metrics = format!(
            "remora_webhook_certificate_expiry_timestamp_seconds {certificate}.0\n\
             remora_webhook_authority_expiry_timestamp_seconds {authority}.0\n\
             remora_webhook_certificate_failures_total 0\n"
        );
        self.put(&format!("{SYSTEM_PODS}/webhook-1:8080/proxy/metrics"), Value::String(metrics));
    }

    pub(super) fn put(&self, path: &str, object: Value) {
        self.state.lock().unwrap().objects.insert(path.to_owned(), object);
    }

    pub(super) fn remove(&self, path: &str) {
        self.state.lock().unwrap().objects.remove(path);
    }

    /// Moves an object to another path.
    pub(super) fn rename(&self, from: &str, to: &str) {
        let mut state = self.state.lock().unwrap();
        let object = state.objects.remove(from).unwrap();
        state.objects.insert(to.to_owned(), object);
    }

    pub(super) fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        change(self.state.lock().unwrap().objects.get_mut(path).unwrap());
    }

    /// Refuses requests of this path.
    pub(super) fn refuse(&self, path: &str) {
        self.state.lock().unwrap().refused.insert(path.to_owned());
    }

    /// Takes the rights on a resource from the controller.
    pub(super) fn withhold(&self, resource: &str) {
        self.state.lock().unwrap().withheld.insert(resource.to_owned());
    }

    pub(super) fn admit_without_sidecar(&self) {
        self.state.lock().unwrap().leaves_out_sidecar = true;
    }

    pub(super) fn serve_refreshes(&self) {
        self.state.lock().unwrap().serves_refreshes = true;
    }

    /// Returns the patches of FeatureEnvironments since the last call.
    pub(super) fn patches(&self) -> Vec<Value> {
        std::mem::take(&mut self.state.lock().unwrap().patches)
    }

    /// Runs a command in the namespace `shop`. Returns the exit code and the output.
    pub(super) async fn ask(&self, arguments: &[&str]) -> Result<(u8, String), Failure> {
        let arguments = Arguments::try_parse_from(["kubectl-remora"].iter().chain(arguments)).unwrap();
        let mut out = Vec::new();
        let code = ask::run(arguments, &self.cluster(), &mut out).await?;
        Ok((code, String::from_utf8(out).unwrap()))
    }

    /// Completes the last of the words, and returns the lines that kubectl gets.
    pub(super) async fn complete(&self, words: &[&str]) -> Vec<String> {
        let mut out = Vec::new();
        ask::complete_from(&self.cluster(), words.iter().map(Into::into).collect(), &mut out).await.unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    fn cluster(&self) -> Cluster {
        let state = Arc::clone(&self.state);
        let service = tower::service_fn(move |request: Request<Body>| {
            let state = Arc::clone(&state);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let (status, answer) = state.lock().unwrap().answer(parts.method.as_str(), parts.uri.path(), &body);
                // A pod's own answer is text.
                let bytes = match answer {
                    Value::String(text) => text.into_bytes(),
                    answer => serde_json::to_vec(&answer).unwrap(),
                };
                Ok::<_, Infallible>(Response::builder().status(status).body(Body::from(bytes)).unwrap())
            }
        });
        Cluster::new(&Client::new(service, "shop"), "shop".to_owned())
    }
}

fn refusal(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}))
}

impl State {
    fn answer(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        if self.refused.contains(path) {
            return refusal(403, "Forbidden", "forbidden: User \"eve\" cannot do this");
        }
        match method {
            "POST" if path == PODS => {
                let mut pod = body.clone();
                if !self.leaves_out_sidecar {
                    pod["spec"]["initContainers"] =
                        json!([{"name": "remora", "restartPolicy": "Always", "image": "sidecar:2"}]);
                }
                (201, pod)
            }
            "POST" if path == REVIEWS => {
                let mut review = body.clone();
                let resource = body["spec"]["resourceAttributes"]["resource"].as_str().unwrap_or_default();
                review["status"] = json!({"allowed": !self.withheld.contains(resource)});
                (201, review)
            }
            "PATCH" => {
                self.patches.push(body.clone());
                let Some(object) = self.objects.get_mut(path) else {
                    return refusal(404, "NotFound", "not found");
                };
                if let (true, Some(request)) =
                    (self.serves_refreshes, body["metadata"]["annotations"].get("remora.dev/refresh"))
                {
                    object["status"]["lastRefresh"] = request.clone();
                }
                (200, object.clone())
            }
            "GET" if path == ENVIRONMENTS => {
                let prefix = format!("{ENVIRONMENTS}/");
                let items: Vec<Value> = self
                    .objects
                    .iter()
                    .filter(|(path, _)| path.starts_with(&prefix))
                    .map(|(_, object)| object.clone())
                    .collect();
                // A cluster without the definition does not know the path.
                if items.is_empty() { refusal(404, "NotFound", "page not found") } else { (200, list(&items)) }
            }
            "GET" => match self.objects.get(path) {
                Some(object) => (200, object.clone()),
                None => refusal(404, "NotFound", "not found"),
            },
            _ => panic!("nobody makes this call: {method} {path}"),
        }
    }
}
