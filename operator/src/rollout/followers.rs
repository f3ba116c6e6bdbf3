//! Observes which revision the pods of an environment serve, by asking their sidecars. Needs the client.
//!
//! A task for each environment asks in rounds, which begin after each publication. It notifies pods that serve another
//! revision again, and after some rounds it reports them with the likely cause. No reconciliation waits for the answers:
//! they appear in the status, in metrics, and in an Event when they change.

mod ask;
mod pods;
mod rounds;
mod tally;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use kube::Client;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

pub use self::ask::Asker;
use self::rounds::attend;
use crate::{
    api::{
        Carrier, Pods,
        names::{EnvironmentName, FORMAT},
    },
    rollout::nudge::Nudger,
    source::wake::Wake,
};

/// The snapshot that the pods of an environment should serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// UID of the FeatureEnvironment. A name alone may be reused.
    pub uid: String,
    /// Namespace of the FeatureEnvironment and of its pods.
    pub namespace: String,
    /// Name of the FeatureEnvironment.
    pub environment: EnvironmentName,
    /// Revision that is published.
    pub revision: String,
    /// Size of the snapshot in bytes.
    pub bytes: usize,
    /// Kind of the objects that hold the snapshot.
    pub carrier: Carrier,
    /// Number of overrides objects.
    pub overrides_files: usize,
    /// True if the operator notifies pods of new revisions.
    pub nudge: bool,
}

/// The observations of all environments.
pub struct Followers {
    means: Arc<Means>,
    attended: Mutex<HashMap<(String, String), Attended>>,
}

/// Dependencies of every observation.
struct Means {
    client: Client,
    nudger: Nudger,
    asker: Asker,
    wake: Wake,
    /// Factor of every pause: 1, except in tests.
    pace: f64,
}

/// The observation of one environment. Its task ends when it is dropped.
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
    /// Creates an empty set of observations, which lists pods through `client` and requests reconciliations through `wake`.
    pub fn new(client: Client, nudger: Nudger, asker: Asker, wake: Wake) -> Self {
        Self { means: Arc::new(Means { client, nudger, asker, wake, pace: 1.0 }), attended: Mutex::default() }
    }

    /// Observes the pods of `subject` from now on, and returns the latest counts. Observing the same subject again continues
    /// the running observation; another subject of the same environment replaces it.
    pub fn attend(&self, subject: Subject) -> Option<Pods> {
        let key = (subject.namespace.clone(), subject.environment.to_string());
        let mut attended = self.attended.lock();
        if attended.get(&key).is_none_or(|attended| attended.subject != subject) {
            let found = Arc::default();
            let task = tokio::spawn(attend(subject.clone(), Arc::clone(&self.means), Arc::clone(&found)));
            attended.insert(key.clone(), Attended { subject, found, task });
        }
        attended.get(&key).and_then(|attended| attended.found.lock().clone())
    }

    /// Counts the pods whose volume for the environment names objects of another kind or format.
    ///
    /// # Errors
    /// The API server did not list the pods.
    pub(crate) async fn mounting_former(
        &self,
        namespace: &str,
        environment: &EnvironmentName,
        carrier: Carrier,
    ) -> Result<usize, crate::injection::pods::Error> {
        let pods = pods::list(&self.means.client, namespace, environment).await?;
        let is_former = |volume: pods::Mounted| volume.carrier != carrier || volume.format != FORMAT;
        Ok(pods.iter().filter(|pod| pod.volume.is_some_and(is_former)).count())
    }

    /// Ends the observation of an environment.
    pub fn leave(&self, namespace: &str, name: &str) {
        self.attended.lock().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Ends the observations of environments for which `is_there` (namespace, name, UID) is false.
    pub fn retain(&self, is_there: impl Fn(&str, &str, &str) -> bool) {
        self.attended.lock().retain(|(namespace, name), attended| is_there(namespace, name, &attended.subject.uid));
    }
}
