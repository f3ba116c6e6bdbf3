//! Abuses that an attacker with a service account of the operator could try: the API server refuses each of them.

use http::{Method, Request};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Client;
use kube::api::Api;
use remora_e2e::harness::{App, Case, published, with_namespace};
use serde_json::{Value, json};

/// Request that must be refused.
struct Abuse {
    what: &'static str,
    method: Method,
    path: String,
    kind: &'static str,
    body: Value,
}

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

fn patch(what: &'static str, path: &str, body: Value) -> Abuse {
    Abuse { what, method: Method::PATCH, path: path.to_owned(), kind: MERGE, body }
}

/// Returns an abuse by JSON patch: only the named field changes.
fn patch_by(what: &'static str, path: &str, body: Value) -> Abuse {
    Abuse { kind: "application/json-patch+json", ..patch(what, path, body) }
}

fn create(what: &'static str, path: &str, body: Value) -> Abuse {
    Abuse { what, method: Method::POST, path: path.to_owned(), kind: JSON, body }
}

fn ask(what: &'static str, method: Method, path: &str) -> Abuse {
    Abuse { what, method, path: path.to_owned(), kind: JSON, body: Value::Null }
}

impl Abuse {
    async fn attempt(&self, client: &Client) -> Result<String, kube::Error> {
        let body = if self.body.is_null() { Vec::new() } else { self.body.to_string().into_bytes() };
        let request = Request::builder().method(self.method.clone()).uri(&self.path).header("content-type", self.kind);
        client.request_text(request.body(body).map_err(kube::Error::HttpError)?).await
    }

    /// Checks that a role or a policy about this account refuses the request, and that nothing else does.
    async fn is_refused(&self, client: &Client, account: &str) -> anyhow::Result<()> {
        match self.attempt(client).await {
            Ok(answer) => anyhow::bail!("{}: allowed: {answer}", self.what),
            Err(kube::Error::Api(status)) => {
                let by_role = status.code == 403;
                let by_policy = status.code == 422 && status.message.contains(&format!("the {account} may only"));
                anyhow::ensure!(by_role || by_policy, "{}: {} {}", self.what, status.code, status.message);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn on_pods(pods: &str) -> Vec<Abuse> {
    let pod = format!("{pods}/victim");
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}]);
    let both = json!({"remora.dev/revision.storefront": "x", "other": "x"});
    let nudge = json!({"metadata": {"annotations": {"remora.dev/revision.storefront": "x"}}});
    let managers = json!([{"manager": "evil", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:containers": {}}}}]);
    vec![
        patch("changing a label", &pod, json!({"metadata": {"labels": {"app": "other"}}})),
        patch("removing a label", &pod, json!({"metadata": {"labels": {"app": null}}})),
        patch("adding another annotation", &pod, json!({"metadata": {"annotations": {"other": "x"}}})),
        patch("changing another annotation", &pod, json!({"metadata": {"annotations": {"remora.dev/inject": "x"}}})),
        patch("removing another annotation", &pod, json!({"metadata": {"annotations": {"remora.dev/inject": null}}})),
        patch("another annotation beside the nudge", &pod, json!({"metadata": {"annotations": both}})),
        patch("the prefix of its name", &pod, json!({"metadata": {"generateName": "evil-"}})),
        patch("no word of who set what", &pod, json!({"metadata": {"managedFields": [{}]}})),
        patch("another's word of who set what", &pod, json!({"metadata": {"managedFields": managers}})),
        patch("a notification in another's name", &format!("{pod}?fieldManager=kubelet"), nudge.clone()),
        patch(
            "an annotation of its own beside who set it",
            &format!("{pod}?fieldManager=remora-controller"),
            json!({"metadata": {"annotations": nudge["metadata"]["annotations"], "managedFields": managers}}),
        ),
        patch(
            "an annotation that only looks like ours",
            &pod,
            json!({"metadata": {"annotations": {"remora.dev/revisions": "x"}}}),
        ),
        patch("a finalizer", &pod, json!({"metadata": {"finalizers": ["example.com/stay"]}})),
        patch("an owner, so that it is collected", &pod, json!({"metadata": {"ownerReferences": owner}})),
        patch_by(
            "another image",
            &pod,
            json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "evil:1"}]),
        ),
        patch("a deadline", &pod, json!({"spec": {"activeDeadlineSeconds": 1}})),
        patch_by(
            "a toleration",
            &pod,
            json!([{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}]),
        ),
        patch(
            "a debug container",
            &format!("{pod}/ephemeralcontainers"),
            json!({"spec": {"ephemeralContainers": [{"name": "x", "image": "evil:1"}]}}),
        ),
        patch(
            "other resources",
            &format!("{pod}/resize"),
            json!({"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "1m"}}}]}}),
        ),
        patch("the pod's status", &format!("{pod}/status"), json!({"status": {"phase": "Failed"}})),
        ask("reading a pod", Method::GET, &pod),
        ask("deleting a pod", Method::DELETE, &pod),
        ask("reading a log", Method::GET, &format!("{pod}/log")),
        create("running a command", &format!("{pod}/exec?command=id&container=app&stdout=true"), Value::Null),
        create(
            "evicting a pod",
            &format!("{pod}/eviction"),
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "victim"}}),
        ),
        create(
            "making a pod",
            pods,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "remora-x"}, "spec": {"containers": [{"name": "x", "image": "evil:1"}]}}),
        ),
    ]
}

/// Returns the metadata of the objects that the controller writes.
fn marks(name: &str) -> Value {
    let owner = json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "name": "storefront", "uid": "x", "controller": true});
    json!({"name": name, "labels": {"app.kubernetes.io/managed-by": "remora"}, "ownerReferences": [owner]})
}

fn without(mut marks: Value, member: &str) -> Value {
    marks[member] = Value::Null;
    marks
}

fn on_config_maps(maps: &str) -> Vec<Abuse> {
    let map = |marks: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": marks, "data": {"x": "y"}});
    let ours = json!({"app.kubernetes.io/managed-by": "remora"});
    let core = format!("{maps}/{}", published("storefront", "core"));
    let good = || marks(&published("storefront", "x"));
    vec![
        create("a ConfigMap of another name", maps, map(marks("coredns"))),
        create("a ConfigMap of another environment's name", maps, map(marks(&published("shop", "core")))),
        create("a ConfigMap without our label", maps, map(without(good(), "labels"))),
        create("a ConfigMap without an owner", maps, map(without(good(), "ownerReferences"))),
        create("a ConfigMap of kube-system", "/api/v1/namespaces/kube-system/configmaps", map(good())),
        create("a ConfigMap of Remora's own namespace", "/api/v1/namespaces/remora-system/configmaps", map(good())),
        patch("writing somebody's ConfigMap", &format!("{maps}/theirs"), json!({"data": {"x": "evil"}})),
        patch(
            "taking over somebody's ConfigMap",
            &format!("{maps}/remora-theirs"),
            json!({"metadata": {"labels": ours}}),
        ),
        patch("giving up one of ours", &core, json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}})),
        ask("deleting somebody's ConfigMap", Method::DELETE, &format!("{maps}/theirs")),
        ask("deleting all ConfigMaps", Method::DELETE, maps),
    ]
}

fn on_secrets(secrets: &str) -> Vec<Abuse> {
    let secret =
        |marks: Value, kind: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": marks, "type": kind});
    let (kind, good) = ("remora.dev/snapshot", || marks(&published("storefront", "x")));
    let token = {
        let mut marks = good();
        marks["annotations"] = json!({"kubernetes.io/service-account.name": "default"});
        secret(marks, "kubernetes.io/service-account-token")
    };
    let authority = "/api/v1/namespaces/remora-system/secrets/remora-webhook-authority";
    vec![
        create("a Secret of another name", secrets, secret(marks("database"), kind)),
        create("a Secret of another type", secrets, secret(good(), "Opaque")),
        create("a Secret that becomes an account's token", secrets, token),
        create("a Secret without our label", secrets, secret(without(good(), "labels"), kind)),
        create("a Secret without an owner", secrets, secret(without(good(), "ownerReferences"), kind)),
        create("a Secret of kube-system", "/api/v1/namespaces/kube-system/secrets", secret(good(), kind)),
        patch(
            "taking over somebody's Secret",
            &format!("{secrets}/remora-theirs"),
            json!({"metadata": marks("remora-theirs")}),
        ),
        patch(
            "writing somebody's Secret",
            &format!("{secrets}/flagsmith"),
            json!({"stringData": {"environment-key": "ser.x"}}),
        ),
        ask("deleting somebody's Secret", Method::DELETE, &format!("{secrets}/remora-theirs")),
        ask("deleting the key", Method::DELETE, &format!("{secrets}/flagsmith")),
        ask("deleting all Secrets", Method::DELETE, secrets),
        ask("listing Secrets", Method::GET, secrets),
        ask(
            "listing Secrets by a label",
            Method::GET,
            &format!("{secrets}?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dremora"),
        ),
        ask("listing all Secrets", Method::GET, "/api/v1/secrets"),
        ask("watching Secrets", Method::GET, "/api/v1/secrets?watch=true&timeoutSeconds=1"),
        patch("the webhook's authority", authority, json!({"data": {"tls.key": null}})),
        ask("deleting the webhook's authority", Method::DELETE, authority),
    ]
}

fn elsewhere(namespace: &str) -> Vec<Abuse> {
    let here = format!("/api/v1/namespaces/{namespace}");
    let environments = format!("/apis/remora.dev/v1alpha1/namespaces/{namespace}/featureenvironments");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "remora-x"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": []});
    let registration = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/remora";
    vec![
        create(
            "a token of another account",
            &format!("{here}/serviceaccounts/default/token"),
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        ),
        patch(
            "changing a FeatureEnvironment's spec",
            &format!("{environments}/storefront"),
            json!({"spec": {"suspend": true}}),
        ),
        ask("deleting a FeatureEnvironment", Method::DELETE, &format!("{environments}/storefront")),
        ask("listing namespaces", Method::GET, "/api/v1/namespaces"),
        ask("listing nodes", Method::GET, "/api/v1/nodes"),
        create("binding a role", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", role),
        patch("the webhook's registration", registration, json!({"webhooks": []})),
        ask(
            "lifting its own limits",
            Method::DELETE,
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/remora-controller-pods",
        ),
    ]
}

/// Creates the objects that the abuses attack.
async fn victims(case: &Case) -> anyhow::Result<()> {
    case.storefront().await?;
    case.pod(&App::new("victim").inject("storefront")).await?;
    for name in ["theirs", "remora-theirs"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "theirs"}});
        case.apply(map).await?;
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "remora-theirs"}, "stringData": {"x": "theirs"}});
    case.apply(secret).await?;
    Ok(())
}

#[tokio::test]
async fn controller_account_has_no_other_permission() -> anyhow::Result<()> {
    with_namespace(async |case| {
        victims(&case).await?;
        let controller = case.cluster.as_account("remora-controller").await?;
        let here = format!("/api/v1/namespaces/{}", case.namespace);
        let (pods, maps, secrets) = (format!("{here}/pods"), format!("{here}/configmaps"), format!("{here}/secrets"));
        let before = case.api::<Pod>().get("victim").await?;
        let mut failures = Vec::new();
        let objects = on_config_maps(&maps).into_iter().chain(on_secrets(&secrets));
        for abuse in on_pods(&pods).into_iter().chain(objects).chain(elsewhere(&case.namespace)) {
            if let Err(error) = abuse.is_refused(&controller, "controller").await {
                failures.push(format!("{error:#}"));
            }
        }
        anyhow::ensure!(failures.is_empty(), "{}", failures.join("\n"));
        // The API server protects these fields itself: it refuses some of the changes and ignores the others.
        for (field, value) in [
            ("name", json!("evil")),
            ("namespace", json!("evil")),
            ("selfLink", json!("/evil")),
            ("uid", json!("evil")),
            ("generation", json!(77)),
            ("creationTimestamp", json!("2020-01-01T00:00:00Z")),
            ("deletionTimestamp", json!("2020-01-01T00:00:00Z")),
            ("deletionGracePeriodSeconds", json!(1)),
        ] {
            let _ = patch(field, &format!("{pods}/victim"), json!({"metadata": {field: value}})).attempt(&controller).await;
        }
        let after = case.api::<Pod>().get("victim").await?;
        let kept = |pod: &Pod| {
            let mut metadata = pod.metadata.clone();
            // Both fields also change with the object's status.
            (metadata.resource_version, metadata.managed_fields) = (None, None);
            (metadata, pod.spec.clone())
        };
        anyhow::ensure!(kept(&before) == kept(&after), "{after:?}");
        for name in ["theirs", "remora-theirs"] {
            let map = Api::<ConfigMap>::get(&case.api(), name).await?;
            anyhow::ensure!(map.data.is_some_and(|data| data["x"] == "theirs"), "{name} was written");
        }
        let secret = Api::<Secret>::get(&case.api(), "remora-theirs").await?;
        anyhow::ensure!(secret.data.is_some_and(|data| data["x"].0 == b"theirs"), "the Secret was written");
        // The controller may still write what it needs.
        let snapshot = json!({"apiVersion": "v1", "kind": "Secret", "metadata": marks(&published("storefront", "x")), "type": "remora.dev/snapshot"});
        create("a snapshot's Secret", &secrets, snapshot).attempt(&controller).await?;
        let nudge = json!({"metadata": {"annotations": {"remora.dev/revision.storefront": "0000 2"}}});
        patch("the nudge", &format!("{pods}/victim?fieldManager=remora-controller"), nudge).attempt(&controller).await?;
        ask("listing pods", Method::GET, &pods).attempt(&controller).await?;
        Ok(())
    })
    .await
}

fn by_webhook(registered: &Value) -> Vec<Abuse> {
    let secrets = "/api/v1/namespaces/remora-system/secrets";
    let authority = format!("{secrets}/remora-webhook-authority");
    let (ours, name) = (json!({"app.kubernetes.io/managed-by": "remora"}), "remora-webhook-authority");
    let secret = |name: &str, kind: &str, annotations: Value| {
        let metadata = json!({"name": name, "labels": ours, "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind})
    };
    let account = json!({"kubernetes.io/service-account.name": "remora-controller"});
    let registration = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/remora";
    let changed = |what, operations: Value| patch_by(what, registration, operations);
    let set = |what, field: &str, value: Value| {
        changed(what, json!([{"op": "add", "path": format!("/webhooks/0/{field}"), "value": value}]))
    };
    let anything = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}]);
    let second = {
        let mut second = registered["webhooks"][0].clone();
        second["name"] = json!("second.remora.dev");
        second
    };
    let url = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/service"},
        {"op": "add", "path": "/webhooks/0/clientConfig/url", "value": "https://evil.example/"}]);
    let mut replaced = registered.clone();
    replaced["webhooks"][0]["rules"] = anything.clone();
    vec![
        create(
            "a token of the controller",
            secrets,
            secret("evil", "kubernetes.io/service-account-token", account.clone()),
        ),
        create(
            "a token in the place of the authority",
            secrets,
            secret(name, "kubernetes.io/service-account-token", account),
        ),
        create("a Secret of another name", secrets, secret("evil", "Opaque", Value::Null)),
        create(
            "a Secret of a name to be made",
            secrets,
            json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"generateName": "remora-webhook-", "labels": ours}, "type": "Opaque"}),
        ),
        create(
            "a Secret of another namespace",
            "/api/v1/namespaces/default/secrets",
            secret(name, "Opaque", Value::Null),
        ),
        patch("patching the authority", &authority, json!({"data": {"other": "eA=="}})),
        Abuse {
            method: Method::PUT,
            ..create("another key in the authority", &authority, {
                let mut other = secret(name, "Opaque", Value::Null);
                other["data"] = json!({"other": "eA=="});
                other
            })
        },
        ask("deleting the authority", Method::DELETE, &authority),
        ask("listing Secrets", Method::GET, secrets),
        changed("another URL", url),
        set("another service", "clientConfig/service/name", json!("evil")),
        set("another path", "clientConfig/service/path", json!("/evil")),
        set("other rules", "rules", anything),
        set("other namespaces", "namespaceSelector", json!({})),
        set("other objects", "objectSelector", json!({"matchLabels": {"a": "b"}})),
        set("other conditions", "matchConditions", json!([])),
        set("another match policy", "matchPolicy", json!("Exact")),
        set("another failure policy", "failurePolicy", json!("Ignore")),
        set("other side effects", "sideEffects", json!("NoneOnDryRun")),
        set("another timeout", "timeoutSeconds", json!(30)),
        set("another reinvocation policy", "reinvocationPolicy", json!("Never")),
        set("other versions", "admissionReviewVersions", json!(["v1", "v1beta1"])),
        set("another name", "name", json!("evil.remora.dev")),
        changed("a second webhook", json!([{"op": "add", "path": "/webhooks/-", "value": second}])),
        changed("no webhook", json!([{"op": "remove", "path": "/webhooks/0"}])),
        patch("a label of the registration", registration, json!({"metadata": {"labels": {"a": "b"}}})),
        patch("an annotation of the registration", registration, json!({"metadata": {"annotations": {"a": "b"}}})),
        patch(
            "a finalizer of the registration",
            registration,
            json!({"metadata": {"finalizers": ["example.com/stay"]}}),
        ),
        Abuse { method: Method::PUT, ..create("another registration", registration, replaced) },
        ask("deleting the registration", Method::DELETE, registration),
        create(
            "a registration of its own",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "evil"}}),
        ),
    ]
}

#[tokio::test]
async fn webhook_account_may_write_its_authority_and_ca_bundle_only() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let webhook = case.cluster.as_account("remora-webhook").await?;
        let api: Api<MutatingWebhookConfiguration> = Api::all(case.cluster.client.clone());
        let registered = serde_json::to_value(api.get("remora").await?)?;
        let mut failures = Vec::new();
        for abuse in by_webhook(&registered) {
            if let Err(error) = abuse.is_refused(&webhook, "webhook").await {
                failures.push(format!("{error:#}"));
            }
        }
        anyhow::ensure!(failures.is_empty(), "{}", failures.join("\n"));
        // The webhook may still write its CA bundle.
        let registration = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/remora";
        let bundle = &registered["webhooks"][0]["clientConfig"]["caBundle"];
        let operations = json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]);
        patch_by("the bundle", registration, operations).attempt(&webhook).await?;
        Ok(())
    })
    .await
}
