//! Leader election by a Lease: the replica that holds it reconciles.
//!
//! A holder that cannot renew the lease in time ends its process, because it cannot be sure that all its work has
//! stopped. It does so well before another replica may take the lease. Clocks of different machines are never compared:
//! a lease has expired if a replica saw it unchanged for its whole duration.

mod decide;
mod fence;
mod owner;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference},
};
use kube::{Api, Client, api::PostParams};
use tokio::time::{Instant, sleep};

use self::decide::{Decision, Sighting};
pub use self::{fence::LeaseFence, owner::account};
use crate::api_call::{CallError, within};

/// Duration of a lease without renewal.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(30);
/// Time without renewal after which the holder gives up and writes nothing more. It is well below [`LEASE_DURATION`].
const RENEW_DEADLINE: Duration = Duration::from_secs(20);
/// Time between two renewals by the holder.
const RETRY_PERIOD: Duration = Duration::from_secs(5);
/// Timeout of one call to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason why this replica may not reconcile any more.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Another replica took the lease.
    #[error("another replica took the lease {0}: this process ends")]
    Taken(String),
    /// The lease could not be renewed in time.
    #[error("the lease {0} was not renewed in time: this process ends")]
    Expired(String),
}

/// Lease that replicas compete for.
#[derive(Clone)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    owner: Option<OwnerReference>,
    fence: LeaseFence,
}

impl Election {
    /// Creates an election for the lease `name` in `namespace`. No other process may use `identity`. The lease is
    /// deleted with `owner`; `fence` records the renewals.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: String,
        owner: Option<OwnerReference>,
        fence: LeaseFence,
    ) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), identity, owner, fence }
    }

    /// Waits until this replica holds the lease.
    pub async fn acquire(&self) {
        let mut seen: Option<Sighting> = None;
        let mut waiting = false;
        loop {
            match self.in_time(self.try_acquire(&mut seen)).await {
                Ok(true) => return,
                Ok(false) if !waiting => {
                    tracing::info!(lease = self.name, "another replica holds the lease: waiting for it");
                    waiting = true;
                }
                Ok(false) => {}
                // Another replica may have been faster: the next attempt shows it.
                Err(error) if error.is_conflict() => {
                    tracing::debug!(lease = self.name, %error, "cannot take the lease");
                }
                Err(error) => tracing::warn!(lease = self.name, %error, "cannot read or take the lease: trying again"),
            }
            sleep(RETRY_PERIOD.mul_f64(0.4 + 0.2 * fastrand::f64())).await;
        }
    }

    /// Renews the lease until it is lost, and returns the reason.
    pub async fn renew_until_lost(&self) -> Lost {
        loop {
            sleep(RETRY_PERIOD).await;
            // After this process was stopped (by SIGSTOP, or with a suspended machine), another replica may have held
            // the lease and released it. This process does not know the writes of that replica, and would undo them.
            if !self.fence.was_renewed_within(RENEW_DEADLINE) {
                return Lost::Expired(self.name.clone());
            }
            match self.in_time(self.try_renew()).await {
                Ok(true) => {}
                Ok(false) => {
                    self.fence.close();
                    return Lost::Taken(self.name.clone());
                }
                // This includes a conflict, which another writer's new label can cause. The next attempt reads the
                // holder.
                Err(error) => {
                    tracing::warn!(lease = self.name, %error, "cannot renew the lease: trying again until it expires");
                }
            }
            if !self.fence.was_renewed_within(RENEW_DEADLINE.saturating_sub(RETRY_PERIOD)) {
                return Lost::Expired(self.name.clone());
            }
        }
    }

    /// Releases the lease, so that another replica can take it at once. The fence rejects all further writes.
    pub async fn release(&self) {
        self.fence.close();
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
        if let Err(error) = within(CALL_TIMEOUT, given_back).await {
            tracing::warn!(lease = self.name, %error, "cannot release the lease: another replica takes it when it expires");
        }
    }

    /// Runs an attempt to hold the lease within the timeout, and records it with the fence if this replica holds the lease
    /// now.
    async fn in_time(&self, attempt: impl Future<Output = kube::Result<bool>>) -> Result<bool, CallError> {
        let began = self.fence.now();
        let holds = within(CALL_TIMEOUT, attempt).await;
        if matches!(holds, Ok(true)) {
            self.fence.record_renewal(began);
        }
        holds
    }

    /// Returns false if another replica holds the lease.
    async fn try_acquire(&self, seen: &mut Option<Sighting>) -> kube::Result<bool> {
        let found = self.api.get_opt(&self.name).await?;
        let now = Instant::now();
        let before = seen.take();
        let sighting = seen.insert(Sighting::of(found.as_ref(), before, now));
        match sighting.decide(&self.identity, now) {
            Decision::Wait => Ok(false),
            Decision::Take => self.write(found).await.map(|()| true),
        }
    }

    /// Returns false if this replica does not hold the lease any more. A lease that was deleted is created again.
    async fn try_renew(&self) -> kube::Result<bool> {
        let found = self.api.get_opt(&self.name).await?;
        let holder = found.as_ref().map(|lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()));
        if holder.is_some_and(|holder| holder != Some(&self.identity)) {
            return Ok(false);
        }
        self.write(found).await.map(|()| true)
    }

    /// Writes this replica as the holder. The write fails if the lease is not as it was found any more.
    async fn write(&self, found: Option<Lease>) -> kube::Result<()> {
        let parameters = PostParams::default();
        let exists = found.is_some();
        let mut lease = found.unwrap_or_default();
        lease.spec = Some(self.claim(lease.spec.as_ref()));
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.owner_references = self.owner.clone().map(|owner| vec![owner]);
        let written = if exists {
            self.api.replace(&self.name, &parameters, &lease).await
        } else {
            self.api.create(&parameters, &lease).await
        };
        written.map(drop)
    }

    fn claim(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let mine = before.filter(|before| before.holder_identity.as_deref() == Some(&self.identity));
        let transitions = before.and_then(|before| before.lease_transitions).unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            acquire_time: mine.and_then(|mine| mine.acquire_time.clone()).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if mine.is_some() { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod tests;
