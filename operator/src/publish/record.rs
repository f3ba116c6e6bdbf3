//! Record of a published revision, in an annotation of its core object.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use remora_compile::digest::Digest;
use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;
use crate::{
    api::{Changes, Revision, names::EnvironmentName},
    guard::GuardBaseline,
};

/// Metadata of a published snapshot, stored on its core object: facts that another process needs and cannot read from
/// the bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Time at which this revision was published.
    pub published_at: Time,
    /// Summary of the document that was accepted last.
    pub document: GuardBaseline,
    /// Flags that this revision changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// Earlier revisions that are kept, latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ArchivedRevision>,
    /// Earlier revisions that this publication dropped. A process that ends before it has deleted their copies leaves them
    /// to the next one, which finds Secrets by their names only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<ArchivedRevision>,
    /// Earlier revisions whose copies are objects of the other kind, which pods may still mount.
    #[serde(rename = "former", default, skip_serializing_if = "Vec::is_empty")]
    pub archived_in_other_kind: Vec<ArchivedRevision>,
    /// Digest of each file of this revision, by file name. While the next revision is written, the objects hold some
    /// files of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) files: BTreeMap<String, Digest>,
}

/// Earlier revision that is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchivedRevision {
    /// Revision of the snapshot.
    pub revision: Revision,
    /// Time at which the revision was published.
    pub published_at: Time,
    /// Flags that the revision changed when it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// Digest of each file, by file name.
    pub(super) files: BTreeMap<String, Digest>,
}

impl ArchivedRevision {
    /// Creates the history entry for a snapshot that is being replaced.
    pub fn of(snapshot: &Snapshot, published_at: Time, changes: Option<Changes>) -> Self {
        Self { revision: snapshot.revision.clone(), published_at, changes, files: snapshot.digests() }
    }

    /// Lists the names of the objects that hold the files of this revision.
    pub fn objects(&self, environment: &EnvironmentName) -> impl Iterator<Item = String> {
        self.files.iter().map(|(file, digest)| environment.past_object(file, &self.revision, digest))
    }
}

impl Record {
    /// Keeps the latest `limit` earlier revisions, and in addition those in `needed`. Returns the dropped revisions.
    pub fn trim(&mut self, limit: usize, needed: &[&str]) -> Vec<ArchivedRevision> {
        let mut left = limit;
        let keep = |past: &ArchivedRevision| {
            let counts = !needed.contains(&past.revision.as_str());
            let keep = !counts || left > 0;
            left -= usize::from(counts && keep);
            keep
        };
        let (kept, dropped) = std::mem::take(&mut self.history).into_iter().partition(keep);
        self.history = kept;
        dropped
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn past(revision: &str) -> ArchivedRevision {
        ArchivedRevision {
            revision: Revision::new(revision),
            published_at: Time(Timestamp::UNIX_EPOCH),
            changes: None,
            files: BTreeMap::new(),
        }
    }

    #[test]
    fn objects_in_use_are_kept_beyond_history_limit() {
        let document = serde_json::from_value(
            json!({"source": "s", "environment": "e", "features": 0, "segments": 0, "overrides": 0}),
        );
        let history: Vec<ArchivedRevision> = ["e", "d", "c", "b", "a"].map(past).to_vec();
        let whole = Record {
            published_at: Time(Timestamp::UNIX_EPOCH),
            document: document.unwrap(),
            changes: None,
            history: history.clone(),
            dropped: Vec::new(),
            archived_in_other_kind: Vec::new(),
            files: BTreeMap::new(),
        };
        for (limit, needed, kept) in [
            (0, &[][..], &[][..]),
            (2, &[], &["e", "d"]),
            (2, &["a"], &["e", "d", "a"]),
            (2, &["e"], &["e", "d", "c"]),
            (9, &["x"], &["e", "d", "c", "b", "a"]),
        ] {
            let mut record = whole.clone();
            let dropped = record.trim(limit, needed);
            let names: Vec<&str> = record.history.iter().map(|past| past.revision.as_str()).collect();
            assert_eq!(names, kept, "{limit} {needed:?}");
            assert_eq!(dropped.len() + names.len(), history.len());
        }
    }
}
