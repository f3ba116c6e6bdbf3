//! Finds pods that ask for a sidecar and have none: admitted before the operator was there, or while the webhook was down and
//! `failurePolicy` was `Ignore`. Needs the client, and runs where the lease is.
//!
//! Nothing mends such a pod: containers cannot be added to it. So it is told, by a metric and by Events, and, if the
//! administrator said so, evicted, for its controller to make another one.
//!
//! Once a minute the metadata of all pods without the sidecar's label is listed, in pages: of them only those with the
//! annotation are looked at whole, and each of these once. The label is believed: a template that has it by itself hides its
//! pods from us.

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

/// Between two looks at all pods.
const PERIOD: Duration = Duration::from_secs(60);

/// What the administrator decided.
#[derive(Clone, Debug)]
pub struct Options {
    /// The operator's own namespace.
    pub own_namespace: String,
    /// The only namespaces that are served; none: all of them are.
    pub watch_namespaces: Vec<String>,
    /// Namespaces that the registration leaves out, besides those that it always does.
    pub excluded_namespaces: Vec<String>,
    /// Whether pods are evicted.
    pub evict: bool,
}

/// Why it is not known which pods lack their sidecar.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Their metadata was not listed.
    #[error("pods cannot be listed: {0}")]
    ListPods(#[source] Box<kube::Error>),
    /// One was not read.
    #[error("pod {namespace}/{name} cannot be read: {source}")]
    ReadPod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The API server's answer.
        source: Box<kube::Error>,
    },
    /// Its namespace was not read.
    #[error("namespace {namespace} cannot be read: {source}")]
    ReadNamespace {
        /// Which.
        namespace: String,
        /// The API server's answer.
        source: Box<kube::Error>,
    },
    /// What was read cannot be understood.
    #[error("a pod cannot be understood: {0}")]
    UnderstandPod(#[from] serde_json::Error),
    /// The API server said nothing.
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

/// Looks at all pods again and again.
pub struct Auditor {
    candidates: Candidates,
    teller: Teller,
    evictor: Option<Evictor>,
    metrics: Metrics,
    works_since: watch::Receiver<Option<Timestamp>>,
    /// What was found out about each pod, while it is there. A pod's containers stay what they are.
    judged: HashMap<Judged, Option<Lack>>,
    told: HashSet<String>,
}

/// A pod, and what it asks for: its annotations may change.
type Judged = (String, BTreeMap<String, String>);

impl Auditor {
    /// An auditor that evicts, if it may, while injection works.
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

    /// Looks for ever: once a minute, and whenever injection begins to work, since then others were not told so far.
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
                // An error means that nobody checks any more: then there is only the time.
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
            // Injection may have stopped working meanwhile, and then others come back as they were.
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
