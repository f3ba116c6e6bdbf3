//! Collects from sidecars how often flags were used, and sends the counts to the source, as Flagsmith's SDKs do.
//!
//! A task for each environment that asks for it reads the counters of its pods' sidecars in rounds. A counter never
//! decreases while its process runs, and a read changes nothing: the task sends differences, so that an answer that is
//! lost neither loses uses nor counts them twice. No reconciliation waits for a round.

pub mod idle;
mod ledger;
pub mod metrics;
mod pending;
mod reads;
mod rounds;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use jiff::civil::Date;
use parking_lot::Mutex;

pub(crate) use self::rounds::today;
use self::{metrics::UsageMetrics, rounds::collect};
use crate::{
    api::{Flagsmith, NamespacedName, Uid, names::EnvironmentName},
    memory::Memory,
    rollout::{RunningPods, sidecar::SidecarClient},
    source::{
        fetch::{EnvironmentKey, Fetcher},
        trigger::TriggerSender,
    },
    tasks::Tasks,
};

/// Memory in bytes for what all collections remember: 10,000 pods that use 100 flags each take 24 MB.
const BYTES_MAX: usize = 32 << 20;

/// The environment whose uses are collected, and the source that gets them. With a change to any field, the collection
/// begins anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionTarget {
    /// UID of the FeatureEnvironment. A name alone may be reused.
    pub uid: Uid,
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
    collections: Tasks<CollectionTarget, Collection>,
}

/// Memory for counts that were read, which several collectors may share.
#[derive(Clone, Debug)]
pub struct CountsMemory(Arc<Memory>);

impl Default for CountsMemory {
    fn default() -> Self {
        Self(Memory::new(BYTES_MAX))
    }
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

/// Number of running pods that were not read since the day before began.
#[derive(Clone, Copy, Debug)]
struct Unread {
    /// Day of the count.
    day: Date,
    pods: usize,
}

/// State of the collection of one environment, shared with its task.
#[derive(Clone)]
struct Collection {
    state_text: Arc<Mutex<String>>,
    used: Arc<Mutex<Used>>,
    /// `None` before the first round.
    unread: Arc<Mutex<Option<Unread>>>,
    key: KnownKey,
}

/// Key that the source accepted last, if it is known: then the Secret with it is not read.
type KnownKey = Arc<Mutex<Option<EnvironmentKey>>>;

impl Collector {
    /// Creates an empty set of collections, which read the sidecars of `pods`, send counts by `fetcher`, request
    /// reports through `triggers`, and remember counts in `memory`.
    pub fn new(
        pods: RunningPods,
        sidecars: SidecarClient,
        fetcher: Arc<Fetcher>,
        triggers: TriggerSender,
        metrics: UsageMetrics,
        memory: &CountsMemory,
    ) -> Self {
        let memory = Arc::clone(&memory.0);
        let deps = Deps { pods, sidecars, fetcher, triggers, metrics, memory, pause_factor: 1.0 };
        Self { deps: Arc::new(deps), collections: Tasks::default() }
    }

    /// Collects for this environment from now on, or ends its collection if `target` is `None`. Returns the state of the
    /// collection as text for the status. The same target continues the running collection. `key` is the key that the
    /// source accepted last.
    pub fn ensure(
        &self,
        environment: &NamespacedName,
        target: Option<CollectionTarget>,
        key: Option<&EnvironmentKey>,
    ) -> Option<String> {
        let Some(target) = target else {
            self.collections.remove(environment);
            return None;
        };
        let collection = self.collections.ensure(environment, target, |target| {
            let state_text = Arc::new(Mutex::new(rounds::COLLECTING.to_owned()));
            let (used, unread, key) = (Arc::default(), Arc::default(), KnownKey::default());
            let collection = Collection { state_text, used, unread, key };
            let collecting = collect(
                target.clone(),
                Arc::clone(&self.deps),
                Arc::clone(&collection.key),
                Arc::clone(&collection.state_text),
                Arc::clone(&collection.used),
                Arc::clone(&collection.unread),
            );
            (collection, collecting)
        });
        *collection.key.lock() = key.cloned();
        Some(collection.state_text.lock().clone())
    }

    /// Returns the flags of this environment that were used since the last call, with the day on which their uses were
    /// read.
    pub fn used(&self, environment: &NamespacedName) -> Vec<(Arc<str>, Date)> {
        let collection = self.collections.get(environment);
        let used = collection.map(|collection| std::mem::take(&mut *collection.used.lock()));
        used.unwrap_or_default().into_iter().collect()
    }

    /// Returns the number of running pods whose uses on the day before `today` are not known, in part. `None` until the
    /// first round of this day.
    pub fn unread(&self, environment: &NamespacedName, today: Date) -> Option<usize> {
        let unread = *self.collections.get(environment)?.unread.lock();
        unread.filter(|unread| unread.day == today).map(|unread| unread.pods)
    }

    /// Ends the collections of environments for which `is_there` returns false.
    pub fn retain(&self, is_there: impl Fn(&NamespacedName, &Uid) -> bool) {
        self.collections.retain(|environment, target| is_there(environment, &target.uid));
    }
}
