//! Earlier revisions: copies of published snapshots in objects that no pod mounts. The core's record lists them.

use std::collections::HashSet;

use crate::api::ObjectKind;

use super::{
    Error, Publisher, WriteCache,
    object::{Owner, Verdict},
    record::Past,
    snapshot::{File, Snapshot},
};

impl Publisher {
    /// Copies a snapshot that is about to be replaced. Skips files that an earlier copy already holds.
    ///
    /// # Errors
    /// If an object of another owner has the name, or the API server rejects a write or does not answer in time.
    pub async fn archive(&self, owner: &Owner, snapshot: &Snapshot, cache: &WriteCache) -> Result<(), Error> {
        for file in &snapshot.files {
            let wanted = owner.past(file, &snapshot.revision);
            if self.check(owner, &wanted, cache).await? == Verdict::Outdated {
                self.apply(owner, &wanted).await?;
            }
        }
        Ok(())
    }

    /// Reads the copy of an earlier revision. `None` unless every file exists and matches its digest.
    ///
    /// # Errors
    /// If the API server rejects a request or does not answer in time.
    pub async fn restore(&self, owner: &Owner, past: &Past) -> Result<Option<Snapshot>, Error> {
        let mut files = Vec::new();
        for (file, digest) in &past.files {
            let name = owner.environment.past_object(file, &past.revision, digest);
            let Some(found) = self.read(owner, &name).await?.filter(|found| found.digest == *digest) else {
                return Ok(None);
            };
            files.push(File { name: file.clone(), ..found });
        }
        Ok(Some(Snapshot::new(past.revision.clone(), files)))
    }

    /// Deletes the objects that dropped revisions use and kept revisions do not. An object that the watch has not
    /// reported yet is deleted later, after the grace period.
    ///
    /// # Errors
    /// If the API server rejects a request or does not answer in time.
    pub async fn forget(&self, owner: &Owner, dropped: &[Past], kept: &[Past]) -> Result<(), Error> {
        let kept = names(owner, kept);
        for name in names(owner, dropped).difference(&kept) {
            // The cache has no Secret that another process wrote, so the API server is asked.
            let found = match owner.object_kind {
                ObjectKind::ConfigMap => self.known(owner, name),
                ObjectKind::Secret => self.find(owner, name).await?,
            };
            if let Some(found) = found.filter(|found| owner.owns(found)) {
                self.delete(owner, &found).await?;
            }
        }
        Ok(())
    }
}

/// Returns the names of all objects that hold these revisions.
pub(super) fn names(owner: &Owner, history: &[Past]) -> HashSet<String> {
    let files = history.iter().flat_map(|past| past.files.iter().map(move |file| (&past.revision, file)));
    files.map(|(revision, (file, digest))| owner.environment.past_object(file, revision, digest)).collect()
}
