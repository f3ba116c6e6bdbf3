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
mod owner;
mod permits;
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
use remora_snapshot::{
    Pointer,
    files::{self, CoreSet},
};
use tokio::time::Instant;

use self::{
    core::{CoreLocation, PresentFile},
    object::{Verdict, Wanted},
    owner::Collection,
    secret_cache::SecretCache,
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
    write::is_terminating,
};
use crate::{
    api::{
        NamespacedName, ObjectKind,
        names::{FORMAT, Format, label},
        resource_version::is_older,
    },
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
    /// Resource versions after the operator's last write, by kind and name.
    written: HashMap<(ObjectKind, String), String>,
    /// Place of the last core that was written, by kind. The watch may lag behind the operator's own writes.
    placed: HashMap<ObjectKind, CoreLocation>,
    /// Start of the grace period of each object that belongs to no file any more, by kind and name.
    surplus: HashMap<(ObjectKind, String), Instant>,
    /// Time of the last poll of the Secrets.
    refreshed: Option<Instant>,
    /// Time at which this process looked for the Secrets first.
    discovered: Option<Instant>,
    /// Names of the Secrets that a write on its way may create, and until when they are looked for.
    late: HashMap<String, Instant>,
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

    async fn write(
        &self,
        to: Collection<'_>,
        snapshot: &Snapshot,
        record: Option<&Record>,
        cache: &mut WriteCache,
    ) -> Result<Published, Error> {
        let before = match cache.placed.get(&to.object_kind) {
            // After a start, or after a write without an answer, the watch may not show the published core yet.
            None if snapshot.core_parts() > 0 => self.placed(to).await?,
            None => self.core(to).as_deref().and_then(CoreLocation::of),
            known => known.cloned(),
        };
        let placed = CoreLocation::next(snapshot, before.as_ref());
        let contents = snapshot.contents(placed.set.unwrap_or(CoreSet::A))?;
        let objects: Vec<String> = contents.iter().map(|content| to.owner.environment.object(&content.file)).collect();
        let kept = if placed.outgrows(before.as_ref()) { self.kept(to, &placed).await? } else { None };
        let kept = kept.map(core::Content::from);
        let present = self.present_overrides(to);
        let ordered = core::order(contents, before.as_ref(), &placed, kept, &present).into_iter();
        let wanted: Vec<Wanted<'_>> = ordered.map(|content| Wanted::live(to.owner, content, &placed, record)).collect();
        let mut outdated = Vec::new();
        for wanted in &wanted {
            let (verdict, found) = self.check(to, wanted, cache).await?;
            if verdict == Verdict::Outdated {
                outdated.push((wanted, found));
            }
        }
        for (wanted, found) in &outdated {
            // If the API server does not answer, it is not known which version is the operator's, and which core is published.
            cache.written.remove(&(to.object_kind, wanted.name.clone()));
            if wanted.is_core() {
                cache.placed.remove(&to.object_kind);
            }
            let applied = self.apply(to, wanted, found.as_deref()).await;
            if applied.is_err() {
                // The cached Secrets may not be what the API server has.
                cache.refreshed = None;
            }
            let version = applied?;
            if wanted.is_core() {
                cache.placed.insert(to.object_kind, placed.clone());
            }
            cache.written.extend(version.map(|version| ((to.object_kind, wanted.name.clone()), version)));
        }
        let mut needed = record.map(|record| history::names(to.owner, &record.history)).unwrap_or_default();
        needed.extend(objects.iter().cloned());
        if let Some(set) = placed.set {
            // The other set has the core before.
            needed.extend(to.owner.parts(set.other()));
        }
        if let Err(error) = self.clear_surplus(to, &needed, cache).await {
            // The revision is published, so a failed deletion of surplus objects does not fail the publication.
            let (namespace, environment) = (&to.owner.namespace, &to.owner.environment);
            tracing::warn!(namespace, %environment, %error, "cannot delete surplus objects: they are deleted later");
        }
        cache.placed.insert(to.object_kind, placed);
        Ok(Published { objects, written: outdated.len() })
    }

    /// Lists the known overrides files, which may be of several revisions.
    fn present_overrides(&self, objects: Collection<'_>) -> Vec<PresentFile> {
        let owner = objects.owner;
        let found = |slot| {
            let found = self.known(objects, &owner.environment.object(&files::overrides(slot)))?;
            owner.owns(&found).then(|| PresentFile { slot, files: owner::overrides_files(&found) })
        };
        (0..files::OVERRIDES_SLOTS).filter_map(found).collect()
    }

    /// Asks the API server for the place of the published core. `None` if the owner has published none.
    async fn placed(&self, objects: Collection<'_>) -> Result<Option<CoreLocation>, Error> {
        let core = self.calls(objects).metadata(&objects.owner.environment.object(files::CORE)).await?;
        Ok(core.filter(|core| objects.owner.owns(core)).as_ref().and_then(CoreLocation::of))
    }

    /// Returns the core that is published as one object, as the content of the set that is not about to be published: a
    /// sidecar that starts before all parts have arrived serves it. `None` if the object was altered.
    async fn kept(&self, objects: Collection<'_>, placed: &CoreLocation) -> Result<Option<File>, Error> {
        let Some(set) = placed.set else { return Ok(None) };
        let core = self.read(objects, &objects.owner.environment.object(files::CORE)).await?;
        let core = core.filter(|core| matches!(Pointer::read(&core.bytes), Ok(None)));
        Ok(core.map(|core| core::kept(core, set)))
    }

    /// True if there may be objects that only earlier pods mount: objects of the other kind or in another format.
    pub fn has_obsolete(&self, destination: &Destination) -> bool {
        destination.may_have_other_kind || !self.obsolete(destination).is_empty()
    }

    /// True if objects of the other kind exist in the current format, also if a publication of them was cut off.
    pub fn is_other_kind_cached(&self, destination: &Destination) -> bool {
        !self.last_first(destination.other_kind(), |format| format == FORMAT).is_empty()
    }

    /// Drops the cached Secrets of deleted environments.
    pub fn retain(&self, is_there: impl Fn(&NamespacedName) -> bool) {
        self.secrets.retain(is_there);
    }

    /// Writes the object if it is still as it was found, or still does not exist, and returns its new resource version.
    async fn apply(
        &self,
        objects: Collection<'_>,
        wanted: &Wanted<'_>,
        found: Option<&ObjectMeta>,
    ) -> Result<Option<String>, Error> {
        let _permit = self.permits.write(&objects.owner.namespace).await;
        let applied = self.calls(objects).apply(wanted, found).await?;
        let version = applied.resource_version.clone();
        match (objects.object_kind, &version) {
            (ObjectKind::ConfigMap, Some(version)) => {
                self.objects.enter_write(objects.owner.object(&wanted.name), version, view(&applied));
            }
            (ObjectKind::ConfigMap, None) => {}
            (ObjectKind::Secret, _) => self.secrets.put(objects.owner, &wanted.name, Some(applied)),
        }
        Ok(version)
    }

    async fn delete(&self, objects: Collection<'_>, found: &ObjectMeta, cache: &mut WriteCache) -> Result<(), Error> {
        let is_gone = self.calls(objects).delete(found).await?;
        let name = found.name.as_deref().unwrap_or_default();
        match objects.object_kind {
            ObjectKind::ConfigMap if is_gone => {
                let version = found.resource_version.as_deref().unwrap_or_default();
                self.objects.enter_deletion(objects.owner.object(name), version);
            }
            // The watch reports what has changed.
            ObjectKind::ConfigMap => {}
            ObjectKind::Secret => {
                cache.deleted(name);
                let changed = if is_gone { None } else { self.calls(objects).metadata(name).await? };
                self.secrets.put(objects.owner, name, changed);
            }
        }
        Ok(())
    }

    /// Compares the existing object with the desired one, and returns it. A write names its UID and resource version, so
    /// that it changes nothing if it arrives late, after a later one of another process.
    async fn check(
        &self,
        objects: Collection<'_>,
        wanted: &Wanted<'_>,
        cache: &WriteCache,
    ) -> Result<(Verdict, Option<Arc<ObjectMeta>>), Error> {
        let written = cache.written.get(&(objects.object_kind, wanted.name.clone())).map(String::as_str);
        let mut found = self.find(objects, &wanted.name).await?;
        if let (Some(version), Some(written)) =
            (found.as_ref().and_then(|found| found.resource_version.as_deref()), written)
            && is_older(version, written)
        {
            // The watch lags behind the operator's own write, so nobody has altered the object.
            found = self.calls(objects).metadata(&wanted.name).await?.map(Arc::new);
        }
        let Some(found) = found else { return Ok((Verdict::Outdated, None)) };
        match wanted.verdict(objects.owner, &found, written) {
            Verdict::Foreign => Err(Error::Conflict(objects.describe(&wanted.name))),
            verdict => Ok((verdict, Some(found))),
        }
    }

    /// Returns the metadata of the object with this name. Asks the API server if the cache has none, because an object
    /// without Remora's labels is not cached but may exist.
    async fn find(&self, objects: Collection<'_>, name: &str) -> Result<Option<Arc<ObjectMeta>>, Error> {
        if let Some(found) = self.known(objects, name) {
            return Ok(Some(found));
        }
        let found = self.calls(objects).metadata(name).await?;
        if objects.object_kind == ObjectKind::Secret {
            // Another process wrote it. It is deleted with the others once nothing needs it.
            self.secrets.put(objects.owner, name, found.clone());
        }
        Ok(found.map(Arc::new))
    }

    fn known(&self, objects: Collection<'_>, name: &str) -> Option<Arc<ObjectMeta>> {
        match objects.object_kind {
            ObjectKind::ConfigMap => self.objects.get(&objects.owner.object(name)),
            ObjectKind::Secret => self.secrets.get(objects.owner, name),
        }
    }

    /// Returns the objects that only earlier pods mount.
    fn obsolete<'a>(&self, destination: &'a Destination) -> Vec<(Collection<'a>, Arc<ObjectMeta>)> {
        let (used, unused) = (destination.current(), destination.other_kind());
        let in_used = self.last_first(used, |format| format != FORMAT);
        let in_unused = self.last_first(unused, |_| true);
        let in_used = in_used.into_iter().map(|found| (used, found));
        in_used.chain(in_unused.into_iter().map(|found| (unused, found))).collect()
    }

    fn obsolete_cores(&self, destination: &Destination) -> Vec<Arc<ObjectMeta>> {
        let obsolete = self.obsolete(destination).into_iter().map(|(_, found)| found);
        obsolete.filter(|found| destination.owner.is_core(found)).collect()
    }

    /// Returns the objects in the wanted formats, highest number first, so that an incomplete deletion leaves no gap in
    /// the numbers. Objects that are being deleted are gone already: a finalizer of somebody else may hold them for ever.
    fn last_first(&self, objects: Collection<'_>, is_wanted: impl Fn(Format) -> bool) -> Vec<Arc<ObjectMeta>> {
        let owner = objects.owner;
        let of_owner = |found: &ObjectMeta| {
            let environment = found.labels.as_ref().and_then(|labels| labels.get(label::ENVIRONMENT));
            found.namespace.as_ref() == Some(&owner.namespace)
                && found.deletion_timestamp.is_none()
                && environment.map(String::as_str) == Some(owner.environment.as_str())
                && is_wanted(owner.format(found))
                && owner.owns(found)
        };
        let mut found: Vec<Arc<ObjectMeta>> = match objects.object_kind {
            ObjectKind::ConfigMap => {
                let all = self.objects.of(&owner.name());
                all.into_iter().filter(|found| of_owner(found)).collect()
            }
            ObjectKind::Secret => self.secrets.all(owner).into_iter().filter(|found| of_owner(found)).collect(),
        };
        found.sort_by(|a, b| b.name.cmp(&a.name));
        found
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
