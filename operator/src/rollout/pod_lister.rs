//! Lists the pods of an environment, for decisions that must also see pods that the watch does not report yet.

use kube::Client;

use super::{
    pods::{self, Injected, Mounted},
    volumes::Volumes,
};
use crate::{
    api::{
        ObjectKind,
        names::{EnvironmentName, FORMAT},
    },
    fair_semaphore::FairSemaphore,
    injection::pods::Error,
};

/// Number of lists of pods at one time. A page of such a list is in memory as a whole.
const LISTS: usize = 2;

/// Permits for lists of pods, which several listers may share. A namespace has at most one: a list of its pods may take
/// minutes.
#[derive(Clone, Debug)]
pub struct Lists(FairSemaphore);

impl Default for Lists {
    fn default() -> Self {
        Self(FairSemaphore::sparing(LISTS))
    }
}

/// Numbers of pods whose volumes name objects of another kind or format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MountingObsolete {
    pub(crate) all: usize,
    /// Number of those whose volumes name objects of the other kind in the current format.
    pub(crate) other_kind: usize,
}

/// Lists pods through the API server, also those that the watch does not show yet.
pub(crate) struct PodLister {
    client: Client,
    lists: Lists,
}

impl PodLister {
    /// Creates a lister that sends its requests through `client`, with permits of `lists`.
    pub(crate) fn new(client: Client, lists: Lists) -> Self {
        Self { client, lists }
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
    ) -> Result<MountingObsolete, Error> {
        let pods = self.list(namespace, environment).await?;
        let count =
            |is_counted: &dyn Fn(Mounted) -> bool| pods.iter().filter(|pod| pod.volume.is_some_and(is_counted)).count();
        Ok(MountingObsolete {
            all: count(&|volume| volume.object_kind != object_kind || volume.format != FORMAT),
            other_kind: count(&|volume| volume.object_kind != object_kind && volume.format == FORMAT),
        })
    }

    /// Lists the volumes of the running pods.
    ///
    /// # Errors
    /// The API server did not list the pods.
    pub(crate) async fn volumes(&self, namespace: &str, environment: &EnvironmentName) -> Result<Volumes, Error> {
        Ok(Volumes::of(self.list(namespace, environment).await?))
    }

    /// Lists the running pods, with a permit of the namespace.
    async fn list(&self, namespace: &str, environment: &EnvironmentName) -> Result<Vec<Injected>, Error> {
        let _permit = self.lists.0.acquire(namespace).await;
        pods::list(&self.client, namespace, environment).await
    }
}
