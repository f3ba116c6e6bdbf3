//! Follows the streams on which Flagsmith tells of changes, one for each environment that asks for it.
//!
//! An event that is newer than what is held has the environment fetched whole at once; and so, conditionally, has every
//! stream that opens, since nobody knows what was told before. Nothing depends on a stream: polling goes on beside it.

pub(crate) mod metrics;
mod stream;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use tokio::{sync::Semaphore, task::JoinHandle};

use self::metrics::RealtimeMetrics;
use self::stream::{Shared, follow};
use crate::{
    api::{Flagsmith, Realtime},
    source::{fetch::Fetcher, wake::Wake},
};

/// Streams that are open at one time; environments beyond are polled.
pub const STREAMS_MAX: usize = 2048;

/// What is followed. Whatever of it changes, the stream is opened anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The FeatureEnvironment: a new one may have the name of an old one.
    pub uid: String,
    /// Where certificates are looked up.
    pub flagsmith: Flagsmith,
    /// The stream.
    pub realtime: Realtime,
    /// The client-side key, of the document that is held.
    pub client_key: String,
}

/// All streams.
pub struct Streams {
    fetcher: Arc<Fetcher>,
    wake: Wake,
    metrics: RealtimeMetrics,
    places: Arc<Semaphore>,
    followed: Mutex<HashMap<Name, Followed>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    namespace: String,
    name: String,
}

/// Ends with its task.
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
    /// No stream yet. They are opened with `fetcher`, and call through `wake`.
    pub fn new(fetcher: Arc<Fetcher>, wake: Wake, metrics: RealtimeMetrics) -> Self {
        let places = Arc::new(Semaphore::new(STREAMS_MAX));
        Self { fetcher, wake, metrics, places, followed: Mutex::default() }
    }

    /// Follows `target`, or nothing, for this environment, of which the document of the time `held` is there. Returns how it
    /// stands with the stream, for people.
    pub fn keep(&self, namespace: &str, name: &str, target: Option<Target>, held: Option<Timestamp>) -> Option<String> {
        let key = Name { namespace: namespace.to_owned(), name: name.to_owned() };
        let mut followed = self.lock();
        let Some(target) = target else {
            followed.remove(&key);
            return None;
        };
        if followed.get(&key).is_none_or(|followed| followed.target != target) {
            // The old one goes before the new one takes its place.
            followed.remove(&key);
            let begun = self.begin(&key, target);
            followed.insert(key.clone(), begun);
        }
        let followed = followed.get(&key)?;
        followed.shared.holds(held);
        Some(followed.shared.standing())
    }

    /// Ends the streams of environments that are gone.
    pub fn retain(&self, is_there: impl Fn(&str, &str, &str) -> bool) {
        self.lock().retain(|key, followed| is_there(&key.namespace, &key.name, &followed.target.uid));
    }

    fn begin(&self, key: &Name, target: Target) -> Followed {
        let shared = Arc::new(Shared::default());
        let (fetcher, wake, metrics) = (Arc::clone(&self.fetcher), self.wake.clone(), self.metrics.clone());
        let (places, for_task, followed, key) =
            (Arc::clone(&self.places), Arc::clone(&shared), target.clone(), key.clone());
        let task = tokio::spawn(async move {
            // Held for as long as the task lives.
            let Ok(_place) = places.try_acquire_owned() else {
                for_task.stands("polled only: too many streams are followed already".to_owned());
                tracing::warn!(namespace = key.namespace, environment = key.name, "too many streams: polled only");
                return;
            };
            follow(&key.namespace, &key.name, &followed, &fetcher, &wake, &metrics, &for_task).await;
        });
        Followed { target, shared, task }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
