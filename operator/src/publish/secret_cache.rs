//! Cache of the metadata of Secrets that carry snapshots. The operator neither lists nor watches them, because that
//! requires the right to read all Secrets. It gets each Secret by its known name: when the process starts, and in
//! a reconciliation that begins at least 60 s after the last poll.
//!
//! No Secret is left behind, whenever a process ends:
//!
//! 1. Before the first Secret of an environment is written, the status says so (`status.unfinished`). A process that starts
//!    looks for Secrets only where the status, or `spec.delivery.as`, names them.
//! 2. A process that starts discovers the Secrets by their names: each series of files in order, beyond a gap of missing
//!    numbers, because the process before may have ended between two writes or two deletions.
//! 3. A write without an answer may arrive until the API server gives it up. For so long, its Secret is looked for by each
//!    poll, and so is a Secret that was deleted soon after the start.
//! 4. Every poll repeats the gets of the known Secrets: somebody may have altered or deleted one.
//! 5. `status.unfinished` disappears once the publication is complete, or its Secrets are deleted.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
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
    NamespacedName, ObjectKind, Revision,
    names::{FORMAT, Format, annotation},
};

/// Time between two polls for Secrets that somebody deleted or altered.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// Time for which a Secret is looked for that a write on its way may create: an API server ends a request after 60 s.
const LATE: Duration = Duration::from_secs(600);

/// Largest number of missing Secrets between two of a series. Files are numbered without a gap, created in the order of their
/// numbers and deleted in the reverse order. But a process that loses its lease may have sent one deletion, which arrives
/// after the next process created the following files again.
const GAP: usize = 1;

/// Metadata of Secrets after the last poll or write, by namespace and environment, then by name.
#[derive(Default)]
pub(super) struct SecretCache(Mutex<HashMap<NamespacedName, Named>>);

/// Metadata of objects by name.
type Named = BTreeMap<String, Arc<ObjectMeta>>;

impl SecretCache {
    pub(super) fn get(&self, owner: &Owner, name: &str) -> Option<Arc<ObjectMeta>> {
        self.0.lock().get(&owner.name())?.get(name).cloned()
    }

    pub(super) fn all(&self, owner: &Owner) -> Vec<Arc<ObjectMeta>> {
        self.0.lock().get(&owner.name()).map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// Caches the metadata of an object. `None` means that the object does not exist.
    pub(super) fn put(&self, owner: &Owner, name: &str, found: Option<ObjectMeta>) {
        let mut environments = self.0.lock();
        let objects = environments.entry(owner.name()).or_default();
        match found {
            Some(found) => objects.insert(name.to_owned(), Arc::new(found)),
            None => objects.remove(name),
        };
    }

    /// Drops the Secrets of deleted environments.
    pub(super) fn retain(&self, exists: impl Fn(&NamespacedName) -> bool) {
        self.0.lock().retain(|environment, _| exists(environment));
    }
}

/// Polls of the Secrets of one environment.
#[derive(Debug, Default)]
pub(super) struct SecretPolls {
    /// Time of the last poll.
    pub(super) refreshed: Option<Instant>,
    /// Time at which this process looked for the Secrets first.
    discovered: Option<Instant>,
    /// Names of the Secrets that a write on its way may create, and until when they are looked for.
    late: HashMap<String, Instant>,
    /// True if a write has failed since the last poll: the cached Secrets may not be what the API server has.
    has_failed: bool,
}

impl SecretPolls {
    /// Polls for this Secret for [`LATE`], because a write without an answer may still create it.
    pub(super) fn expect_late(&mut self, name: String) {
        self.late.insert(name, Instant::now() + LATE);
    }

    /// Records a failed write: the next publication first gets the Secrets of the published revision again. Other Secrets
    /// wait for the next poll, because a refused write is repeated every few seconds, and there may be thousands of them.
    pub(super) fn write_failed(&mut self) {
        self.has_failed = true;
    }

    /// Polls for a deleted Secret for [`LATE`] if a write of the previous process may create it again.
    pub(super) fn deleted(&mut self, name: &str) {
        if self.discovered.is_some_and(|discovered| discovered.elapsed() < LATE) {
            self.expect_late(name.to_owned());
        }
    }
}

impl WriteCache {
    /// Returns the time of the next poll of the Secrets. `None` if none are polled.
    #[must_use]
    pub fn next_poll(&self, destination: &Destination) -> Option<Instant> {
        secrets(destination, self)?;
        self.polls.refreshed.map(|refreshed| refreshed + REFRESH_INTERVAL)
    }
}

/// Returns the Secrets of this destination, if it has or had any.
fn secrets<'a>(destination: &'a Destination, cache: &WriteCache) -> Option<Collection<'a>> {
    let unused = (destination.has_unfinished || !cache.polls.late.is_empty()).then(|| destination.other_kind());
    let collections = [Some(destination.current()), destination.other_kind_if_used(), unused];
    collections.into_iter().flatten().find(|objects| objects.object_kind == ObjectKind::Secret)
}

impl Publisher {
    /// Polls the Secrets of this destination, if it has or had any and the last poll is at least 60 s ago. ConfigMaps are
    /// watched instead.
    ///
    /// # Errors
    /// If the API server rejects a request or does not answer in time.
    pub async fn refresh_secrets(&self, destination: &Destination, cache: &mut WriteCache) -> Result<(), Error> {
        let Some(secrets) = secrets(destination, cache) else { return Ok(()) };
        match cache.polls.refreshed {
            Some(refreshed) if refreshed.elapsed() < REFRESH_INTERVAL => {
                if cache.polls.has_failed {
                    self.refresh_live(secrets).await?;
                    cache.polls.has_failed = false;
                }
                return Ok(());
            }
            Some(_) => self.refresh(secrets, cache).await?,
            None => {
                self.discover(destination, secrets, cache).await?;
                cache.polls.discovered.get_or_insert_with(Instant::now);
            }
        }
        (cache.polls.refreshed, cache.polls.has_failed) = (Some(Instant::now()), false);
        Ok(())
    }

    /// Gets the known Secrets in the current format that are not copies of earlier revisions.
    async fn refresh_live(&self, secrets: Collection<'_>) -> Result<(), Error> {
        let environment = &secrets.owner.environment;
        let known = self.secrets.all(secrets.owner).into_iter().filter_map(|known| known.name.clone());
        for name in known.filter(|name| environment.format_and_file(name).is_some()) {
            let found = self.calls(secrets).metadata(&name).await?;
            self.secrets.put(secrets.owner, &name, found);
        }
        Ok(())
    }

    async fn discover(
        &self,
        destination: &Destination,
        secrets: Collection<'_>,
        cache: &mut WriteCache,
    ) -> Result<(), Error> {
        self.refresh(secrets, cache).await?;
        self.discover_in(FORMAT, secrets, cache).await?;
        self.discover_copies(secrets, self.core(secrets), cache).await?;
        if destination.has_unfinished {
            // The publication copied the revision of the other kind first.
            self.discover_copies(secrets, self.core(destination.current()), cache).await?;
        }
        for format in FORMAT.earlier() {
            // A first publication that was cut off has no core.
            self.discover_in(format, secrets, cache).await?;
        }
        Ok(())
    }

    /// Finds the copies that the record of a core names. The process before may have sent those that are missing.
    async fn discover_copies(
        &self,
        secrets: Collection<'_>,
        core: Option<Arc<ObjectMeta>>,
        cache: &mut WriteCache,
    ) -> Result<(), Error> {
        let Some(core) = core else { return Ok(()) };
        let record = object::record(&core).zip(owner::annotation(&core, annotation::REVISION));
        let Some((record, revision)) = record else { return Ok(()) };
        for name in history::copies(secrets.owner, &record, &Revision::new(revision)) {
            let found = self.calls(secrets).metadata(&name).await?;
            if found.is_none() {
                cache.polls.expect_late(name.clone());
            }
            self.secrets.put(secrets.owner, &name, found);
        }
        Ok(())
    }

    /// Finds the Secrets of one format by their names: the files of each kind are numbered.
    async fn discover_in(&self, format: Format, secrets: Collection<'_>, cache: &mut WriteCache) -> Result<(), Error> {
        let overrides = (0..files::OVERRIDES_SLOTS).map(files::overrides).collect();
        let document = (0..files::DOCUMENT_SLOTS).map(files::document).collect();
        for series in [vec![files::CORE.to_owned()], overrides, document] {
            self.discover_series(format, secrets, series, cache).await?;
        }
        // Set `b` is written after set `a` and deleted before it, so without set `a` it does not exist.
        for set in CoreSet::ALL {
            let parts = (0..files::MAX_CORE_PARTS).map(|part| files::core_part(set, part)).collect();
            if self.discover_series(format, secrets, parts, cache).await? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Gets the Secrets of these files in order, and stops after more than [`GAP`] missing ones in a row. Returns their number.
    async fn discover_series(
        &self,
        format: Format,
        secrets: Collection<'_>,
        series: Vec<String>,
        cache: &mut WriteCache,
    ) -> Result<usize, Error> {
        // Nobody creates Secrets in an earlier format, so none of their numbers is missing.
        let gap = if format == FORMAT { GAP } else { 0 };
        let (mut count, mut missing) = (0, 0);
        for file in series {
            let name = secrets.owner.environment.object_in(format, &file);
            let found = self.calls(secrets).metadata(&name).await?;
            if found.is_some() {
                self.secrets.put(secrets.owner, &name, found);
                (count, missing) = (count + 1, 0);
                continue;
            }
            if format == FORMAT {
                // The process before may have sent it: it writes one after another.
                cache.polls.expect_late(name);
            }
            missing += 1;
            if missing > gap {
                break;
            }
        }
        Ok(count)
    }

    async fn refresh(&self, secrets: Collection<'_>, cache: &mut WriteCache) -> Result<(), Error> {
        let now = Instant::now();
        let known = self.secrets.all(secrets.owner).into_iter().filter_map(|known| known.name.clone());
        let names: BTreeSet<String> = known.chain(cache.polls.late.keys().cloned()).collect();
        for name in names {
            let found = self.calls(secrets).metadata(&name).await?;
            self.secrets.put(secrets.owner, &name, found);
        }
        cache.polls.late.retain(|_, until| *until > now);
        Ok(())
    }

    pub(super) fn calls<'a>(&'a self, objects: Collection<'a>) -> Calls<'a> {
        Calls { client: &self.client, objects }
    }
}
