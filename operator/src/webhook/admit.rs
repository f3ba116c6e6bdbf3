//! One admission request, from its body to its answer.

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Json, Response},
    routing::post,
};
use serde_json::Value;

use super::{
    environments::{Environments, Presence},
    metrics::Metrics,
    namespaces::{Namespaces, defaults},
    review::{Request, allow, deny},
};
use crate::inject::{Config, Decision, Layouts, Place, Plan, asked_for, decide, patch};
use crate::names::EnvironmentName;

/// A pod may be 3 MiB, the review holds its options beside it; axum's own limit would be 2 MiB.
const LARGEST_BODY: usize = 8 << 20;

/// What answers admission requests.
#[derive(Clone)]
pub struct Webhook {
    config: Arc<Config>,
    environments: Environments,
    namespaces: Namespaces,
    metrics: Metrics,
}

impl Webhook {
    /// Answers by this configuration.
    pub fn new(config: Config, environments: Environments, namespaces: Namespaces, metrics: Metrics) -> Webhook {
        Webhook { config: Arc::new(config), environments, namespaces, metrics }
    }
}

/// `POST /mutate`, and nothing else.
pub fn router(webhook: Webhook) -> Router {
    Router::new().route("/mutate", post(mutate)).layer(DefaultBodyLimit::max(LARGEST_BODY)).with_state(webhook)
}

/// An answer, with what the metrics say about it.
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
    let Answer { decision, reason, review } = webhook.answer(&request).await;
    webhook.metrics.answered(decision, reason, started.elapsed());
    tracing::debug!(namespace = %request.namespace, uid = %request.uid, decision, reason, "answered");
    match review {
        Ok(review) => Json(review).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

impl Webhook {
    async fn answer(&self, request: &Request) -> Answer {
        let uid = &request.uid;
        if !request.creates_pod() {
            return Answer { decision: "skipped", reason: "no_new_pod", review: allow(uid, None, &[]) };
        }
        let namespace = self.namespaces.look_up(&request.namespace).await;
        let mut warnings = Vec::new();
        if let Err(error) = &namespace {
            tracing::warn!(%error, namespace = request.namespace, "namespace cannot be looked up");
            warnings.push(format!(
                "annotations of namespace {} could not be read: nothing of them holds",
                request.namespace
            ));
        }
        let known = namespace.as_ref().ok().and_then(Option::as_deref);
        let place = Place {
            defaults: known.and_then(defaults),
            dry_run: request.dry_run.unwrap_or(false),
            ..Place::new(&request.namespace)
        };
        let asked_for = asked_for(&request.object, &place, &self.config.own_namespace);
        let found = self.environments.look_up(&request.namespace, &asked_for).await;
        let layouts: Layouts =
            found.iter().filter_map(|(name, found)| Some(((*name).clone(), found.layout()?))).collect();
        let place = Place { layouts: Some(&layouts), ..place };
        match decide(&request.object, &place, &self.config) {
            Decision::Skip(reason) => {
                let warnings: Vec<_> = reason.warning().map(str::to_owned).into_iter().collect();
                Answer { decision: "skipped", reason: reason.label(), review: allow(uid, None, &warnings) }
            }
            Decision::Deny(refusal) => {
                Answer { decision: "denied", reason: refusal.label(), review: Ok(deny(uid, &refusal.to_string())) }
            }
            Decision::Inject(plan) => inject(request, &plan, &found, warnings),
        }
    }
}

fn inject(request: &Request, plan: &Plan, found: &[(&EnvironmentName, Presence)], mut warnings: Vec<String>) -> Answer {
    let namespace = &request.namespace;
    warnings.extend_from_slice(plan.warnings());
    let mut reason = "complete";
    for (name, presence) in found {
        match presence {
            Presence::Present(_) => {}
            // Not refused: whoever applies a directory applies its files in any order.
            Presence::Missing => {
                reason = "environment_missing";
                warnings.push(format!(
                    "there is no FeatureEnvironment {name} in namespace {namespace}: the pod starts without its flags"
                ));
            }
            Presence::Unknown => reason = "environment_unknown",
        }
    }
    let operations = patch(&request.object, plan);
    Answer { decision: "injected", reason, review: allow(&request.uid, Some(&operations), &warnings) }
}
