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
    memory::estimate,
    namespaces::{self, Namespaces, allows_overrides, defaults},
    review::{Request, allow, deny},
};
use crate::{
    api::names::{EnvironmentName, annotation},
    api_call::CallError,
    injection::{
        Config, Decision, Injection, Layouts, PodContext, Refusal, decide,
        metrics::{Labels, Metrics, Outcome},
        quote,
    },
    listener::{Limits, Useful},
};

/// Largest estimated memory of a parsed pod in bytes. 20,000 variables need 20 MiB. A larger pod is denied.
const POD_MEMORY_MAX: usize = 32 << 20;

/// Largest number of containers of a pod, init containers included. Each costs several patch operations. A pod with
/// more is denied.
const CONTAINERS_MAX: usize = 1000;

/// Largest estimated memory of a small pod in bytes. Larger pods are parsed one at a time.
const SMALL_POD_MEMORY: usize = 1 << 20;

/// Memory budget in bytes for all small pods that are handled at the same time. Further small pods wait.
const SMALL_PODS_MEMORY: usize = 16 << 20;

/// The handler of admission requests.
#[derive(Clone)]
pub struct Webhook {
    config: Arc<Config>,
    environments: Environments,
    namespaces: Namespaces,
    metrics: Metrics,
    budget: Arc<ParseBudget>,
}

/// Memory budgets for parsed pods.
struct ParseBudget {
    /// Budget of small pods: one permit per byte of estimated memory.
    small: Arc<Semaphore>,
    /// Budget of large pods: one permit per pod.
    large: Arc<Semaphore>,
}

impl Webhook {
    /// Creates a handler with this configuration.
    pub fn new(config: Config, environments: Environments, namespaces: Namespaces, metrics: Metrics) -> Webhook {
        let budget =
            ParseBudget { small: Arc::new(Semaphore::new(SMALL_PODS_MEMORY)), large: Arc::new(Semaphore::new(1)) };
        Webhook { config: Arc::new(config), environments, namespaces, metrics, budget: Arc::new(budget) }
    }
}

/// Returns the router, which serves only `POST /mutate`.
pub fn router(webhook: Webhook) -> Router {
    Router::new()
        .route("/mutate", post(mutate))
        .layer(DefaultBodyLimit::max(Limits::webhook().largest_body))
        .with_state(webhook)
}

/// Results of the look-ups for one request.
struct LookedUp<'a> {
    namespace: Result<Option<Arc<namespaces::KnownNamespace>>, CallError>,
    /// The environments that the pod requests.
    environments: Vec<(&'a EnvironmentName, Presence)>,
}

/// An answer, with the outcome that it is counted by.
struct Reviewed {
    outcome: Outcome,
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
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "the Content-Type must be application/json\n").into_response();
    }
    let request = match Request::read(&body) {
        Ok(request) => request,
        Err(error) => {
            webhook.metrics.count_answer(&Outcome::Refused.labels(), started.elapsed());
            return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response();
        }
    };
    let Reviewed { outcome, review } = webhook.answer(&request, &body).await;
    let labels = outcome.labels();
    webhook.metrics.count_answer(&labels, started.elapsed());
    let Labels { decision, reason } = labels;
    tracing::debug!(namespace = %request.namespace, uid = %request.uid, decision, reason, "answered a request");
    match review {
        Ok(review) => (Extension(Useful), Json(review)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

impl Webhook {
    /// Looks up the pod's namespace and environments, and decides about the pod as soon as the memory budget allows parsing
    /// it. Denies a pod beyond the limits.
    async fn answer(&self, request: &Request<'_>, body: &Bytes) -> Reviewed {
        let uid = &request.uid;
        if !request.creates_pod() {
            return Reviewed { outcome: Outcome::SkippedNoNewPod, review: allow(uid, None, &[]) };
        }
        let denied = |outcome, message: &str| Reviewed { outcome, review: Ok(deny(uid, message)) };
        let memory = estimate(request.object().as_bytes());
        if memory > POD_MEMORY_MAX {
            let message = format!(
                "the pod has too many fields: parsed, it needs more than {} MiB of the webhook's memory; remove fields, or \
                 annotation {}",
                POD_MEMORY_MAX >> 20,
                annotation::INJECT
            );
            return denied(Outcome::DeniedTooLarge, &message);
        }
        // The look-ups come before the permit, because otherwise reviews that wait for the API server would hold the
        // budget that other reviews wait for.
        let requested = request.environments();
        let (namespace, environments) = tokio::join!(
            self.namespaces.look_up(&request.namespace),
            self.environments.look_up(&request.namespace, &requested)
        );
        let Some((pod, _permit)) = self.budget.read(body, request.object(), memory).await else {
            let message = "the pod cannot be parsed: its JSON is invalid, or nested more than 127 levels deep";
            return denied(Outcome::DeniedMalformed, message);
        };
        let of = |list| pod.pointer(list).and_then(Value::as_array).map_or(0, Vec::len);
        if of("/spec/containers") + of("/spec/initContainers") > CONTAINERS_MAX {
            let message = format!(
                "the pod has more than {CONTAINERS_MAX} containers: remove containers, or annotation {}",
                annotation::INJECT
            );
            return denied(Outcome::DeniedTooLarge, &message);
        }
        self.decide(request, &pod, &LookedUp { namespace, environments })
    }

    /// Decides about the parsed pod. It waits for nothing, because the pod holds a part of the memory budget.
    fn decide(&self, request: &Request<'_>, pod: &Value, looked_up: &LookedUp<'_>) -> Reviewed {
        let uid = &request.uid;
        let LookedUp { namespace, environments } = looked_up;
        let mut warnings = Vec::new();
        if let Err(error) = namespace {
            tracing::warn!(%error, namespace = request.namespace, "cannot look up the namespace of a pod");
            warnings.push(format!(
                "the annotations of namespace {} cannot be read, so its defaults do not apply: recreate the pod if it needs them",
                quote(&request.namespace)
            ));
        }
        let known = namespace.as_ref().ok().and_then(Option::as_deref);
        let layouts: Layouts =
            environments.iter().filter_map(|(name, found)| Some(((*name).clone(), found.layout()?))).collect();
        let context = PodContext {
            namespace: &request.namespace,
            defaults: known.and_then(defaults),
            layouts: Some(&layouts),
            dry_run: request.dry_run.unwrap_or(false),
            allows_overrides: known.is_some_and(allows_overrides),
        };
        match decide(pod, &context, &self.config) {
            Decision::Skip(reason) => {
                let warnings: Vec<_> = reason.warning().map(str::to_owned).into_iter().collect();
                Reviewed { outcome: Outcome::Skipped(reason), review: allow(uid, None, &warnings) }
            }
            Decision::Deny(refusal) => {
                let mut message = refusal.to_string();
                if namespace.is_err() && matches!(refusal, Refusal::OverridesNotAllowed { .. }) {
                    message.push_str(
                        "; the webhook could not read the namespace this time, so create the pod again first",
                    );
                }
                let review = Ok(deny(uid, &message));
                Reviewed { outcome: Outcome::Denied(refusal), review }
            }
            Decision::Inject(injection) => inject(request, injection, environments, warnings),
        }
    }
}

impl ParseBudget {
    /// Waits for the memory budget and parses the pod, a slice of `body`. The budget stays reserved until the permit is
    /// dropped. Returns `None` if the pod cannot be parsed.
    async fn read(&self, body: &Bytes, pod: &str, memory: usize) -> Option<(Value, OwnedSemaphorePermit)> {
        if memory <= SMALL_POD_MEMORY {
            let permit = Arc::clone(&self.small).acquire_many_owned(u32::try_from(memory).ok()?).await.ok()?;
            return Some((serde_json::from_str(pod).ok()?, permit));
        }
        let permit = Arc::clone(&self.large).acquire_owned().await.ok()?;
        let pod = body.slice_ref(pod.as_bytes());
        // A blocking task, because parsing a large pod would delay other requests. The task owns the permit, because
        // the request may be cancelled while the task still uses the memory.
        let reading = tokio::task::spawn_blocking(move || Some((serde_json::from_slice(&pod).ok()?, permit)));
        reading.await.ok().flatten()
    }
}

fn inject(
    request: &Request<'_>,
    injection: Injection,
    found: &[(&EnvironmentName, Presence)],
    mut warnings: Vec<String>,
) -> Reviewed {
    warnings.extend(injection.warnings);
    let mut outcome = Outcome::Injected;
    for (name, presence) in found {
        match presence {
            Presence::Present(_) => {}
            // Not denied: `kubectl apply` of a directory creates its objects in any order.
            Presence::Missing => {
                outcome = Outcome::InjectedEnvironmentMissing;
                warnings.push(format!(
                    "FeatureEnvironment {name} does not exist in namespace {}, so the pod starts without its flags: create it, and restart the pod if it delivers by Secrets, or correct annotation {}",
                    quote(&request.namespace),
                    annotation::INJECT
                ));
            }
            Presence::Unknown => {
                outcome = Outcome::InjectedEnvironmentUnknown;
                warnings.push(format!(
                    "FeatureEnvironment {name} of namespace {} cannot be read, so the pod gets a volume of the default layout: recreate the pod if the environment exists and sets spec.delivery",
                    quote(&request.namespace)
                ));
            }
        }
    }
    Reviewed { outcome, review: allow(&request.uid, Some(&injection.patch), &warnings) }
}
