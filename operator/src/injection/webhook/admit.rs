//! Handles one admission request, from its body to its answer.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Json, Response},
    routing::post,
};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    environments::{Environments, Presence},
    namespaces::{Namespaces, defaults},
    review::{Request, allow, deny},
    weight::weigh,
};
use crate::{
    api::names::EnvironmentName,
    injection::{Config, Decision, Layouts, Place, Plan, asked_for, decide, metrics::Metrics, patch, quote},
    listener::{Limits, Useful},
};

/// Largest weight of a pod in bytes: its estimated memory as a parsed tree. 20,000 variables weigh 20 MiB. A heavier
/// pod is denied.
const HEAVIEST_POD: usize = 32 << 20;

/// Largest number of containers of a pod, init containers included. Each costs several patch operations. A pod with
/// more is denied.
const MOST_CONTAINERS: usize = 1000;

/// Largest weight in bytes of a light pod. Heavier pods are parsed one at a time.
const LIGHT_POD: usize = 1 << 20;

/// Memory budget in bytes for all light pods that are handled at the same time. Further light pods wait.
const LIGHT_PODS: usize = 16 << 20;

/// The handler of admission requests.
#[derive(Clone)]
pub struct Webhook {
    config: Arc<Config>,
    environments: Environments,
    namespaces: Namespaces,
    metrics: Metrics,
    turns: Arc<Turns>,
}

/// Memory budgets for parsed pods.
struct Turns {
    /// Budget of light pods: one permit per byte of weight.
    light: Arc<Semaphore>,
    /// Budget of heavy pods: one permit per pod.
    heavy: Arc<Semaphore>,
}

impl Webhook {
    /// Creates a handler with this configuration.
    pub fn new(config: Config, environments: Environments, namespaces: Namespaces, metrics: Metrics) -> Webhook {
        let turns = Turns { light: Arc::new(Semaphore::new(LIGHT_PODS)), heavy: Arc::new(Semaphore::new(1)) };
        Webhook { config: Arc::new(config), environments, namespaces, metrics, turns: Arc::new(turns) }
    }
}

/// Returns the router, which serves only `POST /mutate`.
pub fn router(webhook: Webhook) -> Router {
    Router::new()
        .route("/mutate", post(mutate))
        .layer(DefaultBodyLimit::max(Limits::webhook().largest_body))
        .with_state(webhook)
}

/// An answer, with its metric labels.
struct Answer {
    decision: &'static str,
    reason: &'static str,
    review: Result<Value, serde_json::Error>,
}

async fn mutate(State(webhook): State<Webhook>, headers: HeaderMap, body: Bytes) -> Response {
    let started = Instant::now();
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|mime| mime.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "only application/json is read here\n").into_response();
    }
    let request = match Request::read(&body) {
        Ok(request) => request,
        Err(error) => {
            webhook.metrics.answered("refused", "unreadable", started.elapsed());
            return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response();
        }
    };
    let Answer { decision, reason, review } = webhook.answer(&request, &body).await;
    webhook.metrics.answered(decision, reason, started.elapsed());
    tracing::debug!(namespace = %request.namespace, uid = %request.uid, decision, reason, "answered");
    match review {
        Ok(review) => (Extension(Useful), Json(review)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

impl Webhook {
    /// Decides about the pod as soon as the memory budget allows parsing it. Denies a pod beyond the limits.
    async fn answer(&self, request: &Request<'_>, body: &Bytes) -> Answer {
        let uid = &request.uid;
        if !request.creates_pod() {
            return Answer { decision: "skipped", reason: "no_new_pod", review: allow(uid, None, &[]) };
        }
        let denied = |message: &str| Answer { decision: "denied", reason: "too_large", review: Ok(deny(uid, message)) };
        let weight = weigh(request.object().as_bytes());
        if weight > HEAVIEST_POD {
            return denied("the pod is too large for the webhook that puts in the sidecar: it has too many fields");
        }
        let Some((pod, _turn)) = self.turns.read(body, request.object(), weight).await else {
            return denied("the pod cannot be read");
        };
        let of = |list| pod.pointer(list).and_then(Value::as_array).map_or(0, Vec::len);
        if of("/spec/containers") + of("/spec/initContainers") > MOST_CONTAINERS {
            return denied(&format!("the pod has more than {MOST_CONTAINERS} containers"));
        }
        self.decide(request, &pod).await
    }

    async fn decide(&self, request: &Request<'_>, pod: &Value) -> Answer {
        let uid = &request.uid;
        let namespace = self.namespaces.look_up(&request.namespace).await;
        let mut warnings = Vec::new();
        if let Err(error) = &namespace {
            tracing::warn!(%error, namespace = request.namespace, "namespace cannot be looked up");
            warnings.push(format!(
                "annotations of namespace {} could not be read: nothing of them holds",
                quote(&request.namespace)
            ));
        }
        let known = namespace.as_ref().ok().and_then(Option::as_deref);
        let place = Place {
            defaults: known.and_then(defaults),
            dry_run: request.dry_run.unwrap_or(false),
            ..Place::new(&request.namespace)
        };
        let asked_for = asked_for(pod, &place, &self.config.own_namespace);
        let found = self.environments.look_up(&request.namespace, &asked_for).await;
        let layouts: Layouts =
            found.iter().filter_map(|(name, found)| Some(((*name).clone(), found.layout()?))).collect();
        let place = Place { layouts: Some(&layouts), ..place };
        match decide(pod, &place, &self.config) {
            Decision::Skip(reason) => {
                let warnings: Vec<_> = reason.warning().map(str::to_owned).into_iter().collect();
                Answer { decision: "skipped", reason: reason.label(), review: allow(uid, None, &warnings) }
            }
            Decision::Deny(refusal) => {
                Answer { decision: "denied", reason: refusal.label(), review: Ok(deny(uid, &refusal.to_string())) }
            }
            Decision::Inject(plan) => inject(request, pod, &plan, &found, warnings),
        }
    }
}

impl Turns {
    /// Waits for the memory budget and parses the pod, a slice of `body`. The budget stays reserved until the permit is
    /// dropped. Returns `None` if the pod cannot be parsed.
    async fn read(&self, body: &Bytes, pod: &str, weight: usize) -> Option<(Value, OwnedSemaphorePermit)> {
        if weight <= LIGHT_POD {
            let turn = Arc::clone(&self.light).acquire_many_owned(u32::try_from(weight).ok()?).await.ok()?;
            return Some((serde_json::from_str(pod).ok()?, turn));
        }
        let turn = Arc::clone(&self.heavy).acquire_owned().await.ok()?;
        let pod = body.slice_ref(pod.as_bytes());
        // A blocking task, because parsing a heavy pod would delay other requests. The task owns the permit, because
        // the request may be cancelled while the task still uses the memory.
        let reading = tokio::task::spawn_blocking(move || Some((serde_json::from_slice(&pod).ok()?, turn)));
        reading.await.ok().flatten()
    }
}

fn inject(
    request: &Request<'_>,
    pod: &Value,
    plan: &Plan,
    found: &[(&EnvironmentName, Presence)],
    mut warnings: Vec<String>,
) -> Answer {
    warnings.extend_from_slice(plan.warnings());
    let mut reason = "complete";
    for (name, presence) in found {
        match presence {
            Presence::Present(_) => {}
            // Not denied: `kubectl apply` of a directory creates its objects in any order.
            Presence::Missing => {
                reason = "environment_missing";
                warnings.push(format!(
                    "there is no FeatureEnvironment {name} in namespace {}: the pod starts without its flags",
                    quote(&request.namespace)
                ));
            }
            Presence::Unknown => reason = "environment_unknown",
        }
    }
    let operations = patch(pod, plan);
    Answer { decision: "injected", reason, review: allow(&request.uid, Some(&operations), &warnings) }
}
