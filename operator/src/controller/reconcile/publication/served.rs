//! Reads the flags and the contents of a snapshot. That takes milliseconds for each megabyte, so it runs on a thread of
//! its own.

use std::{collections::BTreeSet, sync::Arc};

use remora_snapshot::{Snapshot as Reader, files};

use crate::{
    api::FeatureEnvironmentStatus,
    controller::{reconcile::candidate::Candidate, status::Contents},
    publish::Snapshot,
};

/// Returns the names of the flags that a snapshot serves. `None` if it cannot be read.
pub(crate) async fn flags(snapshot: &Arc<Snapshot>) -> Option<BTreeSet<String>> {
    let snapshot = Arc::clone(snapshot);
    let reading = tokio::task::spawn_blocking(move || {
        let core = snapshot.core()?;
        let reader = Reader::read(core.bytes.as_slice()).ok()?;
        Some(reader.served_names()?.into_iter().map(str::to_owned).collect())
    });
    reading.await.ok().flatten()
}

/// Describes the contents of the published snapshot. `None` if `status` has them already, or if they cannot be read.
pub(crate) async fn contents(
    snapshot: &Arc<Snapshot>,
    candidate: &Candidate,
    status: Option<&FeatureEnvironmentStatus>,
) -> Option<Contents> {
    if let Some(newest) = candidate.newest().filter(|newest| newest.snapshot.revision == snapshot.revision) {
        return Some(newest.contents.clone());
    }
    let is_reported = status.is_some_and(|status| status.revision.as_ref() == Some(&snapshot.revision));
    if is_reported {
        return None;
    }
    // Another reconciliation compiled it.
    let snapshot = Arc::clone(snapshot);
    tokio::task::spawn_blocking(move || read(&snapshot)).await.ok().flatten()
}

fn read(snapshot: &Snapshot) -> Option<Contents> {
    let core = snapshot.core()?;
    let mut reader = Reader::read(core.bytes.as_slice()).ok()?;
    for file in snapshot.files.iter().filter(|file| files::is_overrides(&file.name)) {
        reader.attach(file.bytes.as_slice()).ok()?;
    }
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    Some(Contents {
        features: count(reader.served_features()),
        segments: count(reader.segments()),
        overrides: count(reader.identity_overrides()),
        bytes: count(snapshot.size()),
        ..Contents::default()
    })
}
