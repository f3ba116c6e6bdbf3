//! Observes which revision the pods of an environment serve, by asking their sidecars. Needs the client.
//!
//! A task for each environment asks in rounds, which begin after each publication. It notifies pods that serve another
//! revision again, and after some rounds it reports them with the likely cause. No reconciliation waits for the answers:
//! they appear in the status, in metrics, and in an Event when they change.

mod counts;
mod rounds;
mod sidecar;
#[cfg(test)]
mod tests;
mod volumes;

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use self::rounds::observe;
pub use self::{
    sidecar::{SidecarClient, Uses},
    volumes::Volumes,
};
use crate::{
    api::{
        ObjectKind, Pods,
        names::{EnvironmentName, FORMAT},
    },
    injection::Slots,
    rollout::{RunningPods, nudge::Nudger, pods},
    source::trigger::TriggerSender,
};

/// The snapshot that the pods of an environment should serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// UID of the FeatureEnvironment. A name alone may be reused.
    pub uid: String,
    /// Namespace of the FeatureEnvironment and of its pods.
    pub namespace: String,
    /// Name of the FeatureEnvironment.
    pub environment: EnvironmentName,
    /// Revision that is published.
    pub revision: String,
    /// Size of the files in the volume of a pod, in bytes.
    pub bytes: usize,
    /// Kind of the objects that hold the snapshot.
    pub object_kind: ObjectKind,
    /// True if the snapshot is also in objects of the other kind, for pods that mount those.
    pub has_other_kind: bool,
    /// Published objects beside the core.
    pub slots: Slots,
    /// True if the operator notifies pods of new revisions.
    pub nudge: bool,
    /// Time at which the revision was published.
    pub published_at: Option<Timestamp>,
}

/// The observations of all environments.
pub struct Observer {
    deps: Arc<Deps>,
    observations: Mutex<HashMap<(String, String), Observation>>,
}

/// Dependencies of every observation.
struct Deps {
    client: Client,
    pods: RunningPods,
    nudger: Nudger,
    sidecars: SidecarClient,
    triggers: TriggerSender,
    /// Factor of every pause: 1, except in tests.
    pause_factor: f64,
}

/// The observation of one environment. Its task ends when it is dropped.
struct Observation {
    target: Target,
    found: Arc<Mutex<Option<Pods>>>,
    task: JoinHandle<()>,
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Observer {
    /// Creates an empty set of observations of `pods`, which requests reconciliations through `triggers`. Volumes are
    /// looked at through `client`.
    pub fn new(
        client: Client,
        pods: RunningPods,
        nudger: Nudger,
        sidecars: SidecarClient,
        triggers: TriggerSender,
    ) -> Self {
        Self {
            deps: Arc::new(Deps { client, pods, nudger, sidecars, triggers, pause_factor: 1.0 }),
            observations: Mutex::default(),
        }
    }

    /// Observes the pods of `target` from now on, and returns the latest counts. Observing the same target again continues
    /// the running observation; another target of the same environment replaces it.
    pub fn observe(&self, target: Target) -> Option<Pods> {
        let key = (target.namespace.clone(), target.environment.to_string());
        let mut observations = self.observations.lock();
        if observations.get(&key).is_none_or(|observation| observation.target != target) {
            let found = Arc::default();
            let task = tokio::spawn(observe(target.clone(), Arc::clone(&self.deps), Arc::clone(&found)));
            observations.insert(key.clone(), Observation { target, found, task });
        }
        observations.get(&key).and_then(|observation| observation.found.lock().clone())
    }

    /// Counts the pods whose volume for the environment names objects of another kind or format.
    ///
    /// # Errors
    /// The API server did not list the pods.
    pub(crate) async fn mounting_obsolete(
        &self,
        namespace: &str,
        environment: &EnvironmentName,
        object_kind: ObjectKind,
    ) -> Result<usize, crate::injection::pods::Error> {
        let pods = pods::list(&self.deps.client, namespace, environment).await?;
        let is_obsolete = |volume: pods::Mounted| volume.object_kind != object_kind || volume.format != FORMAT;
        Ok(pods.iter().filter(|pod| pod.volume.is_some_and(is_obsolete)).count())
    }

    /// Lists the volumes of the running pods.
    ///
    /// # Errors
    /// The API server did not list the pods.
    pub(crate) async fn volumes(
        &self,
        namespace: &str,
        environment: &EnvironmentName,
    ) -> Result<Volumes, crate::injection::pods::Error> {
        Ok(Volumes::of(pods::list(&self.deps.client, namespace, environment).await?))
    }

    /// Ends the observation of an environment.
    pub fn stop(&self, namespace: &str, name: &str) {
        self.observations.lock().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Ends the observations of environments for which `is_there` (namespace, name, UID) is false.
    pub fn retain(&self, is_there: impl Fn(&str, &str, &str) -> bool) {
        self.observations
            .lock()
            .retain(|(namespace, name), observation| is_there(namespace, name, &observation.target.uid));
    }
}
