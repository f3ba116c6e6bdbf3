//! Writes snapshots to ConfigMaps or Secrets, and keeps them as they were written. Needs the client.
//!
//! Override shards come first and the core last, so that a core never tells of a shard that is not there. Which ConfigMaps
//! are in the cluster is known from one watch of metadata, so that nothing is asked and nothing written while nothing
//! changed; Secrets are looked at now and then. Objects of others are never touched. Objects that the core no longer tells of
//! are deleted only after a while: pods that have not followed yet may still read the old core.
//!
//! What pods mount is fixed when they are admitted, so two kinds of former objects stay for as long as pods mount them: those
//! of the other [`Carrier`], which are kept as up to date, and those in another format, of an earlier version, which can
//! be neither written nor read by this one and stay as they are.

mod error;
mod history;
mod object;
mod record;
mod shelf;
mod snapshot;
mod write;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client,
    core::{ObjectMeta, PartialObjectMeta},
    runtime::reflector::{ObjectRef, Store},
};
use remora_snapshot::files;
use tokio::sync::OnceCell;

pub use self::{
    error::Error,
    object::Owner,
    record::{Past, Record},
    snapshot::{File, Snapshot},
    write::is_terminating,
};
use self::{
    object::{Verdict, Wanted},
    shelf::Shelf,
};
use crate::api::{
    Carrier,
    names::{FORMAT, Format, annotation, label},
};

/// How long a shard that no core tells of stays.
pub const SURPLUS_GRACE: Duration = Duration::from_secs(600);

/// The metadata of the ConfigMaps that carry our label, by a watch.
pub type Objects = Store<PartialObjectMeta<ConfigMap>>;

/// Writes snapshots.
pub struct Publisher {
    client: Client,
    objects: Objects,
    /// A store wakes the last of those who wait for it, and no other: one waits for all.
    ready: OnceCell<()>,
    shelf: Shelf,
    grace: Duration,
}

/// What is remembered of an environment's objects between two publications. Nothing of it is needed: it spares requests.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Versions after our last write, by kind and name.
    written: HashMap<(Carrier, String), String>,
    /// Since when an object belongs to no file, by kind and name.
    surplus: HashMap<(Carrier, String), Instant>,
    /// When Secrets were last looked at.
    looked: Option<Instant>,
}

/// That a snapshot is published.
#[derive(Debug)]
pub struct Published {
    /// The names of its objects.
    pub objects: Vec<String>,
    /// How many of them had to be written.
    pub written: usize,
}

impl Publisher {
    /// A publisher that knows the cluster by `objects`, and deletes what is in surplus after `grace`.
    pub fn new(client: Client, objects: Objects, grace: Duration) -> Self {
        Self { client, objects, ready: OnceCell::new(), shelf: Shelf::default(), grace }
    }

    /// Waits until the cluster is known.
    pub async fn ready(&self) {
        let known = async || {
            if self.objects.wait_until_ready().await.is_err() {
                // Whoever fed the watch is gone, and so will we be soon; until then, nothing is decided on what is not known.
                std::future::pending::<()>().await;
            }
        };
        self.ready.get_or_init(known).await;
    }

    /// How long objects stay that nobody needs any more: not everybody has heard.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// The revision that is published for this owner in today's format, as far as its core tells: in objects of its kind,
    /// or else of the other.
    pub fn revision(&self, owner: &Owner) -> Option<String> {
        let core = self.core(owner).or_else(|| self.core(&owner.former()?))?;
        object::annotation(&core, annotation::REVISION).map(str::to_owned)
    }

    /// What was written down when it was published; none by a version that did not, or where somebody altered it.
    pub fn record(&self, owner: &Owner) -> Option<Record> {
        if let Some(core) = self.core(owner) {
            return object::record(&core);
        }
        let records = self.former_cores(owner).into_iter().filter_map(|(_, core)| object::record(&core));
        let former = records.max_by_key(|record| record.published_at.0)?;
        // Copies of earlier revisions are of the kind, and in the format, that was.
        Some(Record { history: Vec::new(), ..former })
    }

    /// The other format in which something is published, where nothing is in today's.
    pub fn only_in(&self, owner: &Owner) -> Option<Format> {
        if self.revision(owner).is_some() {
            return None;
        }
        let formats = self.former_cores(owner).into_iter().map(|(owner, core)| owner.format(&core));
        formats.filter(|format| *format != FORMAT).max()
    }

    fn core(&self, owner: &Owner) -> Option<ObjectMeta> {
        let core = self.known(owner, &owner.environment.object(files::CORE))?;
        (owner.owns(&core) && core.deletion_timestamp.is_none()).then_some(core)
    }

    /// Makes the cluster carry `snapshot`, with `record` beside it.
    pub async fn publish(
        &self,
        owner: &Owner,
        snapshot: &Snapshot,
        record: Option<&Record>,
        ledger: &mut Ledger,
    ) -> Result<Published, Error> {
        fits(snapshot)?;
        let mut published = self.write(owner, snapshot, record, ledger).await?;
        if let Some(former) = owner.former() {
            published.written += self.write(&former, snapshot, record, ledger).await?.written;
        }
        Ok(published)
    }

    async fn write(
        &self,
        owner: &Owner,
        snapshot: &Snapshot,
        record: Option<&Record>,
        ledger: &mut Ledger,
    ) -> Result<Published, Error> {
        let (mut objects, mut outdated) = (Vec::new(), Vec::new());
        for file in &snapshot.files {
            let wanted = owner.live(file, snapshot, record);
            objects.push(wanted.name.clone());
            if self.look_at(owner, &wanted, ledger).await? == Verdict::Outdated {
                outdated.push(wanted);
            }
        }
        for wanted in &outdated {
            let version = self.apply(owner, wanted).await?;
            ledger.written.extend(version.map(|version| ((owner.carrier, wanted.name.clone()), version)));
        }
        let past = record.map(|record| history::names(owner, &record.history)).unwrap_or_default();
        let needed = |name: &str| past.contains(name) || objects.iter().any(|object| object == name);
        self.clear_surplus(owner, needed, ledger).await?;
        Ok(Published { objects, written: outdated.len() })
    }

    /// Whether there are objects that only pods of before mount: of the other kind, or in another format.
    pub fn has_former(&self, owner: &Owner) -> bool {
        owner.was_other || !self.former(owner).is_empty()
    }

    /// Deletes them.
    pub async fn withdraw_former(&self, owner: &Owner) -> Result<(), Error> {
        for (owner, found) in self.former(owner) {
            self.delete(&owner, &found).await?;
        }
        Ok(())
    }

    /// Forgets environments that are gone.
    pub fn retain(&self, is_there: impl Fn(&str, &str) -> bool) {
        self.shelf.retain(is_there);
    }

    /// What is published, for when it cannot be compiled again. None unless all of it is there and whole.
    pub async fn recover(&self, owner: &Owner) -> Result<Option<(Snapshot, Option<Record>)>, Error> {
        let Some(revision) = self.revision(owner) else {
            return Ok(None);
        };
        let record = self.record(owner);
        let former = if self.core(owner).is_none() { owner.former() } else { None };
        let owner = former.as_ref().unwrap_or(owner);
        let mut files = Vec::new();
        for found in self.last_first(owner, |format| format == FORMAT) {
            let name = found.name.as_deref().unwrap_or_default();
            if owner.is_past(name) {
                continue;
            }
            let Some(file) = self.read(owner, name).await? else {
                return Ok(None);
            };
            files.push(file);
        }
        Ok(Some((Snapshot::new(revision, files), record)))
    }

    /// The file that an object carries. None unless it is there and whole.
    async fn read(&self, owner: &Owner, name: &str) -> Result<Option<File>, Error> {
        let Some(object) = self.calls(owner).read(name).await? else {
            return Ok(None);
        };
        let file = object.content.into_iter().next().map(|(name, bytes)| File::new(name, bytes.0));
        let digest = object::annotation(&object.metadata, annotation::CONTENT);
        Ok(file.filter(|file| Some(file.digest.as_str()) == digest))
    }

    /// Writes the object, and returns its new version.
    async fn apply(&self, owner: &Owner, wanted: &Wanted<'_>) -> Result<Option<String>, Error> {
        let applied = self.calls(owner).apply(wanted).await?;
        let version = applied.resource_version.clone();
        if owner.carrier == Carrier::Secret {
            self.shelf.put(owner, &wanted.name, Some(applied));
        }
        Ok(version)
    }

    async fn delete(&self, owner: &Owner, found: &ObjectMeta) -> Result<(), Error> {
        self.calls(owner).delete(found).await?;
        if owner.carrier == Carrier::Secret {
            self.shelf.put(owner, found.name.as_deref().unwrap_or_default(), None);
        }
        Ok(())
    }

    async fn look_at(&self, owner: &Owner, wanted: &Wanted<'_>, ledger: &Ledger) -> Result<Verdict, Error> {
        let Some(found) = self.find(owner, &wanted.name).await? else {
            return Ok(Verdict::Outdated);
        };
        let written = ledger.written.get(&(owner.carrier, wanted.name.clone()));
        match owner.verdict(&found, wanted, written.map(String::as_str)) {
            Verdict::Foreign => Err(Error::Conflict(owner.called(&wanted.name))),
            verdict => Ok(verdict),
        }
    }

    /// The object of this name, also where it is not known: then it is not ours by its label, but perhaps there.
    async fn find(&self, owner: &Owner, name: &str) -> Result<Option<ObjectMeta>, Error> {
        match self.known(owner, name) {
            Some(found) => Ok(Some(found)),
            None => self.calls(owner).metadata(name).await,
        }
    }

    async fn clear_surplus(
        &self,
        owner: &Owner,
        needed: impl Fn(&str) -> bool,
        ledger: &mut Ledger,
    ) -> Result<(), Error> {
        let mut surplus = self.last_first(owner, |format| format == FORMAT);
        surplus.retain(|found| !found.name.as_deref().is_some_and(&needed));
        let is_surplus = |name: &str| surplus.iter().any(|found| found.name.as_deref() == Some(name));
        ledger.surplus.retain(|(carrier, name), _| *carrier != owner.carrier || is_surplus(name));
        let now = Instant::now();
        for found in surplus {
            let name = found.name.clone().unwrap_or_default();
            let since = *ledger.surplus.entry((owner.carrier, name)).or_insert(now);
            if now.duration_since(since) >= self.grace {
                self.delete(owner, &found).await?;
            }
        }
        Ok(())
    }

    fn known(&self, owner: &Owner, name: &str) -> Option<ObjectMeta> {
        match owner.carrier {
            Carrier::ConfigMap => {
                let reference = ObjectRef::new(name).within(&owner.namespace);
                self.objects.get(&reference).map(|found| found.metadata.clone())
            }
            Carrier::Secret => self.shelf.get(owner, name),
        }
    }

    /// What only pods of before mount, and whose it is.
    fn former(&self, owner: &Owner) -> Vec<(Owner, ObjectMeta)> {
        let (own, other) = (owner.clone(), owner.other());
        let own_kind = self.last_first(&own, |format| format != FORMAT);
        let other_kind = self.last_first(&other, |format| owner.was_other || format != FORMAT);
        let own_kind = own_kind.into_iter().map(|found| (own.clone(), found));
        own_kind.chain(other_kind.into_iter().map(|found| (other.clone(), found))).collect()
    }

    fn former_cores(&self, owner: &Owner) -> Vec<(Owner, ObjectMeta)> {
        let mut former = self.former(owner);
        former.retain(|(owner, found)| owner.is_core(found));
        former
    }

    /// The objects of this owner in such formats, the highest number first: what is numbered has no gap when only some are
    /// deleted.
    fn last_first(&self, owner: &Owner, is_wanted: impl Fn(Format) -> bool) -> Vec<ObjectMeta> {
        let of_owner = |found: &ObjectMeta| {
            let environment = found.labels.as_ref().and_then(|labels| labels.get(label::ENVIRONMENT));
            found.namespace.as_ref() == Some(&owner.namespace)
                && environment.map(String::as_str) == Some(owner.environment.as_str())
                && is_wanted(owner.format(found))
                && owner.owns(found)
        };
        let mut found: Vec<ObjectMeta> = match owner.carrier {
            Carrier::ConfigMap => {
                let all = self.objects.state();
                all.iter().map(|found| &found.metadata).filter(|found| of_owner(found)).cloned().collect()
            }
            Carrier::Secret => self.shelf.all(owner).into_iter().filter(of_owner).collect(),
        };
        found.sort_by(|a, b| b.name.cmp(&a.name));
        found
    }
}

fn fits(snapshot: &Snapshot) -> Result<(), Error> {
    match snapshot.files.iter().find(|file| file.bytes.len() > files::MAX_FILE_BYTES) {
        Some(file) => Err(Error::CapacityExceeded {
            file: file.name.clone(),
            size: file.bytes.len(),
            limit: files::MAX_FILE_BYTES,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::{
        Config,
        runtime::{reflector, watcher},
    };
    use tokio::task::JoinSet;

    use super::*;

    /// At its start a controller looks at all its objects at once; each of them waits here.
    #[tokio::test]
    async fn everybody_who_waits_for_the_cluster_to_be_known_is_woken() {
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_from(Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let (objects, mut writer) = reflector::store();
        let publisher = Arc::new(Publisher::new(client, objects, SURPLUS_GRACE));
        // Tasks of their own: futures of one task are woken together.
        let mut waiting: JoinSet<()> = (0..6)
            .map(|_| {
                let publisher = Arc::clone(&publisher);
                async move { publisher.ready().await }
            })
            .collect();
        tokio::task::yield_now().await;
        writer.apply_watcher_event(&watcher::Event::Init);
        writer.apply_watcher_event(&watcher::Event::InitDone);
        let woken =
            tokio::time::timeout(Duration::from_secs(5), async { while waiting.join_next().await.is_some() {} });
        woken.await.expect("somebody waits for ever");
    }
}
