//! Which pods serve what is published: asked of their sidecars, a while after each publication. Needs the client.
//!
//! A pod that serves something older is nudged again, and after some rounds reported, with the likely reason. Nothing
//! depends on the answers, and none is waited for: they end in the status, in metrics, and in an Event when it turns.

mod ask;
mod pods;
mod rounds;
mod tally;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::Client;
use tokio::task::JoinHandle;

pub use self::ask::Asker;
use self::rounds::attend;
use crate::{
    api::{Carrier, Pods},
    names::{EnvironmentName, FORMAT},
    nudge::Nudger,
    wake::Wake,
};

/// What pods should serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The FeatureEnvironment: a new one may have the name of an old one.
    pub uid: String,
    /// Its namespace, and that of the pods.
    pub namespace: String,
    /// Its name.
    pub environment: EnvironmentName,
    /// The revision that is published.
    pub revision: String,
    /// The bytes of it.
    pub bytes: usize,
    /// The kind of the objects that carry it.
    pub carrier: Carrier,
    /// How many of them have identity overrides.
    pub overrides_files: usize,
    /// Whether pods are nudged.
    pub nudge: bool,
}

/// All environments whose pods are asked.
pub struct Followers {
    means: Arc<Means>,
    attended: Mutex<HashMap<(String, String), Attended>>,
}

/// What asking takes.
struct Means {
    client: Client,
    nudger: Nudger,
    asker: Asker,
    wake: Wake,
    /// What every pause is multiplied by: 1, but in tests.
    pace: f64,
}

/// Ends with its task.
struct Attended {
    subject: Subject,
    found: Arc<Mutex<Option<Pods>>>,
    task: JoinHandle<()>,
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Followers {
    /// Nobody is asked yet. Pods are listed through `client`, and calls go through `wake`.
    pub fn new(client: Client, nudger: Nudger, asker: Asker, wake: Wake) -> Self {
        Self { means: Arc::new(Means { client, nudger, asker, wake, pace: 1.0 }), attended: Mutex::default() }
    }

    /// From now on, asks who serves `subject`; returns what the answers were so far.
    pub fn attend(&self, subject: Subject) -> Option<Pods> {
        let key = (subject.namespace.clone(), subject.environment.to_string());
        let mut attended = self.lock();
        if attended.get(&key).is_none_or(|attended| attended.subject != subject) {
            let found = Arc::default();
            let task = tokio::spawn(attend(subject.clone(), Arc::clone(&self.means), Arc::clone(&found)));
            attended.insert(key.clone(), Attended { subject, found, task });
        }
        attended.get(&key).and_then(|attended| lock(&attended.found).clone())
    }

    /// How many pods mount something else for the environment than objects of this kind in today's format.
    ///
    /// # Errors
    /// If the API server does not list the pods.
    pub(crate) async fn mounting_former(
        &self,
        namespace: &str,
        environment: &EnvironmentName,
        carrier: Carrier,
    ) -> Result<usize, crate::pods::Error> {
        let pods = pods::list(&self.means.client, namespace, environment).await?;
        let is_former = |volume: pods::Mounted| volume.carrier != carrier || volume.format != FORMAT;
        Ok(pods.iter().filter(|pod| pod.volume.is_some_and(is_former)).count())
    }

    /// Stops asking for this environment.
    pub fn leave(&self, namespace: &str, name: &str) {
        self.lock().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Stops asking for environments that are gone.
    pub fn retain(&self, is_there: impl Fn(&str, &str, &str) -> bool) {
        self.lock().retain(|(namespace, name), attended| is_there(namespace, name, &attended.subject.uid));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Attended>> {
        lock(&self.attended)
    }
}

/// A thread that panicked left nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
