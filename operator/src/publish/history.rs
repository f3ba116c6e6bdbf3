//! Earlier revisions: copies of published snapshots in objects that no pod mounts. The core's record lists them.

use std::collections::HashSet;

use super::{
    Destination, Error, Owner, Publisher, WriteCache,
    object::{Verdict, Wanted},
    owner::Collection,
    record::{ArchivedRevision, Record},
    snapshot::{File, Reading, Snapshot, are_bounded},
};
use crate::api::{ObjectKind, Revision};

/// Number of writes that are repeated while a snapshot is copied. The copy cannot be made later, and without it no
/// rollback to the revision is possible.
const ARCHIVE_RETRIES: u32 = 1;

impl Publisher {
    /// Copies a snapshot that is about to be replaced. Skips files that an earlier copy already holds.
    ///
    /// # Errors
    /// If an object of another owner has the name, or the API server rejects a write or does not answer in time.
    pub async fn archive(
        &self,
        destination: &Destination,
        snapshot: &Snapshot,
        cache: &mut WriteCache,
    ) -> Result<(), Error> {
        let objects = destination.current();
        let mut retries = ARCHIVE_RETRIES;
        for content in snapshot.archive_contents() {
            let wanted = Wanted::past(objects.owner, content, &snapshot.revision);
            while let Err(error) = self.copy(objects, &wanted, cache).await {
                if objects.object_kind == ObjectKind::Secret {
                    // The answer may be lost, or the write may be on its way.
                    cache.polls.expect_late(wanted.name.clone());
                }
                retries = retries.checked_sub(1).ok_or(error)?;
            }
        }
        Ok(())
    }

    async fn copy(&self, objects: Collection<'_>, wanted: &Wanted<'_>, cache: &WriteCache) -> Result<(), Error> {
        let (verdict, found) = self.check(objects, wanted, cache).await?;
        if verdict == Verdict::Outdated {
            self.apply(objects, wanted, found.as_deref()).await?;
        }
        Ok(())
    }

    /// Reads the copy of an earlier revision. `None` unless every file exists and matches its digest, and a snapshot can
    /// have files of their sizes.
    ///
    /// # Errors
    /// If the API server rejects a request or does not answer in time, or the namespace has no memory for the snapshot.
    pub async fn read_archived(
        &self,
        destination: &Destination,
        past: &ArchivedRevision,
    ) -> Result<Option<Snapshot>, Error> {
        let _permit = self.permits.read(&destination.owner.namespace).await;
        let objects = destination.current();
        let mut reading = Reading::new(&self.memory, &destination.owner.namespace);
        let mut files = Vec::new();
        for (file, digest) in &past.files {
            let name = objects.owner.environment.past_object(file, &past.revision, digest);
            let Some(found) = self.read(objects, &name).await?.filter(|found| found.digest == *digest) else {
                return Ok(None);
            };
            reading.add(found.bytes.len())?;
            files.push(File { name: file.clone(), ..found });
            if !are_bounded(&files) {
                return Ok(None);
            }
        }
        Ok(Some(Snapshot::from_archived(past.revision.clone(), files).holding(reading)))
    }

    /// Deletes the copies in objects of the other kind that dropped revisions use and kept revisions do not.
    ///
    /// # Errors
    /// If the API server rejects a request or does not answer in time.
    pub async fn delete_copies_in_other_kind(
        &self,
        destination: &Destination,
        dropped: &[ArchivedRevision],
        kept: &[ArchivedRevision],
        cache: &mut WriteCache,
    ) -> Result<(), Error> {
        self.delete_unneeded(destination.other_kind(), dropped, kept, cache).await
    }

    /// Deletes the objects that dropped revisions use and kept revisions do not. An object that the watch has not
    /// reported yet is deleted later, after the grace period.
    ///
    /// # Errors
    /// If the API server rejects a request or does not answer in time.
    pub async fn delete_copies(
        &self,
        destination: &Destination,
        dropped: &[ArchivedRevision],
        kept: &[ArchivedRevision],
        cache: &mut WriteCache,
    ) -> Result<(), Error> {
        self.delete_unneeded(destination.current(), dropped, kept, cache).await
    }

    async fn delete_unneeded(
        &self,
        objects: Collection<'_>,
        dropped: &[ArchivedRevision],
        kept: &[ArchivedRevision],
        cache: &mut WriteCache,
    ) -> Result<(), Error> {
        let kept = names(objects.owner, kept);
        for name in names(objects.owner, dropped).difference(&kept) {
            // The cache has no Secret that another process wrote, so the API server is asked.
            let found = match objects.object_kind {
                ObjectKind::ConfigMap => self.known(objects, name),
                ObjectKind::Secret => self.find(objects, name).await?,
            };
            if let Some(found) = found.filter(|found| objects.owner.owns(found)) {
                self.delete(objects, &found, cache).await?;
            }
        }
        Ok(())
    }
}

/// Returns the names of all copies that may exist beside a core with this record: of the revisions that are kept, of those
/// that were dropped or are kept in the other kind, and of the published one, which a process may have copied before it
/// ended.
pub(super) fn copies(owner: &Owner, record: &Record, published: &Revision) -> HashSet<String> {
    let published = record.files.iter().map(|(file, digest)| owner.environment.past_object(file, published, digest));
    let mut copies = names(owner, &record.history);
    copies.extend(names(owner, &record.dropped));
    copies.extend(names(owner, &record.archived_in_other_kind));
    copies.extend(published);
    copies
}

/// Returns the names of all objects that hold these revisions.
pub(super) fn names(owner: &Owner, history: &[ArchivedRevision]) -> HashSet<String> {
    let files = history.iter().flat_map(|past| past.files.iter().map(move |file| (&past.revision, file)));
    files.map(|(revision, (file, digest))| owner.environment.past_object(file, revision, digest)).collect()
}
