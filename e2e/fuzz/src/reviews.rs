//! Admission reviews: the bodies of requests to the webhook.
//!
//! The input is the body of a request.

use std::convert::Infallible;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::Client;
use prometheus_client::registry::Registry;
use remora_operator::injection::webhook::{Environments, Metrics, Namespaces, Webhook, router};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tower::{ServiceExt as _, service_fn};

use crate::assert_printable;
use crate::patch::config;

/// Asserts that a review gets an answer, that its patch applies, and that the patched pod is not patched again.
pub fn run(data: &[u8]) {
    thread_local! {
        // Leaked on purpose. Thread-local values are dropped at the end of the thread, when other values that these
        // need no longer exist.
        static WEBHOOK: (&'static Runtime, &'static Router) = webhook();
    }
    let (runtime, router) = WEBHOOK.with(|webhook| *webhook);
    let (status, body) = runtime.block_on(post(router, data.to_vec()));
    if status != StatusCode::OK {
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        return assert_printable(body.trim_end());
    }
    // The webhook skips members that it does not read. They may hold numbers that `serde_json::Value` cannot represent.
    let Ok(mut review) = serde_json::from_slice::<Value>(data) else { return };
    let response = response(&review, &body);
    let Some(patch) = response.get("patch") else { return };
    assert_eq!((&response["allowed"], &response["patchType"]), (&json!(true), &json!("JSONPatch")));
    let patch = BASE64.decode(patch.as_str().unwrap()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    json_patch::patch(&mut review["request"]["object"], &patch).expect("the patch does not apply");
    let (status, body) = runtime.block_on(post(router, review.to_string().into_bytes()));
    assert_eq!(status, StatusCode::OK, "{body}");
    let again = self::response(&review, &body);
    assert!(again["allowed"] == true && again.get("patch").is_none(), "a patched pod is patched again: {again}");
}

/// Returns the response in an answer. Panics if it does not belong to this review.
fn response(review: &Value, body: &str) -> Value {
    let mut answer: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&answer["apiVersion"], &answer["kind"]), (&json!("admission.k8s.io/v1"), &json!("AdmissionReview")));
    let response = answer["response"].take();
    assert_eq!(response["uid"], review["request"]["uid"]);
    let message = response["status"]["message"].as_str();
    let warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    warnings.chain(message).for_each(assert_printable);
    response
}

async fn post(router: &Router, body: Vec<u8>) -> (StatusCode, String) {
    let request = Request::post("/mutate?timeout=5s").header("content-type", "application/json");
    let response = router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn webhook() -> (&'static Runtime, &'static Router) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let router = {
        let _entered = runtime.enter();
        let metrics = Metrics::register(&mut Registry::default());
        let (environments, _) = Environments::watch(api_server());
        let (namespaces, _) = Namespaces::watch(api_server());
        router(Webhook::new(config(), environments, namespaces, metrics))
    };
    (Box::leak(Box::new(runtime)), Box::leak(Box::new(router)))
}

/// Returns a client of a simulated API server. It has the environment `storefront` in the namespace `shop`, and a
/// namespace `quiet` with defaults.
fn api_server() -> Client {
    let answer = |request: Request<kube::client::Body>| async move {
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
                    "metadata": {"name": "quiet", "annotations": {"remora.dev/log-level": "error", "remora.dev/port": "5000"}},
                }),
            ),
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
