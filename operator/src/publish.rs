//! Publishes snapshots as ConfigMaps or Secrets, and restores the objects if somebody changes them. Needs the client.
//!
//! The publisher writes override shards first and the core last, so a core never names a shard that does not exist. A
//! core beyond the size of an object is divided into parts, in two sets of objects that take turns. The publisher
//! knows the published ConfigMaps from one metadata watch, so it sends no request while nothing changed; it polls
//! Secrets. It never touches objects of other owners. It deletes objects that the core no longer names only after a
//! grace period, because pods that have not switched yet may still read the old core.
//!
//! The volumes of a pod are fixed at admission, so objects that no new pod mounts stay while a running pod mounts them
//! (*obsolete* objects): objects of the other [`ObjectKind`], which the publisher keeps up to date, and objects in the
//! format of another version, which this version can neither read nor write and leaves as they are.

pub mod changes;
mod core;
mod error;
mod history;
mod metadata;
mod object;
mod objects;
mod owner;
mod permits;
mod publication;
mod read;
mod record;
mod record_bounds;
mod record_memory;
mod secret_cache;
mod snapshot;
mod surplus;
mod write;

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::{Client, Resource, core::ObjectMeta};
use tokio::time::Instant;

use self::{
    core::CoreLocation,
    secret_cache::{SecretCache, SecretPolls},
};
pub use self::{
    error::Error,
    metadata::{ConfigMapMetadata, metadata_bytes},
    owner::{Destination, Owner},
    permits::Permits,
    record::{ArchivedRevision, Record},
    record_bounds::Evicted,
    snapshot::{File, Snapshot},
    surplus::{Deletion, SURPLUS_GRACE},
};
use crate::{
    api::{NamespacedName, ObjectKind, names::label},
    memory::Memory,
    watched::{self, Views, Watched, watched},
};

/// Metadata of the ConfigMaps with Remora's managed-by label, from a watch.
pub type Objects = Watched<Arc<ObjectMeta>>;

/// Writes the events of the watch to [`Objects`].
pub type ObjectsFeed = watched::Feed<ConfigMapMetadata, Arc<ObjectMeta>>;

/// Creates an empty set of published objects and its feed.
#[must_use]
pub fn objects() -> (Objects, ObjectsFeed) {
    watched(views)
}

fn views(object: &ConfigMapMetadata) -> Views<Arc<ObjectMeta>> {
    view(object.meta())
}

fn view(metadata: &ObjectMeta) -> Views<Arc<ObjectMeta>> {
    let environment = metadata.labels.as_ref().and_then(|labels| labels.get(label::ENVIRONMENT));
    let view = metadata::without_unread_record(metadata.clone());
    vec![(environment.cloned().unwrap_or_default(), Arc::new(view))]
}

/// Publishes snapshots, restores them after a restart, and keeps earlier revisions.
pub struct Publisher {
    client: Client,
    objects: Objects,
    secrets: SecretCache,
    permits: Permits,
    /// Memory for snapshots that are read.
    memory: Arc<Memory>,
    grace: Duration,
}

/// Cache of an environment's objects between two publications. It only saves requests: losing it is harmless.
#[derive(Debug, Default)]
pub struct WriteCache {
    config_maps: Written,
    secrets: Written,
    polls: SecretPolls,
}

/// Cached writes to the objects of one kind.
#[derive(Debug, Default)]
struct Written {
    /// Resource versions after the operator's last write, by name.
    versions: HashMap<String, String>,
    /// Place of the last core that was written. The watch may lag behind the operator's own writes.
    placed: Option<CoreLocation>,
    /// Start of the grace period of each object that belongs to no file any more, by name.
    surplus: HashMap<String, Instant>,
}

impl WriteCache {
    fn of(&self, kind: ObjectKind) -> &Written {
        match kind {
            ObjectKind::ConfigMap => &self.config_maps,
            ObjectKind::Secret => &self.secrets,
        }
    }

    fn of_mut(&mut self, kind: ObjectKind) -> &mut Written {
        match kind {
            ObjectKind::ConfigMap => &mut self.config_maps,
            ObjectKind::Secret => &mut self.secrets,
        }
    }
}

/// Result of a successful publication.
#[derive(Debug)]
pub struct Published {
    /// Names of the snapshot's objects.
    pub objects: Vec<String>,
    /// Number of objects that had to be written.
    pub written: usize,
}

impl Publisher {
    /// Creates a publisher that finds existing objects in `objects` and deletes unneeded ones after `grace`. It reads
    /// snapshots back into `memory`.
    pub fn new(client: Client, objects: Objects, grace: Duration, permits: Permits, memory: Arc<Memory>) -> Self {
        Self { client, objects, secrets: SecretCache::default(), permits, memory, grace }
    }

    /// Waits until the metadata watch has listed all objects. Never returns if the watch has ended.
    pub async fn ready(&self) {
        self.objects.ready().await;
    }

    /// Time that unneeded objects stay, because some pods have not switched yet.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Writes `snapshot` and its `record` to the cluster, to objects of both kinds if pods may still mount the other
    /// kind.
    ///
    /// # Errors
    /// If a file exceeds the size limit, an object of another owner has the name, or the API server rejects a write. A
    /// deletion of a surplus object that fails is logged, and a later publication repeats it.
    pub async fn publish(
        &self,
        destination: &Destination,
        snapshot: &Snapshot,
        record: Option<&Record>,
        cache: &mut WriteCache,
    ) -> Result<Published, Error> {
        fits(snapshot)?;
        let mut published = self.write(destination.current(), snapshot, record, cache).await?;
        if let Some(other) = destination.other_kind_if_used() {
            published.written += self.write(other, snapshot, record, cache).await?.written;
        }
        Ok(published)
    }

    /// Drops the cached Secrets of deleted environments.
    pub fn retain(&self, exists: impl Fn(&NamespacedName) -> bool) {
        self.secrets.retain(exists);
    }
}

fn fits(snapshot: &Snapshot) -> Result<(), Error> {
    match snapshot.files.iter().find(|file| file.bytes.len() > file.limit()) {
        Some(file) => {
            Err(Error::CapacityExceeded { file: file.name.clone(), size: file.bytes.len(), limit: file.limit() })
        }
        None => Ok(()),
    }
}
