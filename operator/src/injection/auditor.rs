//! Finds pods that request a sidecar and have none: they were admitted before the operator was installed, or while the
//! webhook was down and `failurePolicy` was `Ignore`. Runs on the replica that holds the lease.
//!
//! Such a pod cannot be repaired, because containers cannot be added to an existing pod. The auditor reports it by a
//! metric and by Events. If the administrator enabled eviction, the auditor also evicts it, so that its controller
//! creates another one.
//!
//! Once a minute the auditor lists the metadata of all pods without the sidecar's label, in pages. It reads in full
//! only pods with the annotation, each of them once. The auditor trusts the label: a pod template that sets it itself
//! hides its pods.

mod candidates;
mod events;
mod evict;
mod metrics;
mod rounds;

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    time::Duration,
};

use jiff::Timestamp;
use kube::Client;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use self::metrics::AuditOutcome;
pub use self::metrics::Metrics;
use self::{
    candidates::{Candidate, Candidates},
    events::{report_eviction, report_missing},
    evict::{EVICTIONS_MAX, EvictionOutcome, EvictionTurns, Evictor, choose},
    rounds::{by_namespace, in_rounds},
};
use crate::{
    api_call::CallError,
    events::EventPublisher,
    injection::{MissingSidecar, pods},
};

/// Largest number of pods that one audit reads in full. A verdict stays, so the next audit reads others.
const CHECKS_MAX: usize = 500;

/// Interval between two audits.
const PERIOD: Duration = Duration::from_secs(60);

/// Settings of the auditor.
#[derive(Clone, Debug)]
pub struct Options {
    /// The operator's own namespace.
    pub own_namespace: String,
    /// The namespaces to audit. Empty: all namespaces.
    pub watch_namespaces: Vec<String>,
    /// Namespaces that the registration excludes in addition to those that it always excludes.
    pub excluded_namespaces: Vec<String>,
    /// True if the auditor evicts pods without their sidecar.
    pub evict: bool,
}

/// Error: the audit could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The metadata of the pods cannot be listed.
    #[error("cannot list pods: {0}")]
    ListPods(#[from] pods::Error),
    /// A pod cannot be read.
    #[error("cannot read pod {namespace}/{name}: {source}")]
    ReadPod {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        name: String,
        /// Error of the API call.
        source: CallError,
    },
    /// The pod's namespace cannot be read.
    #[error("cannot read namespace {namespace}: {source}")]
    ReadNamespace {
        /// Name of the namespace.
        namespace: String,
        /// Error of the API call.
        source: CallError,
    },
    /// A pod cannot be converted to JSON.
    #[error("cannot convert a pod to JSON: {0}")]
    UnderstandPod(#[from] serde_json::Error),
}

impl Error {
    fn outcome(&self) -> AuditOutcome {
        match self {
            Error::ListPods(pods::Error::Call(source))
            | Error::ReadPod { source, .. }
            | Error::ReadNamespace { source, .. }
                if matches!(source, CallError::Timeout(_)) =>
            {
                AuditOutcome::Silence
            }
            Error::ListPods(_) => AuditOutcome::ListPods,
            Error::ReadPod { .. } => AuditOutcome::ReadPod,
            Error::ReadNamespace { .. } => AuditOutcome::ReadNamespace,
            Error::UnderstandPod(_) => AuditOutcome::UnderstandPod,
        }
    }
}

/// Audits all pods periodically.
pub struct Auditor {
    candidates: Candidates,
    events: EventPublisher,
    evictor: Option<Evictor>,
    turns: EvictionTurns,
    metrics: Metrics,
    works_since: watch::Receiver<Option<Timestamp>>,
    /// Verdict on each candidate that exists. A verdict stays correct, because the containers of a pod do not change.
    verdicts: HashMap<VerdictKey, Option<MissingSidecar>>,
    reported: HashSet<String>,
}

/// UID of a pod and the hash of its Remora annotations. The hash is part of the key because annotations can change.
type VerdictKey = (String, u64);

fn key(candidate: &Candidate) -> VerdictKey {
    (candidate.uid.clone(), candidate.annotations)
}

impl Auditor {
    /// Creates an auditor. `works_since` is the time since when the self-check has succeeded without a failure, or
    /// `None` while it fails; the auditor evicts only while it is set, and only if the options allow it.
    pub fn new(
        client: Client,
        options: Options,
        instance: String,
        metrics: Metrics,
        works_since: watch::Receiver<Option<Timestamp>>,
    ) -> Auditor {
        Auditor {
            events: EventPublisher::new(client.clone(), instance),
            evictor: options.evict.then(|| Evictor::new(client.clone())),
            turns: EvictionTurns::default(),
            candidates: Candidates::new(client, options),
            metrics,
            works_since,
            verdicts: HashMap::new(),
            reported: HashSet::new(),
        }
    }

    /// Audits once a minute and never returns. An audit also runs as soon as injection starts to work, because pods
    /// created before may lack their sidecar.
    pub async fn run(mut self) -> Infallible {
        loop {
            let outcome = match self.audit().await {
                Ok(()) => AuditOutcome::Done,
                Err(error) => {
                    tracing::warn!(%error, "cannot audit the pods; the next audit follows within a minute");
                    error.outcome()
                }
            };
            self.metrics.count_audit(outcome);
            let began = async {
                // An error means that the self-check has ended: only the interval starts the next audit then.
                if self.works_since.wait_for(Option::is_none).await.is_err()
                    || self.works_since.wait_for(Option::is_some).await.is_err()
                {
                    std::future::pending::<()>().await;
                }
            };
            let _ = timeout(PERIOD, began).await;
        }
    }

    async fn audit(&mut self) -> Result<(), Error> {
        let candidates = self.to_audit(self.candidates.list().await?);
        let mut missing = Vec::new();
        let mut verdicts = HashMap::with_capacity(candidates.len());
        let (mut failure, mut is_silent) = (None, false);
        for candidate in candidates {
            let key = key(&candidate);
            let missing_sidecar = match self.verdicts.remove(&key) {
                Some(known) => known,
                // Each further question would take its whole time limit.
                None if is_silent => continue,
                None => match self.candidates.check(&candidate).await {
                    Ok(checked) => checked,
                    // The next audit checks this pod again. Whoever made it decides nothing about the others.
                    Err(error) => {
                        is_silent = error.outcome() == AuditOutcome::Silence;
                        failure.get_or_insert(error);
                        continue;
                    }
                },
            };
            let is_evictable = matches!(missing_sidecar, Some(MissingSidecar::Replaceable));
            if let Some(fault) = &missing_sidecar {
                if self.reported.insert(candidate.uid.clone()) {
                    report_missing(&self.events, &candidate, fault).await;
                }
                missing.push((candidate, is_evictable));
            }
            verdicts.insert(key, missing_sidecar);
        }
        self.verdicts = verdicts;
        let uids: HashSet<&str> = missing.iter().map(|(candidate, _)| candidate.uid.as_str()).collect();
        self.reported.retain(|uid| uids.contains(uid.as_str()));
        self.metrics.set_missing(missing.iter().map(|(candidate, _)| candidate.namespace.as_str()));
        let evictable = missing.into_iter().filter(|(_, evictable)| *evictable).map(|(candidate, _)| candidate);
        self.evict(evictable.collect()).await;
        failure.map_or(Ok(()), Err)
    }

    /// Selects the candidates of this audit: those with a verdict, and [`CHECKS_MAX`] others. A namespace whose pods change all
    /// the time delays the verdicts on its own pods only.
    fn to_audit(&self, candidates: Vec<Candidate>) -> Vec<Candidate> {
        let has_verdict = |candidate: &Candidate| self.verdicts.contains_key(&key(candidate));
        let (mut selected, unknown): (Vec<_>, Vec<_>) = candidates.into_iter().partition(has_verdict);
        let unknown = by_namespace(unknown).into_values().map(Vec::into_iter).collect();
        selected.extend(in_rounds(unknown, CHECKS_MAX));
        selected
    }

    /// Evicts up to [`EVICTIONS_MAX`] of these pods.
    async fn evict(&mut self, missing: Vec<Candidate>) {
        let (Some(evictor), Some(since)) = (&self.evictor, *self.works_since.borrow()) else {
            return;
        };
        let (mut evicted, end) = (0, Instant::now() + PERIOD);
        for candidate in self.turns.order(choose(missing, since)) {
            // If injection has stopped working meanwhile, the replacement of an evicted pod would lack its sidecar too.
            // An API server that does not answer evictions must not delay the next audit for long.
            if evicted == EVICTIONS_MAX || Instant::now() >= end || self.works_since.borrow().is_none() {
                return;
            }
            let outcome = evictor.evict(&candidate).await;
            self.turns.record(&candidate);
            self.metrics.count_eviction(outcome);
            if outcome == EvictionOutcome::Evicted {
                evicted += 1;
                report_eviction(&self.events, &candidate).await;
            }
        }
    }
}
