//! Whether pods get their sidecar, found out by asking: the API server is told to create a pod that wants one, as a dry run.
//!
//! The pod would be in the operator's own namespace, where the registration lets nothing through but this question, and it
//! goes the way of every other pod: registration, `caBundle`, Service, certificate, decision, patch; or the policies. So whatever breaks
//! injection is found here, also what no part of the operator could see by itself: a registration that somebody deleted,
//! or that a platform keeps from being called.
//!
//! The controller asks, not the webhook, and this is what its readiness waits for, once. A webhook that waited for its own
//! success would wait for ever: its Service has no endpoints before it is ready. A controller is nobody's endpoint: not being
//! ready, it does all of its work, and only `helm --wait` and a rollout, which keeps the replica that is ready, hear of it.
//! And once is enough: later failures are told by the metrics, and take nothing away.

use std::{convert::Infallible, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::api::names::{annotation, sidecar};

/// Longer than the registration's longest `timeoutSeconds`.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Between two questions, while the answer is no; at a start there is somebody who waits for it.
const SOON: Duration = Duration::from_secs(1);
/// The same after a few of them.
const LATER: Duration = Duration::from_secs(10);
/// Between two questions, while it is yes.
const IDLE: Duration = Duration::from_secs(30);
/// Questions at the shortest interval.
const IMPATIENT: u32 = 60;

/// Why a pod would not get its sidecar.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It was admitted without. The webhook was not asked, or could not be asked and `failurePolicy` is `Ignore`.
    #[error(
        "a pod that asks for a sidecar is admitted without: is there a MutatingWebhookConfiguration that is called (or a \
         MutatingAdmissionPolicy with its binding), and does the webhook answer?"
    )]
    NotInjected,
    /// It was not admitted.
    #[error("a pod that asks for a sidecar is refused: {0}")]
    Refused(#[source] Box<kube::Error>),
    /// Nobody said anything.
    #[error("the API server did not answer within {} s", TIMEOUT.as_secs())]
    Silence,
    /// The question cannot be put.
    #[error("the pod to ask with cannot be made: {0}")]
    MakePod(#[from] serde_json::Error),
}

impl Error {
    fn outcome(&self) -> &'static str {
        match self {
            Error::NotInjected => "NotInjected",
            Error::Refused(_) => "Refused",
            Error::Silence => "Silence",
            Error::MakePod(_) => "MakePod",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// What the check counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    works: Gauge,
    checks: Family<Outcome, Counter>,
}

impl Metrics {
    /// Registers all of them.
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics { works: Gauge::default(), checks: Family::default() };
        registry.register(
            "remora_injection_works",
            "1 while a pod that asks for a sidecar gets one, as a dry run shows twice a minute",
            metrics.works.clone(),
        );
        registry.register(
            "remora_injection_checks",
            "Dry runs of a pod that asks for a sidecar, by outcome: Injected, NotInjected, Refused, Silence",
            metrics.checks.clone(),
        );
        metrics
    }
}

/// Asks again and again.
pub struct SelfCheck {
    pods: Api<Pod>,
    metrics: Metrics,
    ready: watch::Sender<bool>,
    since: watch::Sender<Option<Timestamp>>,
}

impl SelfCheck {
    /// A check in the operator's namespace. `ready` becomes true with the first success, and stays so; `since` is when the
    /// present row of successes began, and nothing while there is none.
    pub fn new(
        client: Client,
        namespace: &str,
        metrics: Metrics,
        ready: watch::Sender<bool>,
        since: watch::Sender<Option<Timestamp>>,
    ) -> SelfCheck {
        SelfCheck { pods: Api::namespaced(client, namespace), metrics, ready, since }
    }

    /// Asks for ever.
    pub async fn run(self) -> Infallible {
        let mut failures = 0u32;
        loop {
            let pause = match self.ask().await {
                Ok(()) => {
                    self.succeeded();
                    failures = 0;
                    IDLE
                }
                Err(error) => {
                    self.metrics.checks.get_or_create(&Outcome { outcome: error.outcome() }).inc();
                    self.metrics.works.set(0);
                    self.since.send_if_modified(|since| since.take().is_some());
                    failures = failures.saturating_add(1);
                    // While both start together, a first no says nothing.
                    if failures > 3 {
                        tracing::warn!(%error, "injection does not work");
                    }
                    if failures < IMPATIENT { SOON } else { LATER }
                }
            };
            sleep(pause).await;
        }
    }

    fn succeeded(&self) {
        self.metrics.checks.get_or_create(&Outcome { outcome: "Injected" }).inc();
        self.metrics.works.set(1);
        if self.since.send_if_modified(|since| since.is_none() && since.replace(Timestamp::now()).is_none()) {
            tracing::info!("injection works");
        }
        self.ready.send_if_modified(|ready| !std::mem::replace(ready, true));
    }

    async fn ask(&self) -> Result<(), Error> {
        let parameters = PostParams { dry_run: true, ..PostParams::default() };
        let pod = pod()?;
        let created = timeout(TIMEOUT, self.pods.create(&parameters, &pod)).await.map_err(|_| Error::Silence)?;
        let created = created.map_err(|error| Error::Refused(Box::new(error)))?;
        let init = created.spec.and_then(|spec| spec.init_containers).unwrap_or_default();
        let injected = init.iter().any(|container| {
            container.name == sidecar::CONTAINER && container.restart_policy.as_deref() == Some("Always")
        });
        if injected { Ok(()) } else { Err(Error::NotInjected) }
    }
}

/// A pod that would be admitted wherever the operator's own are, and that costs nothing where quotas count.
fn pod() -> Result<Pod, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"generateName": "remora-self-check-", "annotations": {annotation::INJECT: "self-check"}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "nothing", "image": "nothing",
                "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": true, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
                },
            }],
        },
    }))
}
