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
mod evict;
mod metrics;
mod tell;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    convert::Infallible,
    time::Duration,
};

use jiff::Timestamp;
use kube::Client;
use tokio::{sync::watch, time::timeout};

pub use self::metrics::Metrics;
use self::{
    candidates::{Candidate, Candidates},
    evict::{Evicted, Evictor, choose},
    tell::Teller,
};
use crate::injection::Lack;

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
    #[error("pods cannot be listed: {0}")]
    ListPods(#[source] Box<kube::Error>),
    /// A pod cannot be read.
    #[error("pod {namespace}/{name} cannot be read: {source}")]
    ReadPod {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        name: String,
        /// Error of the API call.
        source: Box<kube::Error>,
    },
    /// The pod's namespace cannot be read.
    #[error("namespace {namespace} cannot be read: {source}")]
    ReadNamespace {
        /// Name of the namespace.
        namespace: String,
        /// Error of the API call.
        source: Box<kube::Error>,
    },
    /// A pod cannot be converted to JSON.
    #[error("a pod cannot be understood: {0}")]
    UnderstandPod(#[from] serde_json::Error),
    /// The API server did not answer within the timeout.
    #[error("the API server did not answer within {} s", candidates::TIMEOUT.as_secs())]
    Silence,
}

impl Error {
    fn outcome(&self) -> &'static str {
        match self {
            Error::ListPods(_) => "ListPods",
            Error::ReadPod { .. } => "ReadPod",
            Error::ReadNamespace { .. } => "ReadNamespace",
            Error::UnderstandPod(_) => "UnderstandPod",
            Error::Silence => "Silence",
        }
    }
}

/// Audits all pods periodically.
pub struct Auditor {
    candidates: Candidates,
    teller: Teller,
    evictor: Option<Evictor>,
    metrics: Metrics,
    works_since: watch::Receiver<Option<Timestamp>>,
    /// Verdict on each candidate that exists. A verdict stays correct, because the containers of a pod do not change.
    judged: HashMap<Judged, Option<Lack>>,
    told: HashSet<String>,
}

/// UID of a pod and its Remora annotations. The annotations are part of the key because they can change.
type Judged = (String, BTreeMap<String, String>);

impl Auditor {
    /// Creates an auditor. `works_since` is the time since when the self-check has succeeded without a failure, or
    /// `None` while it fails; the auditor evicts only while it is set, and only if the options allow it.
    pub fn new(
        client: Client,
        options: Options,
        instance: Option<String>,
        metrics: Metrics,
        works_since: watch::Receiver<Option<Timestamp>>,
    ) -> Auditor {
        Auditor {
            teller: Teller::new(client.clone(), instance),
            evictor: options.evict.then(|| Evictor::new(client.clone())),
            candidates: Candidates::new(client, options),
            metrics,
            works_since,
            judged: HashMap::new(),
            told: HashSet::new(),
        }
    }

    /// Audits once a minute and never returns. An audit also runs as soon as injection starts to work, because pods
    /// created before may lack their sidecar.
    pub async fn run(mut self) -> Infallible {
        loop {
            let outcome = match self.look().await {
                Ok(()) => "Done",
                Err(error) => {
                    tracing::warn!(%error, "pods without their sidecar cannot be looked for");
                    error.outcome()
                }
            };
            self.metrics.looked(outcome);
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

    async fn look(&mut self) -> Result<(), Error> {
        let candidates = self.candidates.list().await?;
        let mut missing = Vec::new();
        let mut judged = HashMap::with_capacity(candidates.len());
        for candidate in candidates {
            let key = (candidate.uid.clone(), candidate.asks.clone());
            let lack = match self.judged.remove(&key) {
                Some(known) => known,
                None => match self.candidates.judge(&candidate).await {
                    Ok(lack) => lack,
                    Err(error) => {
                        self.judged.extend(judged);
                        return Err(error);
                    }
                },
            };
            let is_evictable = matches!(lack, Some(Lack::Admitted));
            if let Some(lack) = &lack {
                if self.told.insert(candidate.uid.clone()) {
                    self.teller.tell(&candidate, lack).await;
                }
                missing.push((candidate, is_evictable));
            }
            judged.insert(key, lack);
        }
        self.judged = judged;
        let uids: HashSet<&str> = missing.iter().map(|(candidate, _)| candidate.uid.as_str()).collect();
        self.told.retain(|uid| uids.contains(uid.as_str()));
        self.metrics.missing(missing.iter().map(|(candidate, _)| candidate.namespace.as_str()));
        let evictable = missing.into_iter().filter(|(_, evictable)| *evictable).map(|(candidate, _)| candidate);
        self.evict(evictable.collect()).await;
        Ok(())
    }

    async fn evict(&self, missing: Vec<Candidate>) {
        let (Some(evictor), Some(since)) = (&self.evictor, *self.works_since.borrow()) else {
            return;
        };
        for candidate in choose(missing, since) {
            // If injection has stopped working meanwhile, the replacement of an evicted pod would lack its sidecar too.
            if self.works_since.borrow().is_none() {
                return;
            }
            let evicted = evictor.evict(&candidate).await;
            self.metrics.evicted(evicted.outcome());
            if let Evicted::Done = evicted {
                self.teller.evicted(&candidate).await;
            }
        }
    }
}
