//! Memory that a record takes once it is parsed: a multiple of its text, which may have 192 KiB.

use std::collections::BTreeMap;

use remora_compile::digest::Digest;

use super::record::{ArchivedRevision, Record};
use crate::api::Changes;

/// Overhead of an allocation in bytes.
const ALLOCATION: usize = 16;
/// Size of a node of a map in bytes: eleven pairs of texts, and the links to other nodes.
const NODE: usize = 11 * 2 * size_of::<String>() + 112;
/// Least number of pairs in a node.
const NODE_PAIRS: usize = 5;

impl Record {
    /// Returns an upper bound in bytes for the memory of this record and of the next one, whose history has this revision,
    /// too.
    pub fn memory_bytes(&self) -> usize {
        let pasts = [&self.history, &self.dropped, &self.archived_in_other_kind].into_iter().flatten();
        let revision = 2 * size_of::<ArchivedRevision>() + map(&self.files) + self.changes.as_ref().map_or(0, changes);
        size_of::<Self>() + revision + map(&self.files) + pasts.map(past).sum::<usize>()
    }
}

fn past(past: &ArchivedRevision) -> usize {
    // A list may have room for twice as many revisions as it has.
    let entry = 2 * size_of::<ArchivedRevision>() + text(past.revision.as_str());
    entry + map(&past.files) + past.changes.as_ref().map_or(0, changes)
}

fn changes(changes: &Changes) -> usize {
    let names = [&changes.changed, &changes.added, &changes.removed].into_iter().flatten();
    text(changes.previous.as_str()) + names.map(|name| 4 * size_of::<String>() + text(name)).sum::<usize>()
}

fn map(map: &BTreeMap<String, Digest>) -> usize {
    let texts: usize = map.iter().map(|(key, value)| text(key) + text(value.as_str())).sum();
    texts + map.len().div_ceil(NODE_PAIRS) * NODE
}

fn text(text: &str) -> usize {
    text.len() + ALLOCATION
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn record(revisions: usize, files: usize, names: usize) -> String {
        let files: BTreeMap<String, String> =
            (0..files).map(|file| (format!("overrides-{file:02}"), "a".repeat(64))).collect();
        let names: Vec<String> = (0..names).map(|name| format!("flag-{name}")).collect();
        let past = |number: usize| {
            json!({
                "revision": format!("{number:012}"), "publishedAt": "2026-11-24T00:00:00Z", "files": files,
                "changes": {"previous": "0a1b", "count": names.len(), "changed": names},
            })
        };
        let history: Vec<Value> = (0..revisions).map(past).collect();
        let document = json!({"source": "s", "environment": "e", "features": 0, "segments": 0, "overrides": 0});
        let record = json!({
            "publishedAt": "2026-11-24T00:00:00Z", "document": document, "history": history, "files": files,
        });
        record.to_string()
    }

    #[test]
    fn memory_of_record_covers_its_allocations() {
        for (revisions, files, names) in [(0, 1, 0), (1, 1, 1), (5, 2, 10), (20, 48, 0), (20, 64, 10), (64, 1, 10)] {
            let text = record(revisions, files, names);
            let mut parsed: Option<Record> = None;
            let allocated = allocation_counter::measure(|| parsed = serde_json::from_str(&text).ok());
            let (allocated, counted) =
                (usize::try_from(allocated.bytes_current).unwrap(), parsed.unwrap().memory_bytes());
            let range = allocated..=3 * allocated + 4_096;
            assert!(range.contains(&counted), "{counted} for {allocated} bytes: {revisions}, {files}, {names}");
        }
    }
}
