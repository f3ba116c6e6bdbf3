//! Tests the webhook's answers without a socket and without a cluster.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Method, Request, Response, StatusCode},
};
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use kube::Client;
use prometheus_client::registry::Registry;
use remora_operator::injection::{
    Config, Defaults,
    metrics::Metrics,
    webhook::{Environments, Namespaces, Webhook, router},
};
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn};

/// Returns a client of a simulated API server that has `storefront` in namespace `shop`, refuses all writes, and answers
/// after this delay. It never answers a request for `silent`.
fn api_server(delay: Duration) -> Client {
    let answer = move |request: Request<kube::client::Body>| async move {
        tokio::time::sleep(delay).await;
        assert_eq!(request.method(), Method::GET, "the webhook writes nothing");
        let path = request.uri().path();
        let (status, body) = match path.rsplit('/').next().unwrap() {
            "storefront" if path.contains("/namespaces/shop/") => (
                200,
                json!({
                    "apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment",
                    "metadata": {"name": "storefront", "namespace": "shop"}, "spec": {},
                }),
            ),
            "quiet" => (
                200,
                json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": {"name": "quiet", "annotations": {"remora.dev/log-level": "error", "remora.dev/port": "x"}},
                }),
            ),
            "preview" => (
                200,
                json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": {"name": "preview", "labels": {"remora.dev/allow-overrides": "true", "team": "x"}},
                }),
            ),
            "denied" => (
                200,
                json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": {"name": "denied", "labels": {"remora.dev/allow-overrides": "false"}},
                }),
            ),
            "silent" => std::future::pending().await,
            "broken" => (500, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500})),
            _ => (
                404,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
            ),
        };
        let response = Response::builder().status(status).header("content-type", "application/json");
        Ok::<_, Infallible>(response.body(Body::from(body.to_string())).unwrap())
    };
    Client::new(service_fn(answer), "default")
}

struct Bench {
    router: Router,
    registry: Registry,
}

fn config() -> Config {
    Config {
        sidecar_image: "example.org/remora-sidecar:1.0.0".to_owned(),
        sidecar_pull_policy: "IfNotPresent".to_owned(),
        own_namespace: "remora-system".to_owned(),
        defaults: Defaults::default(),
    }
}

fn bench() -> Bench {
    bench_with(Duration::ZERO)
}

fn bench_with(delay: Duration) -> Bench {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let (environments, _) = Environments::watch(api_server(delay));
    let (namespaces, _) = Namespaces::watch(api_server(delay));
    Bench { router: router(Webhook::new(config(), environments, namespaces, metrics)), registry }
}

impl Bench {
    async fn send(&self, request: Request<Body>) -> (StatusCode, String) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn post(&self, body: impl Into<Body>) -> (StatusCode, String) {
        let request = Request::post("/mutate?timeout=5s").header("content-type", "application/json");
        self.send(request.body(body.into()).unwrap()).await
    }

    async fn review(&self, review: &Value) -> Value {
        let (status, body) = self.post(review.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
        answer["response"].clone()
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }
}

/// Returns a client of a simulated API server whose lists have namespace `shop` with `storefront`, and that answers no
/// other request.
fn listing_api_server() -> Client {
    let answer = |request: Request<kube::client::Body>| async move {
        let is_list = !request.uri().query().unwrap_or_default().contains("watch=");
        let item = match request.uri().path().rsplit('/').next().unwrap() {
            "namespaces" if is_list => json!({"metadata": {"name": "shop", "resourceVersion": "1"}}),
            "featureenvironments" if is_list => {
                json!({"metadata": {"name": "storefront", "namespace": "shop", "resourceVersion": "1"}})
            }
            _ => std::future::pending().await,
        };
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": [item]});
        Ok::<_, Infallible>(Response::new(Body::from(list.to_string())))
    };
    Client::new(service_fn(answer), "default")
}

/// Nobody waits behind requests about objects that do not exist, however much memory their pods take.
#[tokio::test(start_paused = true)]
async fn pods_of_unknown_namespaces_do_not_delay_known_ones() {
    let (environments, watching_environments) = Environments::watch(listing_api_server());
    let (namespaces, watching_namespaces) = Namespaces::watch(listing_api_server());
    tokio::spawn(watching_environments);
    tokio::spawn(watching_namespaces);
    environments.wait_until_filled().await;
    namespaces.wait_until_filled().await;
    let registry = Registry::default();
    let webhook = Webhook::new(config(), environments, namespaces, Metrics::register(&mut Registry::default()));
    let bench = Arc::new(Bench { router: router(webhook), registry });
    let mut large = pod("storefront,a,b,c,d,e,f,g");
    // Each empty object takes much more memory than its three bytes.
    large["spec"]["x"] = vec![json!({}); 1_000].into();
    for number in 0..200 {
        let (bench, mut review) = (Arc::clone(&bench), review(&large));
        review["request"]["namespace"] = json!(format!("unknown-{number}"));
        tokio::spawn(async move { bench.review(&review).await });
    }
    tokio::task::yield_now().await;
    let began = tokio::time::Instant::now();
    let response = bench.review(&review(&pod("storefront"))).await;
    assert_eq!(response["patchType"], "JSONPatch");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

fn pod(inject: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "web-", "annotations": {"remora.dev/inject": inject}},
        "spec": {"containers": [{"name": "web", "image": "shop/web:1"}]},
    })
}

fn review(object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE", "namespace": "shop", "dryRun": false, "object": object,
            "oldObject": null, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

fn patched(pod: &Value, response: &Value) -> Value {
    assert_eq!(response["allowed"], true, "{response}");
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = BASE64.decode(response["patch"].as_str().unwrap()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch).unwrap();
    patched
}

#[tokio::test]
async fn requesting_pod_is_injected() {
    let bench = bench();
    let pod = pod("storefront");
    let response = bench.review(&review(&pod)).await;
    assert_eq!(response.get("warnings"), None);
    let injected = patched(&pod, &response);
    assert_eq!(injected["spec"]["initContainers"][0]["name"], "remora");

    let again = bench.review(&review(&injected)).await;
    assert_eq!(again, json!({"uid": again["uid"], "allowed": true}), "once is enough");

    let metrics = bench.metrics();
    for line in [
        r#"remora_webhook_requests_total{decision="injected",reason="complete"} 1"#,
        r#"remora_webhook_requests_total{decision="skipped",reason="already_injected"} 1"#,
        "remora_webhook_duration_seconds_count 2",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test]
async fn dry_run_is_answered_like_real_request() {
    let bench = bench();
    let mut dry = review(&pod("storefront"));
    let wet = bench.review(&dry).await;
    dry["request"]["dryRun"] = json!(true);
    assert_eq!(bench.review(&dry).await, wet);
}

#[tokio::test]
async fn missing_environment_gives_warning() {
    let bench = bench();
    let pod = pod("storefront,nowhere");
    let response = bench.review(&review(&pod)).await;
    assert_eq!(
        response["warnings"],
        json!([
            "FeatureEnvironment nowhere does not exist in namespace \"shop\", so the pod starts without its flags: create it, and restart the pod if it delivers by Secrets, or correct annotation remora.dev/inject"
        ])
    );
    let volumes = patched(&pod, &response)["spec"]["volumes"].clone();
    assert!(volumes.as_array().unwrap().iter().any(|volume| volume["name"] == "remora-nowhere"));
    assert!(bench.metrics().contains(r#"decision="injected",reason="environment_missing""#));
}

#[tokio::test]
async fn failing_api_server_does_not_block_injection() {
    let bench = bench();
    let response = bench.review(&review(&pod("broken"))).await;
    assert_injected_without_look_up(&bench, &response, "broken");
}

#[tokio::test(start_paused = true)]
async fn silent_api_server_does_not_block_injection() {
    let bench = bench();
    let review = review(&pod("silent"));
    let response = tokio::time::timeout(Duration::from_secs(5), bench.review(&review)).await;
    assert_injected_without_look_up(&bench, &response.expect("the API server waits 5 s for the webhook"), "silent");
}

fn assert_injected_without_look_up(bench: &Bench, response: &Value, environment: &str) {
    assert_eq!(response["allowed"], true);
    assert_eq!(
        response["warnings"],
        json!([format!(
            "FeatureEnvironment {environment} of namespace \"shop\" cannot be read, so the pod gets a volume of the default layout: recreate the pod if the environment exists and sets spec.delivery"
        )])
    );
    assert!(bench.metrics().contains(r#"decision="injected",reason="environment_unknown""#));
}

#[tokio::test]
async fn namespace_annotations_set_defaults_of_its_pods() {
    let bench = bench();
    let mut question = review(&pod("storefront"));
    question["request"]["namespace"] = json!("quiet");
    let response = bench.review(&question).await;
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("annotation remora.dev/port of namespace quiet is \"x\""), "{message}");

    question["request"]["object"]["metadata"]["annotations"]["remora.dev/port"] = json!("4000");
    let injected = patched(&question["request"]["object"], &bench.review(&question).await);
    let arguments = injected["spec"]["initContainers"][0]["args"].as_array().unwrap();
    assert!(arguments.contains(&json!("error")) && arguments.contains(&json!("127.0.0.1:4000")), "{arguments:?}");

    // Annotations that cannot be read are ignored, with a warning.
    question["request"]["namespace"] = json!("broken");
    let response = bench.review(&question).await;
    assert_eq!(response["patchType"], "JSONPatch");
    assert_eq!(
        response["warnings"][0],
        "the annotations of namespace \"broken\" cannot be read, so its defaults do not apply: recreate the pod if it needs them"
    );
}

#[tokio::test]
async fn pods_of_own_namespace_are_admitted_without_sidecar() {
    let bench = bench();
    let mut question = review(&pod("storefront"));
    question["request"]["namespace"] = json!("remora-system");
    let earnest = bench.review(&question).await;
    assert_eq!(earnest.get("patch"), None);
    question["request"]["dryRun"] = json!(true);
    assert_eq!(bench.review(&question).await["patchType"], "JSONPatch", "the self-check has to be able to ask");
}

#[tokio::test]
async fn invalid_annotation_is_denied_with_its_grammar() {
    let bench = bench();
    let response = bench.review(&review(&pod("Shop Front"))).await;
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 403);
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.starts_with(r#"annotation remora.dev/inject is "Shop Front", but must be names"#), "{message}");
    assert!(bench.metrics().contains(r#"decision="denied",reason="invalid_annotation""#));
}

#[tokio::test]
async fn skipped_pod_gets_warning_with_reason() {
    let bench = bench();
    let mut pod = pod("storefront");
    pod["spec"]["hostNetwork"] = json!(true);
    let response = bench.review(&review(&pod)).await;
    assert_eq!((&response["allowed"], response.get("patch")), (&json!(true), None));
    assert!(response["warnings"][0].as_str().unwrap().contains("hostNetwork"));
}

#[tokio::test]
async fn requests_about_other_objects_are_allowed() {
    let bench = bench();
    let mut update = review(&pod("Not Valid"));
    update["request"]["operation"] = json!("UPDATE");
    let mut delete = review(&Value::Null);
    delete["request"]["operation"] = json!("DELETE");
    let mut list = review(&json!({"items": []}));
    list["request"]["kind"]["kind"] = json!("PodList");
    for question in [update, delete, list] {
        let response = bench.review(&question).await;
        assert_eq!(response, json!({"uid": response["uid"], "allowed": true}));
    }
}

#[tokio::test]
async fn body_that_is_no_admission_review_is_refused() {
    let bench = bench();
    let mut old = review(&pod("storefront"));
    old["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    // The name becomes a part of the URL of a request: this one would watch all namespaces.
    let mut watching = review(&pod("storefront"));
    watching["request"]["namespace"] = json!("?watch=1");
    for body in [
        watching.to_string(),
        String::new(),
        "null".to_owned(),
        "{".to_owned(),
        "[]".to_owned(),
        deep,
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string(),
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"object": {}}}).to_string(),
        old.to_string(),
    ] {
        let (status, answer) = bench.post(body.clone()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert!(answer.len() < 300, "{answer}");
    }
}

#[tokio::test]
async fn pod_with_very_many_unknown_annotations_gets_few_warnings() {
    let bench = bench();
    let mut many = pod("storefront");
    for number in 0..100_000 {
        many["metadata"]["annotations"][format!("remora.dev/{number:x}")] = json!("");
    }
    let (status, answer) = bench.post(review(&many).to_string()).await;
    assert_eq!(status, StatusCode::OK);
    assert!(answer.len() < 32 << 10, "{} bytes", answer.len());
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let warnings = answer["response"]["warnings"].as_array().unwrap();
    assert!(
        warnings.iter().any(|warning| warning.as_str().unwrap().starts_with("99992 more annotations")),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn other_paths_methods_and_media_types_are_refused() {
    let bench = bench();
    let request = |method, path: &str, mime: &str| {
        let request = Request::builder().method(method).uri(path).header("content-type", mime);
        request.body(Body::from(review(&pod("storefront")).to_string())).unwrap()
    };
    for (method, path, mime, expected) in [
        (Method::POST, "/", "application/json", StatusCode::NOT_FOUND),
        (Method::POST, "/mutate/", "application/json", StatusCode::NOT_FOUND),
        (Method::POST, "/metrics", "application/json", StatusCode::NOT_FOUND),
        (Method::GET, "/mutate", "application/json", StatusCode::METHOD_NOT_ALLOWED),
        (Method::POST, "/mutate", "text/plain", StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (Method::POST, "/mutate", "application/json; charset=utf-8", StatusCode::OK),
    ] {
        let (status, _) = bench.send(request(method, path, mime)).await;
        assert_eq!(status, expected, "{path} {mime}");
    }
}

#[tokio::test]
async fn large_pod_is_parsed_and_larger_body_is_refused() {
    let bench = bench();
    let mut large = pod("storefront");
    large["metadata"]["annotations"]["example.com/large"] = json!("x".repeat(5 << 20));
    let response = bench.review(&review(&large)).await;
    assert_eq!(response["patchType"], "JSONPatch");
    let (status, _) = bench.post(Body::from(vec![b' '; 10 << 20])).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

/// The parsed tree of such a pod would take hundreds of megabytes, so the webhook denies it without parsing.
#[tokio::test]
async fn pod_that_would_take_much_memory_is_denied() {
    let bench = bench();
    let denied = async |pod: &str| {
        let review = review(&json!("POD")).to_string().replace("\"POD\"", pod);
        let (status, answer) = bench.post(review).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["response"]["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
        assert_eq!(answer["response"]["allowed"], false);
        answer["response"]["status"]["message"].as_str().unwrap().to_owned()
    };
    let dense = vec![r#"{"":0}"#; 1 << 20].join(",");
    let message = denied(&format!(r#"{{"metadata":{{}},"spec":{{"x":[{dense}]}}}}"#)).await;
    assert!(message.contains("too many fields"), "{message}");
    let lists = vec!["[]"; 2 << 20].join(",");
    let message = denied(&format!(r#"{{"metadata":{{}},"spec":{{"x":[{lists}]}}}}"#)).await;
    assert!(message.contains("too many fields"), "{message}");
    let mut crowded = pod("storefront");
    crowded["spec"]["containers"] = (0..1001).map(|number| json!({"name": format!("c{number}")})).collect();
    let message = denied(&crowded.to_string()).await;
    assert!(message.contains("more than 1000 containers"), "{message}");
    assert!(bench.metrics().contains(r#"remora_webhook_requests_total{decision="denied",reason="too_large"} 3"#));
}

/// The pod is heavier than a light pod and within the limit of heavy pods.
#[tokio::test]
async fn pod_of_twenty_thousand_variables_is_injected() {
    let bench = bench();
    let mut heavy = pod("storefront");
    let variables = (0..20_000).map(|number| json!({"name": format!("V{number}"), "value": "x"}));
    heavy["spec"]["containers"][0]["env"] = variables.collect();
    let response = bench.review(&review(&heavy)).await;
    let injected = patched(&heavy, &response);
    assert_eq!(injected["spec"]["initContainers"][0]["name"], "remora");
}

#[tokio::test]
async fn denial_quotes_long_values_shortened() {
    let bench = bench();
    let long = format!("\u{1b}[31m\n{}", "x".repeat(1 << 20));
    for pointer in ["/request/uid", "/request/namespace", "/request/dryRun", "/kind", "/apiVersion"] {
        let mut odd = review(&pod("storefront"));
        *odd.pointer_mut(pointer).unwrap() = json!(long);
        let (status, answer) = bench.post(odd.to_string()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{pointer}");
        assert!(answer.len() < 300 && !answer.trim_end().contains(char::is_control), "{pointer}: {answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_are_all_answered() {
    let bench = Arc::new(bench());
    let asked = (0..200).map(|number| {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move {
            let name = if number % 2 == 0 { "storefront" } else { "nowhere" };
            let response = bench.review(&review(&pod(name))).await;
            assert_eq!(response.get("warnings").is_some(), number % 2 == 1);
        })
    });
    for done in asked.collect::<Vec<_>>() {
        done.await.unwrap();
    }
}

/// The memory budget has room for seventeen such pods at one time, and the caches have neither their namespace nor their
/// environment.
#[tokio::test(start_paused = true)]
async fn reviews_that_wait_for_api_server_do_not_delay_each_other() {
    let delay = Duration::from_millis(400);
    let bench = Arc::new(bench_with(delay));
    let mut large = pod("storefront");
    large["spec"]["x"] = vec![json!({}); 1200].into();
    let body = review(&large).to_string();
    let started = tokio::time::Instant::now();
    let asked = (0..200).map(|_| {
        let (bench, body) = (Arc::clone(&bench), body.clone());
        tokio::spawn(async move {
            let (status, answer) = bench.post(body).await;
            assert!(status == StatusCode::OK && answer.contains("JSONPatch"), "{answer}");
        })
    });
    for done in asked.collect::<Vec<_>>() {
        done.await.unwrap();
    }
    assert!(started.elapsed() < 3 * delay, "{:?}", started.elapsed());
}

#[tokio::test]
async fn pod_overrides_flags_only_where_its_namespace_allows_it() {
    let bench = bench();
    let asked = |namespace: &str, overrides: &str| {
        let mut pod = pod("storefront");
        pod["metadata"]["annotations"]["remora.dev/overrides"] = json!(overrides);
        let mut review = review(&pod);
        review["request"]["namespace"] = json!(namespace);
        review
    };
    let valid = r#"{"banner": {"enabled": true, "value": "$(x)"}}"#;
    let allowed = bench.review(&asked("preview", valid)).await;
    assert_eq!(allowed["allowed"], true, "{allowed}");
    let patch = BASE64.decode(allowed["patch"].as_str().unwrap()).unwrap();
    let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
    let arguments = patch.iter().find_map(|operation| {
        operation["value"]["args"].as_array().or_else(|| operation["value"][0]["args"].as_array())
    });
    let arguments: Vec<&str> = arguments.unwrap().iter().map(|argument| argument.as_str().unwrap()).collect();
    let expected = ["--overrides", r#"{"banner":{"enabled":true,"value":"\u0024(x)"}}"#];
    assert!(arguments.windows(2).any(|pair| pair == expected), "{arguments:?}");

    for namespace in ["shop", "quiet", "denied", "broken"] {
        let mut review = asked(namespace, valid);
        // The namespace's own default of the port is not valid.
        review["request"]["object"]["metadata"]["annotations"]["remora.dev/port"] = json!("5000");
        let refused = bench.review(&review).await;
        let message = refused["status"]["message"].as_str().unwrap_or_default();
        let remedy = "set label remora.dev/allow-overrides: \"true\" on the namespace";
        assert!(refused["allowed"] == false && message.contains(remedy), "{namespace}: {refused}");
        assert!(message.contains(&format!("namespace \"{namespace}\" does not allow")), "{message}");
        assert_eq!(message.ends_with("so create the pod again first"), namespace == "broken", "{message}");
    }
    let with_key = |namespace: &str, secret: &str| {
        let mut review = asked(namespace, valid);
        let annotations = &mut review["request"]["object"]["metadata"]["annotations"];
        annotations.as_object_mut().unwrap().remove("remora.dev/overrides");
        annotations["remora.dev/override-key"] = json!(secret);
        review
    };
    let allowed = bench.review(&with_key("preview", "tests.v1")).await;
    let patch = BASE64.decode(allowed["patch"].as_str().unwrap()).unwrap();
    let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
    let volume = json!({"name": "override-key-remora", "secret": {
        "secretName": "tests.v1", "optional": true, "defaultMode": 0o444, "items": [{"key": "key", "path": "key"}],
    }});
    let mount = json!({"name": "override-key-remora", "mountPath": "/var/run/remora-override-key", "readOnly": true});
    let added = |path: &str, part: &Value| {
        let of_path = patch.iter().filter(|operation| operation["path"] == path);
        of_path.into_iter().any(|operation| operation["value"].to_string().contains(&part.to_string()))
    };
    assert!(added("/spec/volumes/-", &volume), "{patch:?}");
    assert!(added("/spec/initContainers/0", &mount), "{patch:?}");
    assert!(added("/spec/initContainers/0", &json!("/var/run/remora-override-key/key")), "{patch:?}");
    assert!(!added("/spec/containers/0/volumeMounts/-", &mount), "only the sidecar has the key: {patch:?}");
    let refused = bench.review(&with_key("denied", "tests")).await;
    let message = refused["status"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("annotation remora.dev/override-key overrides flags, which namespace"), "{message}");
    for name in ["", "Tests", "a/b", "-a", "a..b", &"a".repeat(254)] {
        let refused = bench.review(&with_key("preview", name)).await;
        let message = refused["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("but must be the name of a Secret of the pod's namespace"), "{name}: {message}");
    }
    let wrong = bench.review(&asked("preview", r#"{"banner": true}"#)).await;
    let message = wrong["status"]["message"].as_str().unwrap_or_default();
    assert!(wrong["allowed"] == false && message.contains(r#"such as {"banner": {"enabled": true"#), "{wrong}");
    let metrics = bench.metrics();
    assert!(
        metrics.contains(r#"remora_webhook_requests_total{decision="denied",reason="overrides_not_allowed"} 5"#),
        "{metrics}"
    );
}
