//! Compiler (pure): turns a document into the bytes that sidecars evaluate in place.
//!
//! Everything that needs a decision happens here, once per change: the place that a property refers to, the numeric
//! form of a value, the automaton of a regular expression. A condition that cannot be compiled is reported as a
//! [`Finding`] and evaluates to false.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod about;
mod chains;
mod condition;
pub mod digest;
pub mod document;
mod environment;
mod experiments;
mod finding;
mod local_evaluation;
pub mod name;
mod nearly_full;
mod priorities;
mod progress;
pub(crate) mod property;
pub mod prune;
pub(crate) mod python;
mod regex;
mod review;
mod variants;

use remora_snapshot::model;
use remora_snapshot::{Revision, WriteError, files};
use serde::{Deserialize, Serialize};

pub use finding::{Finding, MOST_FINDINGS};
pub use nearly_full::is_nearly_full;
pub use progress::Progress;
pub use remora_snapshot::File;
pub use remora_snapshot::model::{BooleanFlags, DisabledFlags, EnvironmentFlags, ObjectFlags, Ofrep};
pub use review::listed_of;

use self::document::{Original, quoted};
use self::prune::Pruned;

/// Inputs of the compiler besides the document.
#[derive(Debug, Clone, Default)]
pub struct Options<'a> {
    /// Name of the FeatureEnvironment.
    pub environment: &'a str,
    /// Server-side keys, which may see server-only features.
    pub server_keys: &'a [&'a str],
    /// Mode of the answer without an identity: with segments or without.
    pub environment_flags: EnvironmentFlags,
    /// Form of flags in OFREP answers.
    pub ofrep: Ofrep,
    /// Original document, if sidecars serve it to SDKs in local evaluation.
    pub document: Option<&'a Original>,
    /// Listener for the compiler's progress.
    pub progress: Progress<'a>,
}

/// Compiled environment.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// Files in this order: the core, overrides files, the document's files.
    pub files: Vec<File>,
    /// Revision, which identifies the content of all files.
    pub revision: Revision,
    /// Counts of the compiled environment.
    pub summary: SnapshotCounts,
    /// Findings, for the authors of the environment.
    pub findings: Vec<Finding>,
}

/// Maximum number of findings that the snapshot contains as notes for people who inspect it.
const MOST_NOTES: usize = 50;

/// Counts of a compiled environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SnapshotCounts {
    /// Number of features served.
    pub features: usize,
    /// Number of segments that can change an answer.
    pub segments: usize,
    /// Number of identifiers with overrides.
    pub identity_overrides: usize,
    /// Size of all files in bytes.
    pub bytes: usize,
}

/// Largest number of characters in the name of a segment. Flagsmith has the same limit.
pub const LONGEST_SEGMENT_NAME: usize = 2_000;

/// Reason why a document cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A feature with variants has no seed for the hash that chooses among them.
    #[error(
        "{place}: feature {} has variants but neither django_id nor featurestate_uuid, which their percentages are hashed with: save the feature again in Flagsmith", quoted(.feature)
    )]
    Seed {
        /// Path of the feature state in the document.
        place: String,
        /// Name of the feature.
        feature: String,
    },
    /// A variant has no id and no valid uuid, so the variants have no order.
    #[error(
        "{place}: a variant of feature {} has neither an id nor a uuid in mv_fs_value_uuid, by which variants are ordered: save the feature again in Flagsmith", quoted(.feature)
    )]
    Order {
        /// Path of the feature state in the document.
        place: String,
        /// Name of the feature.
        feature: String,
    },
    /// A feature's type is longer than any type of Flagsmith.
    #[error(
        "{place}: the type of feature {} is too long; types are STANDARD and MULTIVARIATE: correct the feature's type in the document", quoted(.feature)
    )]
    Kind {
        /// Path of the feature state in the document.
        place: String,
        /// Name of the feature.
        feature: String,
    },
    /// The name of a segment is longer than Flagsmith allows. Every override of the segment shows the name.
    #[error(
        "{place}: the name of segment {} has {characters} characters, and Flagsmith allows {LONGEST_SEGMENT_NAME}: write a shorter one", quoted(.segment)
    )]
    SegmentName {
        /// Path of the segment in the document.
        place: String,
        /// Name of the segment.
        segment: String,
        /// Number of its characters.
        characters: usize,
    },
    /// Two features have one id, by which identity overrides name their features.
    #[error("{place}: feature {} has the id {id} of another feature; give each feature its own id", quoted(.feature))]
    Id {
        /// Path of the feature state in the document.
        place: String,
        /// Name of the feature.
        feature: String,
        /// Id of both features.
        id: i64,
    },
    /// The original document cannot be written.
    #[error("cannot prepare the document for SDKs in local evaluation: {0}")]
    Document(String),
    /// The snapshot exceeds a size limit.
    #[error(transparent)]
    Size(#[from] WriteError),
}

/// Compiles a pruned document.
///
/// # Errors
/// The document contradicts itself or exceeds a size limit. Nothing is published then.
pub fn compile(pruned: &Pruned, options: &Options<'_>) -> Result<Compiled, Error> {
    compile_to_files_of(files::MAX_FILE_BYTES, pruned, options)
}

/// Compiles a pruned document to files of at most `bytes` bytes each. Outside of Kubernetes, no object size bounds a
/// file.
///
/// # Errors
/// Those of [`compile`].
pub fn compile_to_files_of(bytes: usize, pruned: &Pruned, options: &Options<'_>) -> Result<Compiled, Error> {
    let (mut environment, mut findings) = environment::model(pruned, options)?;
    if let Some(original) = options.document {
        options.progress.at("compressing the document");
        environment.document = Some(local_evaluation::compress(original, pruned)?);
        findings.extend(local_evaluation::hidden_features(pruned));
    }
    environment.notes = findings.iter().take(MOST_NOTES).map(ToString::to_string).collect();
    options.progress.at("writing the snapshot");
    let written = remora_snapshot::write(&environment, bytes)?;
    // Before the others, of which only some are kept.
    findings.splice(0..0, nearly_full::findings(&written.files, bytes));
    Ok(Compiled {
        summary: summary(&environment, &written.files),
        files: written.files,
        revision: written.revision,
        findings,
    })
}

fn summary(environment: &model::Environment, files: &[File]) -> SnapshotCounts {
    SnapshotCounts {
        features: environment.features.iter().filter(|feature| feature.served).count(),
        segments: environment.segments.len(),
        identity_overrides: environment.identity_overrides.len(),
        bytes: files.iter().map(|file| file.bytes.len()).sum(),
    }
}
