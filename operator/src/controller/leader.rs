//! Which replica reconciles: the one that holds a Lease.
//!
//! A holder that cannot renew in time ends its process rather than trusting itself to have stopped everything, and says so
//! well before anybody else may take over. Clocks of different machines are never compared: a lease has run out when it was
//! seen unchanged for its whole duration.

mod decide;
mod owner;
mod tenure;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference},
};
use kube::{Api, Client, api::PostParams, core::ObjectMeta};
use tokio::time::{sleep, timeout};

use self::decide::{Decision, Sighting, decide};
pub use self::{owner::account, tenure::Tenure};

/// How long a lease lasts without being renewed.
const DURATION: Duration = Duration::from_secs(30);
/// How long the holder tries to renew it before it gives up: well within the duration.
const DEADLINE: Duration = Duration::from_secs(20);
/// How often it is renewed, and looked at.
const PERIOD: Duration = Duration::from_secs(5);
/// How long one call may take.
const CALL: Duration = Duration::from_secs(5);

/// The right to reconcile is lost, or nobody knows.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Somebody else has it.
    #[error("the lease {0} was taken by another replica")]
    Taken(String),
    /// It could not be renewed in time.
    #[error("the lease {0} could not be renewed in time")]
    Expired(String),
}

/// A lease that replicas compete for.
#[derive(Clone)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    owner: Option<OwnerReference>,
    tenure: Tenure,
}

impl Election {
    /// The election for `name` in `namespace`; `identity` must be this process's alone. The lease goes with its holder's
    /// `owner`; `tenure` knows how it stands.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: String,
        owner: Option<OwnerReference>,
        tenure: Tenure,
    ) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), identity, owner, tenure }
    }

    /// Waits until the lease is ours.
    pub async fn win(&self) {
        let mut seen: Option<Sighting> = None;
        let mut waiting = false;
        loop {
            match self.attempt(&mut seen).await {
                Ok(true) => return,
                Ok(false) if !waiting => {
                    tracing::info!(lease = self.name, "another replica reconciles; waiting");
                    waiting = true;
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(lease = self.name, %error, "lease not reached"),
            }
            sleep(PERIOD.mul_f64(0.4 + 0.2 * fastrand::f64())).await;
        }
    }

    /// Renews the lease until it is lost.
    pub async fn keep(&self) -> Lost {
        let mut seen: Option<Sighting> = None;
        loop {
            sleep(PERIOD).await;
            match self.attempt(&mut seen).await {
                Ok(true) => {}
                Ok(false) => return Lost::Taken(self.name.clone()),
                Err(error) => tracing::warn!(lease = self.name, %error, "lease not renewed"),
            }
            if !self.tenure.lasts(DEADLINE.saturating_sub(PERIOD)) {
                return Lost::Expired(self.name.clone());
            }
        }
    }

    /// Lets the next one have it at once.
    pub async fn release(&self) {
        let given_back = async {
            let Some(mut lease) = self.api.get_opt(&self.name).await? else {
                return Ok(());
            };
            match &mut lease.spec {
                Some(spec) if spec.holder_identity.as_deref() == Some(&self.identity) => {
                    spec.holder_identity = None;
                    self.api.replace(&self.name, &PostParams::default(), &lease).await.map(drop)
                }
                _ => Ok(()),
            }
        };
        match timeout(CALL, given_back).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(lease = self.name, %error, "lease not given back; it runs out by itself"),
            Err(_) => tracing::warn!(lease = self.name, "lease not given back in time; it runs out by itself"),
        }
    }

    /// Takes or renews the lease if that is possible; whether it is ours now.
    async fn attempt(&self, seen: &mut Option<Sighting>) -> kube::Result<bool> {
        let began = self.tenure.now();
        let taken = timeout(CALL, self.try_take(seen)).await;
        let taken = taken.unwrap_or_else(|late| Err(kube::Error::Service(late.into())));
        if matches!(taken, Ok(true)) {
            self.tenure.renewed(began);
        }
        taken
    }

    async fn try_take(&self, seen: &mut Option<Sighting>) -> kube::Result<bool> {
        let parameters = PostParams::default();
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            let owner_references = self.owner.clone().map(|owner| vec![owner]);
            let metadata = ObjectMeta { name: Some(self.name.clone()), owner_references, ..ObjectMeta::default() };
            let first = Lease { metadata, spec: Some(self.claim(None)) };
            return won(self.api.create(&parameters, &first).await);
        };
        let sighting = Sighting::of(&lease, seen.take(), Instant::now());
        let decision = decide(lease.spec.as_ref(), &self.identity, sighting.unchanged_for(Instant::now()));
        *seen = Some(sighting);
        match decision {
            Decision::Wait => Ok(false),
            Decision::Take => {
                lease.spec = Some(self.claim(lease.spec.as_ref()));
                lease.metadata.owner_references = self.owner.clone().map(|owner| vec![owner]);
                won(self.api.replace(&self.name, &parameters, &lease).await)
            }
        }
    }

    fn claim(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let mine = before.filter(|before| before.holder_identity.as_deref() == Some(&self.identity));
        let transitions = before.and_then(|before| before.lease_transitions).unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: mine.and_then(|mine| mine.acquire_time.clone()).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if mine.is_some() { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

/// Whoever was faster has it.
fn won(written: kube::Result<Lease>) -> kube::Result<bool> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}
