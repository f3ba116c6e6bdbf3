//! Messages between parent and child.

use std::fmt;

use remora_compile::about::DocumentStats;
use remora_compile::{File, SnapshotCounts};
use serde::{Deserialize, Serialize};

use super::error::RefusalKind;
use crate::api::{Finding, PruneRules, Serve};

/// Largest number of characters of a child's text that a message repeats.
pub(super) const SHOWN: usize = 1000;

/// Parameters of a compilation: everything except the document.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Name of the FeatureEnvironment.
    pub environment: String,
    /// Server-side keys, whose requests get server-only features.
    pub server_keys: Vec<String>,
    /// Rules for features and overrides to leave out.
    pub prune: PruneRules,
    /// Options of what sidecars serve.
    pub serve: Serve,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("environment", &self.environment).finish_non_exhaustive()
    }
}

/// First part of a request, before the pages.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) task: Task,
    /// Size of each page in bytes.
    pub(super) pages: Vec<usize>,
}

/// Answer of the child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ChildAnswer {
    /// The document is compiled. The files follow.
    Compiled(Box<CompiledHeader>),
    /// The bytes are not a valid document.
    Malformed(String),
    /// The pages come from different versions of the document.
    ChangedBetweenPages,
    /// The document contradicts itself, or does not fit into a snapshot.
    Refused { kind: RefusalKind, problem: String },
}

/// Description of a compiled snapshot, without the bytes of its files.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CompiledHeader {
    pub(super) revision: String,
    pub(super) summary: SnapshotCounts,
    pub(super) findings: Vec<Finding>,
    pub(super) finding_count: usize,
    pub(super) about: DocumentStats,
    /// Name and size in bytes of each file, in the order in which the files follow.
    pub(super) files: Vec<(String, usize)>,
}

/// Compiled document.
#[derive(Debug)]
pub struct Response {
    /// Files in this order: the core, override shards, parts of the document.
    pub files: Vec<File>,
    /// Revision, which identifies the content of all files.
    pub revision: String,
    /// Counts of the snapshot's contents.
    pub summary: SnapshotCounts,
    /// First findings: problems of the document that its owners should know.
    pub findings: Vec<Finding>,
    /// Number of all findings.
    pub finding_count: usize,
    /// Facts that the document states about itself.
    pub about: DocumentStats,
}

impl Response {
    pub(super) fn new(contents: CompiledHeader, files: Vec<File>) -> Self {
        let CompiledHeader { revision, summary, findings, finding_count, about, files: _ } = contents;
        Self { files, revision, summary, findings, finding_count, about }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_task_has_no_keys() {
        let task = Task { server_keys: vec!["ser.canary".to_owned()], ..Task::default() };
        assert!(!format!("{task:?}").contains("canary"));
    }
}
