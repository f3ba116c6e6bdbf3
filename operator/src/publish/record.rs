use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;
use crate::compile::guard::Outline;

/// What is written beside a snapshot, on its core object: what another process must know of it that its bytes do not tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Since when this revision is published.
    pub published_at: Time,
    /// The document that was accepted last.
    pub document: Outline,
    /// What was published before and is kept, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Past>,
}

/// A revision that was published and is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Past {
    /// The revision.
    pub revision: String,
    /// Since when it was published.
    pub published_at: Time,
    /// The digests of its files, by their names.
    pub(super) files: BTreeMap<String, String>,
}

impl Past {
    /// What becomes of a snapshot that something else takes the place of.
    pub fn of(snapshot: &Snapshot, published_at: Time) -> Self {
        let files = snapshot.files.iter().map(|file| (file.name.clone(), file.digest.clone())).collect();
        Self { revision: snapshot.revision.clone(), published_at, files }
    }
}

impl Record {
    /// Keeps so many earlier revisions, and those among `needed` besides; returns the others.
    pub fn trim(&mut self, limit: usize, needed: &[&str]) -> Vec<Past> {
        let mut room = limit;
        let keep = |past: &Past| {
            let counts = !needed.contains(&past.revision.as_str());
            let keep = !counts || room > 0;
            room -= usize::from(counts && keep);
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

    fn past(revision: &str) -> Past {
        Past { revision: revision.to_owned(), published_at: Time(Timestamp::UNIX_EPOCH), files: BTreeMap::new() }
    }

    #[test]
    fn what_is_needed_is_kept_besides() {
        let document = serde_json::from_value(
            json!({"source": "s", "environment": "e", "features": 0, "segments": 0, "overrides": 0}),
        );
        let history: Vec<Past> = ["e", "d", "c", "b", "a"].map(past).to_vec();
        let whole =
            Record { published_at: Time(Timestamp::UNIX_EPOCH), document: document.unwrap(), history: history.clone() };
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
