//! Collects from sidecars how often flags were used, and sends the counts to the source, as Flagsmith's SDKs do.
//!
//! A task for each environment that asks for it reads the counters of its pods' sidecars in rounds. A counter never
//! decreases while its process runs, and a read changes nothing: the task sends differences, so that an answer that is
//! lost neither loses uses nor counts them twice. No reconciliation waits for a round.

pub mod idle;
mod ledger;
mod memory;
pub mod metrics;
mod pending;
mod rounds;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use jiff::civil::Date;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

pub(crate) use self::rounds::today;
use self::{
    memory::{BYTES_MAX, Memory},
    metrics::UsageMetrics,
    rounds::collect,
};
use crate::{
    api::{Flagsmith, names::EnvironmentName},
    rollout::{RunningPods, observe::SidecarClient},
    source::{
        fetch::{EnvironmentKey, Fetcher},
        trigger::TriggerSender,
    },
};

/// The environment whose uses are collected, and the source that gets them. With a change to any field, the collection
/// begins anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// UID of the FeatureEnvironment. A name alone may be reused.
    pub uid: String,
    /// Namespace of the FeatureEnvironment and of its pods.
    pub namespace: String,
    /// Name of the FeatureEnvironment.
    pub environment: EnvironmentName,
    /// Source that gets the counts.
    pub flagsmith: Flagsmith,
}

/// The collections of all environments.
pub struct Collector {
    deps: Arc<Deps>,
    collections: Mutex<HashMap<(String, String), Collection>>,
}

/// Dependencies of every collection.
struct Deps {
    pods: RunningPods,
    sidecars: SidecarClient,
    fetcher: Arc<Fetcher>,
    triggers: TriggerSender,
    metrics: UsageMetrics,
    /// Bytes that all collections may use for the counts that they have read.
    memory: Arc<Memory>,
    /// Factor of every pause: 1, except in tests.
    pause_factor: f64,
}

/// Flags that were used, with the day in UTC on which their uses were read last. The ledger bounds the names.
type Used = HashMap<Arc<str>, Date>;

/// The collection of one environment. Its task ends when it is dropped.
struct Collection {
    target: Target,
    standing: Arc<Mutex<String>>,
    used: Arc<Mutex<Used>>,
    key: KnownKey,
    task: JoinHandle<()>,
}

/// Key that the source accepted last, if it is known: then the Secret with it is not read.
type KnownKey = Arc<Mutex<Option<EnvironmentKey>>>;

impl Drop for Collection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Collector {
    /// Creates an empty set of collections, which read the sidecars of `pods`, send counts by `fetcher`, and request
    /// reports through `triggers`.
    pub fn new(
        pods: RunningPods,
        sidecars: SidecarClient,
        fetcher: Arc<Fetcher>,
        triggers: TriggerSender,
        metrics: UsageMetrics,
    ) -> Self {
        let memory = Memory::new(BYTES_MAX);
        let deps = Deps { pods, sidecars, fetcher, triggers, metrics, memory, pause_factor: 1.0 };
        Self { deps: Arc::new(deps), collections: Mutex::default() }
    }

    /// Collects for this environment from now on, or ends its collection if `target` is `None`. Returns the state of the
    /// collection as text for the status. The same target continues the running collection. `key` is the key that the
    /// source accepted last.
    pub fn keep(
        &self,
        namespace: &str,
        name: &str,
        target: Option<Target>,
        key: Option<&EnvironmentKey>,
    ) -> Option<String> {
        let place = (namespace.to_owned(), name.to_owned());
        let mut collections = self.collections.lock();
        let Some(target) = target else {
            collections.remove(&place);
            return None;
        };
        if collections.get(&place).is_none_or(|collection| collection.target != target) {
            let standing = Arc::new(Mutex::new(rounds::COLLECTING.to_owned()));
            let (used, known) = (Arc::default(), KnownKey::default());
            let collecting = collect(
                target.clone(),
                Arc::clone(&self.deps),
                Arc::clone(&known),
                Arc::clone(&standing),
                Arc::clone(&used),
            );
            let task = tokio::spawn(collecting);
            collections.insert(place.clone(), Collection { target, standing, used, key: known, task });
        }
        let collection = collections.get(&place)?;
        *collection.key.lock() = key.cloned();
        Some(collection.standing.lock().clone())
    }

    /// Returns the flags of this environment that were used since the last call, with the day on which their uses were
    /// read.
    pub fn used(&self, namespace: &str, name: &str) -> Vec<(Arc<str>, Date)> {
        let key = (namespace.to_owned(), name.to_owned());
        let collections = self.collections.lock();
        let used = collections.get(&key).map(|collection| std::mem::take(&mut *collection.used.lock()));
        used.unwrap_or_default().into_iter().collect()
    }

    /// Ends the collections of environments for which `is_there` (namespace, name, UID) is false.
    pub fn retain(&self, is_there: impl Fn(&str, &str, &str) -> bool) {
        self.collections
            .lock()
            .retain(|(namespace, name), collection| is_there(namespace, name, &collection.target.uid));
    }
}
