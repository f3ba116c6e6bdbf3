//! Writes statuses, and publishes an Event for each change. Needs the client.

use std::time::Duration;

use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    api::{FeatureEnvironment, FeatureEnvironmentStatus, names::FIELD_MANAGER},
    api_call::{CallError, within},
    controller::status::events_between,
    events::EventPublisher,
};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Error: the status was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the status: {0}")]
pub struct Error(#[from] CallError);

/// Writes statuses, and publishes their Events.
pub(crate) struct StatusWriter {
    client: Client,
    events: EventPublisher,
}

impl StatusWriter {
    /// Creates a writer whose Events name `instance` as the replica.
    pub(crate) fn new(client: Client, instance: String) -> Self {
        Self { events: EventPublisher::new(client.clone(), instance), client }
    }

    /// Writes `status`, and publishes an Event for each transition since the status that was `announced` last. Returns the
    /// FeatureEnvironment as the API server stored it.
    ///
    /// # Errors
    /// The API server refused the status, or did not answer within 10 s. No Event is published then: the next successful
    /// write publishes it.
    pub(super) async fn write(
        &self,
        environment: &FeatureEnvironment,
        announced: &FeatureEnvironmentStatus,
        status: &FeatureEnvironmentStatus,
    ) -> Result<FeatureEnvironment, Error> {
        let stored = self.write_status(environment, status).await?;
        let about = environment.object_ref(&());
        for event in events_between(announced, status) {
            self.events.publish(&about, &event).await;
        }
        Ok(stored)
    }

    async fn write_status(
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
