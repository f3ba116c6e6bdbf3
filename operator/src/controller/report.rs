//! Reports the outcome of a reconciliation in the status, and its changes as Events. Needs the client.
//!
//! The status is written only when it changed. No field of it changes with a poll that found nothing new.

mod conditions;
mod events;
mod facts;
mod status;
#[cfg(test)]
mod tests;
mod unused;

use std::time::Duration;

use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

pub use self::{
    conditions::{ACCEPTED, FETCHED, PUBLISHED, READY, STALE},
    facts::{Contents, Facts, Failure, FetchOutcome, Pin, Publication, TaskStates, WorkOutcome},
    status::next_status,
};
use crate::{
    api::{FeatureEnvironment, FeatureEnvironmentStatus, names::FIELD_MANAGER},
    api_call::{CallError, within},
    events::EventPublisher,
};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Error: the status was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the status: {0}")]
pub struct Error(#[from] CallError);

/// Writes statuses and Events.
pub struct Reports {
    client: Client,
    events: EventPublisher,
}

impl Reports {
    /// Creates a reporter. Events name the controller, and `instance` as the replica that reported them.
    pub fn new(client: Client, instance: String) -> Self {
        Self { events: EventPublisher::new(client.clone(), instance), client }
    }

    /// Writes `status`, and records an Event for each transition since the status that was `announced` last. Returns the
    /// FeatureEnvironment as the API server stored it.
    ///
    /// # Errors
    /// The API server refused the status, or did not answer within 10 s. No Event is recorded then: the next successful
    /// write records it.
    pub async fn report(
        &self,
        environment: &FeatureEnvironment,
        announced: &FeatureEnvironmentStatus,
        status: &FeatureEnvironmentStatus,
    ) -> Result<FeatureEnvironment, Error> {
        let stored = self.write(environment, status).await?;
        let about = environment.object_ref(&());
        for event in events::between(announced, status) {
            self.events.publish(&about, &event).await;
        }
        Ok(stored)
    }

    async fn write(
        &self,
        environment: &FeatureEnvironment,
        status: &FeatureEnvironmentStatus,
    ) -> Result<FeatureEnvironment, Error> {
        let api: Api<FeatureEnvironment> =
            Api::namespaced(self.client.clone(), &environment.namespace().unwrap_or_default());
        let patch = Patch::Apply(json!({
            "apiVersion": FeatureEnvironment::api_version(&()),
            "kind": FeatureEnvironment::kind(&()),
            "metadata": {"uid": environment.uid()},
            "status": status,
        }));
        let (name, parameters) = (environment.name_any(), PatchParams::apply(FIELD_MANAGER).force());
        Ok(within(TIMEOUT, api.patch_status(&name, &parameters, &patch)).await?)
    }
}
