//! Says what happened: in the status, and as Events where something changed. Needs the client.
//!
//! Nothing is written without news: times count only where a status changed, and no field tells of single polls.

mod conditions;
mod events;
mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::events::{Recorder, Reporter},
};
use serde_json::json;

pub use self::{
    conditions::{ACCEPTED, FETCHED, PUBLISHED, READY, STALE},
    status::{Contents, Facts, Failure, Fetch, Pin, Publication},
};
use crate::{
    api::{FeatureEnvironment, FeatureEnvironmentStatus},
    names::{CONTROLLER, FIELD_MANAGER},
    publish::is_terminating,
};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a status was not written.
#[derive(Debug, thiserror::Error)]
#[error("the status cannot be written: {0}")]
pub struct Error(String);

/// Writes statuses and Events.
pub struct Reports {
    client: Client,
    /// One for all: it counts repetitions.
    recorder: Recorder,
}

impl Reports {
    /// Reports in the name of the controller, of this replica.
    pub fn new(client: Client, instance: Option<String>) -> Self {
        let reporter = Reporter { controller: CONTROLLER.to_owned(), instance };
        Self { recorder: Recorder::new(client.clone(), reporter), client }
    }

    /// Writes the status that follows from `previous`, if it is news, and returns it.
    pub async fn report(
        &self,
        environment: &FeatureEnvironment,
        previous: &FeatureEnvironmentStatus,
        facts: Facts,
        now: Timestamp,
    ) -> Result<FeatureEnvironmentStatus, Error> {
        let status = status::follow(previous, facts, now);
        if status != *previous {
            self.write(environment, &status).await?;
            self.tell(environment, previous, &status).await;
        }
        Ok(status)
    }

    async fn write(&self, environment: &FeatureEnvironment, status: &FeatureEnvironmentStatus) -> Result<(), Error> {
        let api: Api<FeatureEnvironment> =
            Api::namespaced(self.client.clone(), &environment.namespace().unwrap_or_default());
        let patch = Patch::Apply(json!({
            "apiVersion": FeatureEnvironment::api_version(&()),
            "kind": FeatureEnvironment::kind(&()),
            "metadata": {"uid": environment.uid()},
            "status": status,
        }));
        let (name, parameters) = (environment.name_any(), PatchParams::apply(FIELD_MANAGER).force());
        let written = api.patch_status(&name, &parameters, &patch);
        match tokio::time::timeout(TIMEOUT, written).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Error(error.to_string())),
            Err(_) => Err(Error("the API server did not answer in time".to_owned())),
        }
    }

    /// An Event that is lost is a pity, not a failure.
    async fn tell(
        &self,
        environment: &FeatureEnvironment,
        before: &FeatureEnvironmentStatus,
        after: &FeatureEnvironmentStatus,
    ) {
        let about = environment.object_ref(&());
        for event in events::between(before, after) {
            match tokio::time::timeout(TIMEOUT, self.recorder.publish(&event, &about)).await {
                Ok(Ok(())) => {}
                // There is nobody left to tell.
                Ok(Err(kube::Error::Api(status))) if is_terminating(&status) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, reason = event.reason, "event not recorded");
                }
                Err(_) => tracing::warn!(reason = event.reason, "event not recorded in time"),
            }
        }
    }
}
