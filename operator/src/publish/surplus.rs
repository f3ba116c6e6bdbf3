//! Surplus objects: those of an environment in the current format that belong neither to the published revision nor to an
//! earlier one that is kept. They are deleted after a grace period, because pods that have not switched yet may still
//! read the old core.

use std::{collections::HashSet, sync::Arc, time::Duration};

use kube::core::ObjectMeta;
use tokio::time::Instant;

use super::{Destination, Error, Publisher, WriteCache, owner::Collection, record_bounds};
use crate::api::names::FORMAT;

/// Time that an object stays once no core names it any more.
pub const SURPLUS_GRACE: Duration = Duration::from_secs(600);
/// Largest number of surplus objects that a publication deletes, and of obsolete objects that a reconciliation deletes:
/// any writer of ConfigMaps can create such objects. The next one deletes others. A published environment is reconciled
/// at least once in 66 s.
const DELETIONS: usize = 200;

/// Progress of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// All objects are deleted.
    Complete,
    /// Further objects wait for the next reconciliation.
    Partial,
}

impl Publisher {
    /// Deletes the objects that are not `needed` and whose grace period has ended, up to [`DELETIONS`] of them.
    pub(super) async fn clear_surplus(
        &self,
        objects: Collection<'_>,
        needed: &HashSet<String>,
        cache: &mut WriteCache,
    ) -> Result<(), Error> {
        let mut surplus = self.last_first(objects, |format| format == FORMAT);
        surplus.retain(|found| !found.name.as_ref().is_some_and(|name| needed.contains(name)));
        let names: HashSet<&str> = surplus.iter().filter_map(|found| found.name.as_deref()).collect();
        cache.of_mut(objects.object_kind).surplus.retain(|name, _| names.contains(name.as_str()));
        let (now, mut deletions) = (Instant::now(), 0);
        for found in &surplus {
            let name = found.name.clone().unwrap_or_default();
            let since = *cache.of_mut(objects.object_kind).surplus.entry(name).or_insert(now);
            if now.duration_since(since) >= self.grace && deletions < DELETIONS {
                self.delete(objects, found, cache).await?;
                deletions += 1;
            }
        }
        Ok(())
    }

    /// Deletes the objects that [`Publisher::has_obsolete`] finds, up to [`DELETIONS`] of them.
    ///
    /// # Errors
    /// If the API server rejects a request or does not answer in time.
    pub async fn delete_obsolete(&self, destination: &Destination, cache: &mut WriteCache) -> Result<Deletion, Error> {
        let mut obsolete = self.obsolete(destination);
        // While some objects of the other kind stay, publications write the files of the snapshot again. These go last.
        obsolete.sort_by_key(|(objects, found)| is_file(*objects, found));
        let progress = if obsolete.len() > DELETIONS { Deletion::Partial } else { Deletion::Complete };
        for (objects, found) in obsolete.iter().take(DELETIONS) {
            self.delete(*objects, found, cache).await?;
        }
        Ok(progress)
    }
}

/// True if the object has the name of a file in the current format.
fn is_file(objects: Collection<'_>, found: &Arc<ObjectMeta>) -> bool {
    objects.owner.file(found).is_some_and(record_bounds::is_file)
}
