//! Bounds of the record in a core's annotation. Kubernetes refuses an object with more than 256 KiB of annotations, and
//! the owner of the namespace may write any record there.

use remora_compile::digest::{self, Digest};
use remora_snapshot::files;

use super::record::{ArchivedRevision, Record};

/// Largest size of a record in bytes. Less than the 256 KiB for all annotations, so that others have room for theirs.
pub(super) const RECORD_BYTES: usize = 192 << 10;
/// Largest number of revisions in each list: the schema allows 20 in the history, and two more are in use.
const REVISIONS: usize = 64;
/// Largest length of a revision, also in earlier formats.
const REVISION: usize = 64;
/// Prefix of a digest that is kept in place of a record.
const DIGEST_PREFIX: &str = "sha256:";

/// Returns what is kept of a record for which its namespace has no room: enough to see that the record has not changed.
pub(super) fn record_digest(record: &str) -> String {
    format!("{DIGEST_PREFIX}{}", Digest::of(record.as_bytes()))
}

/// True if the text has the form of such a digest.
pub(super) fn is_record_digest(text: &str) -> bool {
    text.strip_prefix(DIGEST_PREFIX).is_some_and(|digest| digest.len() == digest::LENGTH)
}

/// Revisions that a record has no room for.
#[derive(Debug, Default)]
pub struct Evicted {
    /// Revisions whose copies are objects of the published kind.
    pub current: Vec<ArchivedRevision>,
    /// Revisions whose copies are objects of the other kind.
    pub archived_in_other_kind: Vec<ArchivedRevision>,
}

impl Record {
    /// Parses the record in a core's annotation. `None` if the text is no record, or names more than the operator writes:
    /// each copy that it names is looked for.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let record = if text.len() <= RECORD_BYTES { serde_json::from_str(text).ok() } else { None };
        record.filter(Self::is_bounded)
    }

    /// Removes the oldest revisions that the record has no room for: first of the other kind, then those that were dropped,
    /// then of the history, except those in `needed`.
    pub fn evict(&mut self, needed: &[&str]) -> Evicted {
        let mut evicted = Evicted::default();
        let mut size = size(self);
        while size > RECORD_BYTES || self.archived_in_other_kind.len() > REVISIONS {
            let Some(oldest) = oldest(&self.archived_in_other_kind, &[]) else { break };
            let past = self.archived_in_other_kind.remove(oldest);
            size = size.saturating_sub(of(&past));
            evicted.archived_in_other_kind.push(past);
        }
        while size > RECORD_BYTES || self.dropped.len() > REVISIONS {
            let Some(past) = self.dropped.pop() else { break };
            size = size.saturating_sub(of(&past));
            evicted.current.push(past);
        }
        while size > RECORD_BYTES {
            let Some(oldest) = oldest(&self.history, needed) else { break };
            let past = self.history.remove(oldest);
            size = size.saturating_sub(of(&past));
            evicted.current.push(past);
        }
        evicted
    }

    /// True if the operator may have written this record: no list is longer than [`Record::evict`] leaves it, all revisions
    /// have the form of one, and all files are ones that a snapshot has.
    fn is_bounded(&self) -> bool {
        let lists = [&self.history, &self.dropped, &self.archived_in_other_kind];
        let mut pasts = lists.into_iter().flatten();
        lists.iter().all(|list| list.len() <= REVISIONS)
            && are_files(&self.files)
            && pasts.all(|past| is_revision(past.revision.as_str()) && are_files(&past.files))
    }
}

fn size(record: &Record) -> usize {
    serde_json::to_string(record).map_or(0, |text| text.len())
}

/// Size of a revision in a list, with the comma.
fn of(past: &ArchivedRevision) -> usize {
    serde_json::to_string(past).map_or(0, |text| text.len() + 1)
}

fn oldest(list: &[ArchivedRevision], needed: &[&str]) -> Option<usize> {
    let free = list.iter().enumerate().filter(|(_, past)| !needed.contains(&past.revision.as_str()));
    // Reversed, so that the last of several equal times is chosen: the lists begin with the latest revision.
    free.rev().min_by_key(|(_, past)| past.published_at.0).map(|(number, _)| number)
}

fn are_files<'a>(digests: impl IntoIterator<Item = (&'a String, &'a Digest)>) -> bool {
    digests.into_iter().all(|(file, digest)| is_file(file) && digest.as_str().len() == digest::LENGTH)
}

/// True if the text has the form of a revision, which is part of names of objects.
pub(super) fn is_revision(text: &str) -> bool {
    (1..=REVISION).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// True if a file of a snapshot, or a part of one, has this name.
pub(super) fn is_file(name: &str) -> bool {
    name == files::CORE
        || files::is_overrides(name)
        || files::is_core_part(name)
        || (0..files::DOCUMENT_SLOTS).any(|slot| files::document(slot) == name)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;
    use crate::api::Revision;

    /// Returns a revision with all files that one can have.
    fn past(number: i64) -> ArchivedRevision {
        let names = (0..files::OVERRIDES_SLOTS).map(files::overrides);
        let parts = (0..files::MAX_CORE_PARTS).map(|part| files::core_part(files::CoreSet::A, part));
        ArchivedRevision {
            revision: Revision::new(format!("{number:012}")),
            published_at: Time(Timestamp::from_second(1_000_000 + number).unwrap()),
            changes: None,
            files: names.chain(parts).map(|name| (name, Digest::of(b"a"))).collect(),
        }
    }

    fn record(history: Vec<ArchivedRevision>, archived_in_other_kind: Vec<ArchivedRevision>) -> Record {
        let document = json!({"source": "s", "environment": "e", "features": 0, "segments": 0, "overrides": 0});
        let record = json!({"publishedAt": "2026-11-24T00:00:00Z", "document": document});
        Record { history, archived_in_other_kind, files: past(0).files, ..serde_json::from_value(record).unwrap() }
    }

    fn revisions(list: &[ArchivedRevision]) -> Vec<&str> {
        list.iter().map(|past| past.revision.as_str()).collect()
    }

    #[test]
    fn record_of_largest_history_after_switch_of_kind_fits_into_annotation() {
        let history: Vec<ArchivedRevision> = (40..60).rev().map(past).collect();
        let former: Vec<ArchivedRevision> = (20..40).rev().map(past).collect();
        let mut record = record(history.clone(), former);
        assert!(size(&record) > 256 << 10, "the record has only {} bytes", size(&record));
        let evicted = record.evict(&[]);
        assert!(size(&record) <= RECORD_BYTES && record.is_bounded());
        assert_eq!(revisions(&record.history), revisions(&history), "the other kind's copies go first");
        assert_eq!(evicted.archived_in_other_kind[0].revision, past(20).revision, "the oldest goes first");
        assert!(
            evicted.current.is_empty()
                && record.archived_in_other_kind.len() + evicted.archived_in_other_kind.len() == 20
        );
    }

    #[test]
    fn oldest_history_goes_next_and_needed_revisions_stay() {
        let history: Vec<ArchivedRevision> = (0..40).rev().map(past).collect();
        let mut record = record(history, vec![past(0)]);
        let (pinned, second) = (past(0).revision, past(1).revision);
        let evicted = record.evict(&[pinned.as_str()]);
        assert!(size(&record) <= RECORD_BYTES && record.archived_in_other_kind.is_empty());
        assert_eq!(evicted.current[0].revision, second);
        assert!(revisions(&record.history).contains(&pinned.as_str()));
    }

    #[test]
    fn record_with_more_than_operator_writes_counts_as_altered() {
        let mut kinds = record(
            Vec::new(),
            (0..100).map(|number| ArchivedRevision { files: Default::default(), ..past(number) }).collect(),
        );
        assert!(!kinds.is_bounded());
        kinds.evict(&[]);
        assert!(kinds.is_bounded());
        for revision in ["", "../secrets", "a b", &"a".repeat(REVISION + 1)] {
            let altered = ArchivedRevision { revision: Revision::new(revision), ..past(1) };
            assert!(!record(vec![altered], Vec::new()).is_bounded(), "{revision}");
        }
        for (file, digest) in [("x", json!(Digest::of(b"a"))), ("core", json!("a"))] {
            let mut altered = record(vec![past(1)], Vec::new());
            altered.history[0].files.insert(file.to_owned(), serde_json::from_value(digest).unwrap());
            assert!(!altered.is_bounded(), "{file}");
        }
    }
}
