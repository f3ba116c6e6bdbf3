//! Follows the streams on which Flagsmith sends change events, one stream for each environment that asks for it.
//!
//! An event that is newer than the cached document triggers an unconditional fetch. Each stream that opens triggers a
//! conditional fetch, because events sent before it opened are lost. Nothing depends on a stream: polling continues
//! beside it.

pub(crate) mod metrics;
mod stream;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{sync::Semaphore, task::JoinHandle};

use self::metrics::RealtimeMetrics;
use self::stream::{Shared, follow};
use crate::{
    api::{Flagsmith, Realtime},
    source::{
        fetch::Fetcher,
        trigger::{Trigger, TriggerSender},
    },
};

/// Maximum number of streams that are open at one time. Environments beyond it are polled only, until a stream ends.
pub const STREAMS_MAX: usize = 2048;

/// The stream that an environment needs. A change to any field opens the stream anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// UID of the FeatureEnvironment. A name alone may be reused.
    pub uid: String,
    /// Flagsmith source of the environment, for the reference to its CA bundle.
    pub flagsmith: Flagsmith,
    /// Settings of the stream.
    pub realtime: Realtime,
    /// Client-side key, from the cached document.
    pub client_key: String,
}

/// The streams of all environments.
pub struct Streams {
    fetcher: Arc<Fetcher>,
    triggers: TriggerSender,
    metrics: RealtimeMetrics,
    places: Arc<Semaphore>,
    followed: Mutex<HashMap<Name, Followed>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    namespace: String,
    name: String,
}

/// The stream of one environment. Its task ends when it is dropped.
struct Followed {
    target: Target,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Streams {
    /// Creates an empty set of streams. Streams are opened with `fetcher` and trigger reconciliations through `triggers`.
    pub fn new(fetcher: Arc<Fetcher>, triggers: TriggerSender, metrics: RealtimeMetrics) -> Self {
        let places = Arc::new(Semaphore::new(STREAMS_MAX));
        Self { fetcher, triggers, metrics, places, followed: Mutex::default() }
    }

    /// Follows `target` for this environment, or ends its stream if `target` is `None`. `held` is the time of the last
    /// change in the cached document. Returns the state of the stream as text for the status.
    pub fn keep(&self, namespace: &str, name: &str, target: Option<Target>, held: Option<Timestamp>) -> Option<String> {
        let key = Name { namespace: namespace.to_owned(), name: name.to_owned() };
        let mut followed = self.followed.lock();
        let Some(target) = target else {
            followed.remove(&key);
            return None;
        };
        if followed.get(&key).is_none_or(|followed| followed.target != target) {
            // Dropping the old stream ends its task soon, which releases the task's permit.
            followed.remove(&key);
            let begun = self.begin(&key, target);
            followed.insert(key.clone(), begun);
        }
        let followed = followed.get(&key)?;
        followed.shared.holds(held);
        Some(followed.shared.standing())
    }

    /// Ends the streams of environments for which `is_there` (namespace, name, UID) returns false.
    pub fn retain(&self, is_there: impl Fn(&str, &str, &str) -> bool) {
        self.followed.lock().retain(|key, followed| is_there(&key.namespace, &key.name, &followed.target.uid));
    }

    fn begin(&self, key: &Name, target: Target) -> Followed {
        let shared = Arc::new(Shared::default());
        let (fetcher, triggers, metrics) = (Arc::clone(&self.fetcher), self.triggers.clone(), self.metrics.clone());
        let (places, for_task, followed, key) =
            (Arc::clone(&self.places), Arc::clone(&shared), target.clone(), key.clone());
        let task = tokio::spawn(async move {
            // The task holds the permit until it ends.
            let place = match Arc::clone(&places).try_acquire_owned() {
                Ok(place) => Ok(place),
                Err(_) => {
                    for_task.stands("polled only: too many streams are followed already".to_owned());
                    tracing::warn!(namespace = key.namespace, environment = key.name, "too many streams: polled only");
                    triggers.send(&key.namespace, &key.name, Trigger::Report).await;
                    places.acquire_owned().await
                }
            };
            // The semaphore is never closed.
            let Ok(_place) = place else { return };
            follow(&key.namespace, &key.name, &followed, &fetcher, &triggers, &metrics, &for_task).await;
        });
        Followed { target, shared, task }
    }
}
