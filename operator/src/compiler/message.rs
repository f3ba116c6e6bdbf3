//! What parent and child tell each other.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::Refusal;
use crate::compile::about::About;
use crate::{
    api::{Finding, PruneRules, Serve},
    compile::{File, Summary},
};

/// Characters of a text of the child that are repeated to people.
const SHOWN: usize = 1000;

/// Everything that compiling takes but the document.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The FeatureEnvironment's name.
    pub environment: String,
    /// Keys that may see server-only features.
    pub server_keys: Vec<String>,
    /// What to leave out.
    pub prune: PruneRules,
    /// What to serve, and how.
    pub serve: Serve,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("environment", &self.environment).finish_non_exhaustive()
    }
}

/// What the parent sends before the pages.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) task: Task,
    /// The bytes of each page.
    pub(super) pages: Vec<usize>,
}

/// What the child answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The files follow.
    Compiled(Box<Contents>),
    /// The bytes are no document.
    Malformed(String),
    /// The pages are of different times.
    ChangedBetweenPages,
    /// The document contradicts itself, or does not fit.
    Refused { kind: Refusal, problem: String },
}

/// What was compiled, without the bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Contents {
    pub(super) revision: String,
    pub(super) summary: Counts,
    pub(super) findings: Vec<Finding>,
    pub(super) finding_count: usize,
    pub(super) about: About,
    /// Names and bytes of the files, in the order in which they follow.
    pub(super) files: Vec<(String, usize)>,
}

/// [`Summary`], as it is sent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Counts {
    features: usize,
    segments: usize,
    identity_overrides: usize,
    bytes: usize,
}

impl From<Summary> for Counts {
    fn from(summary: Summary) -> Self {
        let Summary { features, segments, identity_overrides, bytes } = summary;
        Self { features, segments, identity_overrides, bytes }
    }
}

impl From<Counts> for Summary {
    fn from(counts: Counts) -> Self {
        let Counts { features, segments, identity_overrides, bytes } = counts;
        Self { features, segments, identity_overrides, bytes }
    }
}

/// A compiled document.
#[derive(Debug)]
pub struct Response {
    /// The core first, then overrides files, then the document's.
    pub files: Vec<File>,
    /// Names the content of all files.
    pub revision: String,
    /// What is in it.
    pub summary: Summary,
    /// The first findings: what people should know of it.
    pub findings: Vec<Finding>,
    /// How many findings there are.
    pub finding_count: usize,
    /// What the document says of itself.
    pub about: About,
}

impl Response {
    pub(super) fn new(contents: Contents, files: Vec<File>) -> Self {
        let Contents { revision, summary, findings, finding_count, about, files: _ } = contents;
        Self { files, revision, summary: summary.into(), findings, finding_count, about }
    }
}

/// A text of the child as it is repeated to people: bounded in length, and without control characters.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String =
        text.chars().take(SHOWN).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_child_with_control_characters_is_shown_without_them() {
        assert_eq!(shown("a\nb\u{1b}[31m"), "a\u{fffd}b\u{fffd}[31m");
        assert_eq!(shown(&"x".repeat(SHOWN + 5)).chars().count(), SHOWN + 1);
    }

    #[test]
    fn task_printed_for_debugging_has_no_keys() {
        let task = Task { server_keys: vec!["ser.canary".to_owned()], ..Task::default() };
        assert!(!format!("{task:?}").contains("canary"));
    }
}
