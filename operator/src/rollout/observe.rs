//! Observes which revision the pods of an environment serve, by asking their sidecars. Needs the client.
//!
//! A task for each environment asks in rounds, which begin after each publication. It notifies pods that serve another
//! revision again, and after some rounds it reports them with the likely cause. No reconciliation waits for the answers:
//! they appear in the status, in metrics, and in an Event when they change.

mod counts;
mod rounds;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use self::rounds::observe;
use crate::{
    api::{NamespacedName, ObjectKind, Pods, Revision, Uid, names::EnvironmentName},
    injection::Slots,
    rollout::{RunningPods, nudge::Nudger, sidecar::SidecarClient},
    source::trigger::TriggerSender,
    tasks::Tasks,
};

/// The snapshot that the pods of an environment should serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservationTarget {
    /// UID of the FeatureEnvironment. A name alone may be reused.
    pub uid: Uid,
    /// Namespace of the FeatureEnvironment and of its pods.
    pub namespace: String,
    /// Name of the FeatureEnvironment.
    pub environment: EnvironmentName,
    /// Revision that is published.
    pub revision: Revision,
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
    observations: Tasks<ObservationTarget, Found>,
}

/// Dependencies of every observation.
struct Deps {
    pods: RunningPods,
    nudger: Nudger,
    sidecars: SidecarClient,
    triggers: TriggerSender,
    /// Factor of every pause: 1, except in tests.
    pause_factor: f64,
}

/// Latest counts, once a round has ended.
type Found = Arc<Mutex<Option<Pods>>>;

impl Observer {
    /// Creates an empty set of observations of `pods`, which requests reconciliations through `triggers`.
    pub fn new(pods: RunningPods, nudger: Nudger, sidecars: SidecarClient, triggers: TriggerSender) -> Self {
        Self {
            deps: Arc::new(Deps { pods, nudger, sidecars, triggers, pause_factor: 1.0 }),
            observations: Tasks::default(),
        }
    }

    /// Observes the pods of `target` from now on, and returns the latest counts. Observing the same target again continues
    /// the running observation; another target of the same environment replaces it.
    pub fn observe(&self, target: ObservationTarget) -> Option<Pods> {
        let environment = NamespacedName::new(&target.namespace, target.environment.as_str());
        let found = self.observations.ensure(&environment, target, |target| {
            let found = Found::default();
            (Arc::clone(&found), observe(target.clone(), Arc::clone(&self.deps), found))
        });
        found.lock().clone()
    }

    /// Ends the observation of an environment.
    pub fn stop(&self, environment: &NamespacedName) {
        self.observations.remove(environment);
    }

    /// Ends the observations of environments for which `exists` returns false.
    pub fn retain(&self, exists: impl Fn(&NamespacedName, &Uid) -> bool) {
        self.observations.retain(|environment, target| exists(environment, &target.uid));
    }
}
