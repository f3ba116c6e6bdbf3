//! Cache of the metadata of Secrets that carry snapshots. The operator neither lists nor watches them, because that
//! requires the right to read all Secrets. It gets each Secret by its known name, when the process starts and every 60
//! s.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use kube::core::ObjectMeta;
use parking_lot::Mutex;
use remora_snapshot::files::{self, CoreSet};
use tokio::time::Instant;

use super::{
    Destination, Error, Owner, Publisher, WriteCache, history, object,
    owner::{self, Collection},
    write::Calls,
};
use crate::api::{
    ObjectKind,
    names::{FORMAT, Format, annotation},
};

/// Time between two polls for Secrets that somebody deleted or altered.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// Metadata of Secrets after the last poll or write, by namespace and environment, then by name.
#[derive(Default)]
pub(super) struct SecretCache(Mutex<HashMap<(String, String), BTreeMap<String, ObjectMeta>>>);

impl SecretCache {
    pub(super) fn get(&self, owner: &Owner, name: &str) -> Option<ObjectMeta> {
        self.0.lock().get(&key(owner))?.get(name).cloned()
    }

    pub(super) fn all(&self, owner: &Owner) -> Vec<ObjectMeta> {
        self.0.lock().get(&key(owner)).map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// Caches the metadata of an object. `None` means that the object does not exist.
    pub(super) fn put(&self, owner: &Owner, name: &str, found: Option<ObjectMeta>) {
        let mut environments = self.0.lock();
        let objects = environments.entry(key(owner)).or_default();
        match found {
            Some(found) => objects.insert(name.to_owned(), found),
            None => objects.remove(name),
        };
    }

    fn clear(&self, owner: &Owner) {
        self.0.lock().remove(&key(owner));
    }

    /// Drops the Secrets of deleted environments.
    pub(super) fn retain(&self, is_there: impl Fn(&str, &str) -> bool) {
        self.0.lock().retain(|(namespace, environment), _| is_there(namespace, environment));
    }
}

fn key(owner: &Owner) -> (String, String) {
    (owner.namespace.clone(), owner.environment.to_string())
}

impl Publisher {
    /// Polls the Secrets of this destination, if it has or had any and the last poll is at least 60 s ago. ConfigMaps are
    /// watched instead.
    ///
    /// # Errors
    /// If the API server rejects a request or does not answer in time.
    pub async fn refresh_secrets(&self, destination: &Destination, cache: &mut WriteCache) -> Result<(), Error> {
        let collections = [Some(destination.collection()), destination.other()];
        let secrets = collections.into_iter().flatten().find(|objects| objects.object_kind == ObjectKind::Secret);
        let Some(secrets) = secrets else { return Ok(()) };
        match cache.refreshed {
            Some(refreshed) if refreshed.elapsed() < REFRESH_INTERVAL => return Ok(()),
            Some(_) => self.refresh(secrets).await?,
            None => self.discover(secrets).await?,
        }
        cache.refreshed = Some(Instant::now());
        Ok(())
    }

    async fn discover(&self, secrets: Collection<'_>) -> Result<(), Error> {
        self.secrets.clear(secrets.owner);
        self.discover_in(FORMAT, secrets).await?;
        self.discover_copies(secrets).await?;
        for format in FORMAT.earlier() {
            let core = secrets.owner.environment.object_in(format, files::CORE);
            // Deletion removes the core last, so without a core no object of this format exists.
            if self.calls(secrets).metadata(&core).await?.is_some() {
                self.discover_in(format, secrets).await?;
            }
        }
        Ok(())
    }

    /// Finds the copies that the core's record names.
    async fn discover_copies(&self, secrets: Collection<'_>) -> Result<(), Error> {
        let Some(core) = self.core(secrets) else { return Ok(()) };
        let record = object::record(&core).zip(owner::annotation(&core, annotation::REVISION));
        let Some((record, revision)) = record else { return Ok(()) };
        for name in history::copies(secrets.owner, &record, revision) {
            let found = self.calls(secrets).metadata(&name).await?;
            self.secrets.put(secrets.owner, &name, found);
        }
        Ok(())
    }

    /// Finds the Secrets of one format by their names. The files of each kind are numbered without a gap, so the search
    /// ends at the first missing number.
    async fn discover_in(&self, format: Format, secrets: Collection<'_>) -> Result<(), Error> {
        let overrides = (0..files::OVERRIDES_SLOTS).map(files::overrides).collect();
        let document = (0..files::DOCUMENT_SLOTS).map(files::document).collect();
        for series in [vec![files::CORE.to_owned()], overrides, document] {
            self.discover_series(format, secrets, series).await?;
        }
        // Set `b` is written after set `a` and deleted before it, so without set `a` it does not exist.
        for set in CoreSet::ALL {
            let parts = (0..files::MAX_CORE_PARTS).map(|part| files::core_part(set, part)).collect();
            if self.discover_series(format, secrets, parts).await? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Finds the Secrets of these files up to the first missing one. Returns their number.
    async fn discover_series(
        &self,
        format: Format,
        secrets: Collection<'_>,
        series: Vec<String>,
    ) -> Result<usize, Error> {
        let mut count = 0;
        for file in series {
            let name = secrets.owner.environment.object_in(format, &file);
            let Some(found) = self.calls(secrets).metadata(&name).await? else { break };
            self.secrets.put(secrets.owner, &name, Some(found));
            count += 1;
        }
        Ok(count)
    }

    async fn refresh(&self, secrets: Collection<'_>) -> Result<(), Error> {
        for known in self.secrets.all(secrets.owner) {
            let name = known.name.unwrap_or_default();
            let found = self.calls(secrets).metadata(&name).await?;
            self.secrets.put(secrets.owner, &name, found);
        }
        Ok(())
    }

    pub(super) fn calls<'a>(&'a self, objects: Collection<'a>) -> Calls<'a> {
        Calls { client: &self.client, objects }
    }
}
