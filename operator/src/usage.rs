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
mod state;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use jiff::civil::Date;
use parking_lot::Mutex;

pub(crate) use self::rounds::today;
use self::{metrics::UsageMetrics, rounds::Collecting, state::CollectionState};
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
    context: Arc<Context>,
    collections: Tasks<CollectionTarget, Arc<Collection>>,
}

/// Memory for counts that were read, which several collectors may share.
#[derive(Clone, Debug)]
pub struct CountsMemory(Arc<Memory>);

impl Default for CountsMemory {
    fn default() -> Self {
        Self(Memory::new(BYTES_MAX))
    }
}

/// Clients, metrics and memory of every collection.
struct Context {
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

/// Collection of one environment, shared with its task.
#[derive(Default)]
struct Collection(Mutex<Shared>);

#[derive(Default)]
struct Shared {
    state: CollectionState,
    used: Used,
    /// `None` before the first round.
    unread: Option<Unread>,
    /// Key that the source accepted last, if it is known: then the Secret with it is not read.
    key: Option<EnvironmentKey>,
}

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
        let context = Context { pods, sidecars, fetcher, triggers, metrics, memory, pause_factor: 1.0 };
        Self { context: Arc::new(context), collections: Tasks::default() }
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
            let collection = Arc::new(Collection::default());
            let collecting = Collecting::new(target.clone(), Arc::clone(&self.context), Arc::clone(&collection));
            (collection, collecting.run())
        });
        let mut shared = collection.0.lock();
        shared.key = key.cloned();
        Some(shared.state.to_string())
    }

    /// Returns the flags of this environment that were used since the last call, with the day on which their uses were
    /// read.
    pub fn used(&self, environment: &NamespacedName) -> Vec<(Arc<str>, Date)> {
        let collection = self.collections.get(environment);
        let used = collection.map(|collection| std::mem::take(&mut collection.0.lock().used));
        used.unwrap_or_default().into_iter().collect()
    }

    /// Returns the number of running pods whose uses on the day before `today` are not known, in part. `None` until the
    /// first round of this day.
    pub fn unread(&self, environment: &NamespacedName, today: Date) -> Option<usize> {
        let unread = self.collections.get(environment)?.0.lock().unread;
        unread.filter(|unread| unread.day == today).map(|unread| unread.pods)
    }

    /// Ends the collections of environments for which `exists` returns false.
    pub fn retain(&self, exists: impl Fn(&NamespacedName, &Uid) -> bool) {
        self.collections.retain(|environment, target| exists(environment, &target.uid));
    }
}
