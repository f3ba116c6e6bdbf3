//! State of each environment between two reconciliations. It is lost with the process, which is harmless: the cluster
//! has the published snapshot, and the source has the document.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    background::{collect::Uses, receive::Reception},
    candidate::Candidate,
    desired::Desired,
    publication::{fit::Room, notify::Rollout},
    read::{refresh::Requests, source_state::SourceState},
    report::Reported,
};
use crate::{
    api::{NamespacedName, Uid},
    source::trigger::{Trigger, Triggers},
};

/// State of one environment. Each part belongs to one step.
#[derive(Debug, Default)]
pub(super) struct EnvironmentState {
    /// Generation of the spec that the other fields belong to.
    pub(super) generation: Option<i64>,
    pub(super) source: SourceState,
    pub(super) requests: Requests,
    pub(super) candidate: Candidate,
    pub(super) desired: Desired,
    pub(super) room: Room,
    pub(super) rollout: Rollout,
    pub(super) reception: Reception,
    pub(super) uses: Uses,
    pub(super) reported: Reported,
}

impl EnvironmentState {
    /// Forgets what belongs to an earlier generation of the spec. The published snapshot stays until a newer one
    /// exists.
    pub(super) fn start_generation(&mut self, generation: Option<i64>) {
        if self.generation != generation {
            self.generation = generation;
            self.source.start_generation(Instant::now());
            self.candidate.start_generation();
            self.desired.start_generation();
            self.room.start_generation();
            self.reception.start_generation();
        }
    }

    /// Drops the snapshots that the next one replaces, for lack of memory.
    pub(super) fn release_snapshots(&mut self) {
        self.candidate.release();
        self.desired.release();
    }
}

/// State of all environments.
#[derive(Debug, Default)]
pub(super) struct States {
    known: Mutex<HashMap<Uid, EnvironmentState>>,
    /// Triggers since the last reconciliation of each environment.
    triggers: Mutex<HashMap<NamespacedName, Triggers>>,
}

impl States {
    /// Takes out the state of an environment. Two reconciliations of one object never run at the same time.
    pub(super) fn take(&self, uid: &Uid) -> Option<EnvironmentState> {
        self.known.lock().remove(uid)
    }

    pub(super) fn put(&self, uid: Uid, state: EnvironmentState) {
        self.known.lock().insert(uid, state);
    }

    /// Stores a trigger for the next reconciliation of this environment.
    pub(super) fn trigger(&self, environment: NamespacedName, trigger: Trigger) {
        self.triggers.lock().entry(environment).or_default().insert(trigger);
    }

    /// Takes the triggers since the last reconciliation.
    pub(super) fn take_triggers(&self, environment: &NamespacedName) -> Triggers {
        self.triggers.lock().remove(environment).unwrap_or_default()
    }

    /// Drops the state of all environments that are not in `alive`, and the triggers of those for which `exists`
    /// returns false.
    pub(super) fn retain(&self, alive: &HashSet<Uid>, exists: impl Fn(&NamespacedName) -> bool) {
        self.known.lock().retain(|uid, _| alive.contains(uid));
        self.triggers.lock().retain(|environment, _| exists(environment));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_trigger_of_deleted_environment_are_dropped() {
        let states = States::default();
        let (uid, shop) =
            (|name: &str| Uid::from(&*format!("uid-of-{name}")), |name: &str| NamespacedName::new("shop", name));
        for name in ["storefront", "search"] {
            states.put(uid(name), EnvironmentState::default());
            states.trigger(shop(name), Trigger::Fetch);
        }
        states.retain(&HashSet::from([uid("search")]), |environment| *environment == shop("search"));
        assert!(states.take(&uid("storefront")).is_none() && states.take(&uid("search")).is_some());
        assert_eq!(states.take_triggers(&shop("storefront")), Triggers::default());
        assert_eq!(states.take_triggers(&shop("search")), Trigger::Fetch.into());
    }
}
