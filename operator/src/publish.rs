//! Writes snapshots to ConfigMaps, and keeps them as they were written. Needs the client.
//!
//! Override shards come first and the core last, so that a core never tells of a shard that is not there. What is in the
//! cluster is known from one watch of metadata, so that nothing is asked and nothing written while nothing changed. Objects
//! of others are never touched. Objects that the core no longer tells of are deleted only after a while: pods that have not
//! followed yet may still read the old core.

mod error;
mod history;
mod object;
mod record;
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

use self::object::{Verdict, Wanted};
pub use self::{
    error::Error,
    object::Owner,
    record::{Past, Record},
    snapshot::{File, Snapshot},
    write::is_terminating,
};
use crate::names::{annotation, label};

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
    grace: Duration,
}

/// What is remembered of an environment's objects between two publications. Nothing of it is needed: it spares requests.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Versions after our last write, by name.
    written: HashMap<String, String>,
    /// Since when an object belongs to no file, by name.
    surplus: HashMap<String, Instant>,
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
        Self { client, objects, ready: OnceCell::new(), grace }
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

    /// The revision that is published for this owner, as far as its core tells.
    pub fn revision(&self, owner: &Owner) -> Option<String> {
        object::annotation(&self.core(owner)?, annotation::REVISION).map(str::to_owned)
    }

    /// What was written down when it was published; none by a version that did not, or where somebody altered it.
    pub fn record(&self, owner: &Owner) -> Option<Record> {
        object::record(&self.core(owner)?)
    }

    fn core(&self, owner: &Owner) -> Option<ObjectMeta> {
        let core = self.known(owner, &owner.environment.config_map(files::CORE))?;
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
        let (mut objects, mut outdated) = (Vec::new(), Vec::new());
        for file in &snapshot.files {
            let wanted = owner.live(file, snapshot, record);
            objects.push(wanted.name.clone());
            if self.look_at(owner, &wanted, ledger).await? == Verdict::Outdated {
                outdated.push(wanted);
            }
        }
        for wanted in &outdated {
            let version = write::apply(&self.client, &owner.namespace, &owner.object(wanted)).await?;
            ledger.written.extend(version.map(|version| (wanted.name.clone(), version)));
        }
        let past = record.map(|record| history::names(owner, &record.history)).unwrap_or_default();
        let needed = |name: &str| past.contains(name) || objects.iter().any(|object| object == name);
        self.clear_surplus(owner, needed, ledger).await?;
        Ok(Published { objects, written: outdated.len() })
    }

    /// What is published, for when it cannot be compiled again. None unless all of it is there and whole.
    pub async fn recover(&self, owner: &Owner) -> Result<Option<(Snapshot, Option<Record>)>, Error> {
        let Some(revision) = self.revision(owner) else {
            return Ok(None);
        };
        let record = self.record(owner);
        let mut files = Vec::new();
        for found in self.all(owner) {
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
        let Some(object) = write::read(&self.client, &owner.namespace, name).await? else {
            return Ok(None);
        };
        let entry = object.binary_data.into_iter().flatten().next();
        let file = entry.map(|(name, bytes)| File::new(name, bytes.0));
        let digest = object::annotation(&object.metadata, annotation::CONTENT);
        Ok(file.filter(|file| Some(file.digest.as_str()) == digest))
    }

    async fn look_at(&self, owner: &Owner, wanted: &Wanted<'_>, ledger: &Ledger) -> Result<Verdict, Error> {
        let found = match self.known(owner, &wanted.name) {
            Some(found) => Some(found),
            // Not ours by its label, but perhaps there.
            None => write::metadata(&self.client, &owner.namespace, &wanted.name).await?,
        };
        let Some(found) = found else {
            return Ok(Verdict::Outdated);
        };
        match owner.verdict(&found, wanted, ledger.written.get(&wanted.name).map(String::as_str)) {
            Verdict::Foreign => Err(Error::Conflict(wanted.name.clone())),
            verdict => Ok(verdict),
        }
    }

    async fn clear_surplus(
        &self,
        owner: &Owner,
        needed: impl Fn(&str) -> bool,
        ledger: &mut Ledger,
    ) -> Result<(), Error> {
        let surplus: Vec<ObjectMeta> =
            self.all(owner).filter(|found| !found.name.as_deref().is_some_and(&needed)).collect();
        ledger.surplus.retain(|name, _| surplus.iter().any(|found| found.name.as_ref() == Some(name)));
        let now = Instant::now();
        for found in surplus {
            let since = *ledger.surplus.entry(found.name.clone().unwrap_or_default()).or_insert(now);
            if now.duration_since(since) >= self.grace {
                write::delete(&self.client, &owner.namespace, &found).await?;
            }
        }
        Ok(())
    }

    fn known(&self, owner: &Owner, name: &str) -> Option<ObjectMeta> {
        let reference = ObjectRef::new(name).within(&owner.namespace);
        self.objects.get(&reference).map(|found| found.metadata.clone())
    }

    /// All objects of this owner.
    fn all(&self, owner: &Owner) -> impl Iterator<Item = ObjectMeta> {
        let of_owner = |found: &ObjectMeta| {
            let environment = found.labels.as_ref().and_then(|labels| labels.get(label::ENVIRONMENT));
            found.namespace.as_ref() == Some(&owner.namespace)
                && environment.map(String::as_str) == Some(owner.environment.as_str())
                && owner.owns(found)
        };
        self.objects
            .state()
            .into_iter()
            .filter(move |found| of_owner(&found.metadata))
            .map(|found| found.metadata.clone())
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
