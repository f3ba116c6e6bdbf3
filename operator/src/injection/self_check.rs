//! Checks if pods get their sidecar, by a dry run: the API server is asked to create a pod that requests one.
//!
//! The pod is in the operator's own namespace, where the registration passes only this pod. The request takes the path
//! of every other pod: registration, `caBundle`, Service, certificate, decision and patch, or the admission policies.
//! The check therefore detects everything that breaks injection, including faults that no other part of the operator
//! can see: a deleted registration, or a platform that keeps the API server from calling the webhook.
//!
//! The controller runs the check, not the webhook, and the controller becomes ready after the first success. A webhook
//! that waited for this success would never become ready, because its Service has no endpoints before that. A
//! controller needs no endpoint: it works fully while it is not ready, and only `helm --wait` and a rollout, which
//! keeps the previous ready replica, notice. One success is enough: later failures show in the metrics and do not
//! change the readiness.

use std::{convert::Infallible, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::{sync::watch, time::sleep};

use super::dry_run_pod;
use crate::{
    api::names::sidecar,
    api_call::{CallError, within},
};

/// Name of the pod, its component, and the FeatureEnvironment that it requests.
const NAME: &str = "self-check";

/// Timeout of one check, longer than the largest `timeoutSeconds` of the registration.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Pause after each of the first failures. It is short, because an installation waits for the first success.
const RETRY_EARLY: Duration = Duration::from_secs(1);
/// Pause after each further failure.
const RETRY_LATE: Duration = Duration::from_secs(10);
/// Pause after a success.
const INTERVAL: Duration = Duration::from_secs(30);
/// Number of consecutive failures from which on the pause is [`RETRY_LATE`] instead of [`RETRY_EARLY`].
const EARLY_FAILURES: u32 = 60;

/// Error: a pod that requests a sidecar would not get one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pod was admitted without a sidecar. The webhook was not called, or could not be called and `failurePolicy`
    /// is `Ignore`.
    #[error(
        "a pod that requests a sidecar is admitted without one: check that the MutatingWebhookConfiguration exists and \
         that the webhook answers, or that the MutatingAdmissionPolicy and its binding exist"
    )]
    NotInjected,
    /// The pod was refused, or the API server does not answer.
    #[error("a pod that requests a sidecar is refused: {0}")]
    Refused(#[from] CallError),
    /// The pod of the dry run cannot be built.
    #[error("cannot build the pod of the dry run: {0}")]
    MakePod(#[from] serde_json::Error),
}

impl Error {
    fn outcome(&self) -> Outcome {
        match self {
            Error::NotInjected => Outcome::NotInjected,
            Error::Refused(CallError::Timeout(_)) => Outcome::Silence,
            Error::Refused(_) => Outcome::Refused,
            Error::MakePod(_) => Outcome::MakePod,
        }
    }
}

/// Outcome of a check, and the value of its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Outcome {
    Injected,
    NotInjected,
    Refused,
    Silence,
    MakePod,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: Outcome,
}

/// Metrics of the self-check.
#[derive(Clone, Debug)]
pub struct Metrics {
    works: Gauge,
    checks: Family<Labels, Counter>,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics { works: Gauge::default(), checks: Family::default() };
        registry.register(
            "remora_injection_works",
            "1 if the last dry run of a pod that requests a sidecar added one, else 0; a dry run takes place twice a minute",
            metrics.works.clone(),
        );
        registry.register(
            "remora_injection_checks",
            "Dry runs of a pod that requests a sidecar, by outcome: Injected, NotInjected, Refused, Silence, MakePod",
            metrics.checks.clone(),
        );
        metrics
    }
}

/// The periodic self-check.
pub struct SelfCheck {
    pods: Api<Pod>,
    image: String,
    metrics: Metrics,
    ready: watch::Sender<bool>,
    since: watch::Sender<Option<Timestamp>>,
}

impl SelfCheck {
    /// Creates a check in the operator's namespace, by pods with this image. `ready` becomes true with the first
    /// success, and stays true. `since` is the start of the current series of successes, or `None` after a failure.
    pub fn new(
        client: Client,
        namespace: &str,
        image: &str,
        metrics: Metrics,
        ready: watch::Sender<bool>,
        since: watch::Sender<Option<Timestamp>>,
    ) -> SelfCheck {
        SelfCheck { pods: Api::namespaced(client, namespace), image: image.to_owned(), metrics, ready, since }
    }

    /// Runs the check periodically and never returns.
    pub async fn run(self) -> Infallible {
        let mut failures = 0u32;
        loop {
            let pause = match check(&self.pods, &self.image).await {
                Ok(()) => {
                    self.succeeded();
                    failures = 0;
                    INTERVAL
                }
                Err(error) => {
                    self.metrics.checks.get_or_create(&Labels { outcome: error.outcome() }).inc();
                    self.metrics.works.set(0);
                    self.since.send_if_modified(|since| since.take().is_some());
                    failures = failures.saturating_add(1);
                    // The first failures are normal while controller and webhook start together.
                    if failures > 3 {
                        tracing::warn!(%error, "injection does not work");
                    }
                    if failures < EARLY_FAILURES { RETRY_EARLY } else { RETRY_LATE }
                }
            };
            sleep(pause).await;
        }
    }

    fn succeeded(&self) {
        self.metrics.checks.get_or_create(&Labels { outcome: Outcome::Injected }).inc();
        self.metrics.works.set(1);
        if self.since.send_if_modified(|since| since.is_none() && since.replace(Timestamp::now()).is_none()) {
            tracing::info!("injection works");
        }
        self.ready.send_if_modified(|ready| !std::mem::replace(ready, true));
    }
}

/// Sends one dry run of a pod that requests a sidecar. Its image should be one that the namespace admits.
///
/// # Errors
/// If the pod would not get one, or the API server does not say.
pub async fn check(pods: &Api<Pod>, image: &str) -> Result<(), Error> {
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    let pod = pod(image)?;
    let created = within(TIMEOUT, pods.create(&parameters, &pod)).await?;
    let init = created.spec.and_then(|spec| spec.init_containers).unwrap_or_default();
    let injected = init
        .iter()
        .any(|container| container.name == sidecar::CONTAINER && container.restart_policy.as_deref() == Some("Always"));
    if injected { Ok(()) } else { Err(Error::NotInjected) }
}

/// Builds a pod that policies about images, labels and PodSecurity admit as they do the operator's own pods.
fn pod(image: &str) -> Result<Pod, serde_json::Error> {
    let mut pod = dry_run_pod(NAME, image)?;
    let labels = [("app.kubernetes.io/name", "remora"), ("app.kubernetes.io/component", NAME)];
    pod.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    Ok(pod)
}
