//! Compiling (pure): from a document to the bytes that sidecars evaluate in place.
//!
//! Everything that takes judgement happens here, once a change: what a property refers to, what a value is as a number,
//! which automaton a regular expression is. What cannot be done is reported as a [`Finding`], and evaluates to false.

pub(crate) mod about;
mod chains;
mod condition;
pub(crate) mod digest;
pub mod document;
mod environment;
mod finding;
pub mod guard;
mod local_evaluation;
mod progress;
pub(crate) mod property;
pub mod prune;
pub(crate) mod python;
mod regex;
mod review;

use remora_snapshot::model::{self, EnvironmentFlags};
use remora_snapshot::{Revision, WriteError, files};

pub use finding::{Finding, MOST_FINDINGS};
pub use progress::Progress;
pub use remora_snapshot::File;
pub use remora_snapshot::model::EnvironmentFlags as Mode;
pub use remora_snapshot::model::{BooleanFlags, DisabledFlags, ObjectFlags, Ofrep};

use self::document::{Original, quoted};
use self::prune::Pruned;

/// What the compilation needs beside the document.
#[derive(Debug, Clone, Default)]
pub struct Options<'a> {
    /// The FeatureEnvironment's name.
    pub environment: &'a str,
    /// Keys that may see server-only features.
    pub server_keys: &'a [&'a str],
    /// What the answer without an identity applies.
    pub environment_flags: EnvironmentFlags,
    /// How flags are told to OpenFeature.
    pub ofrep: Ofrep,
    /// The document as it came, where it is served to SDKs that evaluate by themselves.
    pub document: Option<&'a Original>,
    /// Who hears what it is at.
    pub progress: Progress<'a>,
}

/// A compiled environment.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The core first, then overrides files, then the document's.
    pub files: Vec<File>,
    /// Names the content of all files.
    pub revision: Revision,
    /// What is in it.
    pub summary: Summary,
    /// What people should know of it.
    pub findings: Vec<Finding>,
}

/// How many findings go along with the bytes, for people who look into them.
const MOST_NOTES: usize = 50;

/// What is in a compiled environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Features that are served.
    pub features: usize,
    /// Segments that can change an answer.
    pub segments: usize,
    /// Identifiers with overrides of their own.
    pub identity_overrides: usize,
    /// Bytes of all files.
    pub bytes: usize,
}

/// Why a document cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A feature with variants has nothing to hash them with.
    #[error(
        "{place}: feature {} has variants but neither django_id nor featurestate_uuid, which their percentages are hashed with", quoted(.feature)
    )]
    Seed {
        /// Where.
        place: String,
        /// Which feature.
        feature: String,
    },
    /// Variants have no order.
    #[error(
        "{place}: a variant of feature {} has neither an id nor a uuid in mv_fs_value_uuid, by which variants are ordered", quoted(.feature)
    )]
    Order {
        /// Where.
        place: String,
        /// Which feature.
        feature: String,
    },
    /// A feature's type is none.
    #[error("{place}: the type of feature {} is longer than any type; types are STANDARD and MULTIVARIATE", quoted(.feature))]
    Kind {
        /// Where.
        place: String,
        /// Which feature.
        feature: String,
    },
    /// The document itself cannot be served.
    #[error("the document cannot be written for SDKs in local evaluation: {0}")]
    Document(String),
    /// It does not fit.
    #[error(transparent)]
    Size(#[from] WriteError),
}

/// Compiles a pruned document.
///
/// # Errors
/// If the document contradicts itself or does not fit; nothing is published then.
pub fn compile(pruned: &Pruned, options: &Options<'_>) -> Result<Compiled, Error> {
    compile_to_files_of(files::MAX_FILE_BYTES, pruned, options)
}

/// Compiles to files of at most so many bytes: outside of Kubernetes nothing says how large one may be.
///
/// # Errors
/// As [`compile`].
pub fn compile_to_files_of(bytes: usize, pruned: &Pruned, options: &Options<'_>) -> Result<Compiled, Error> {
    let (mut environment, mut findings) = environment::model(pruned, options)?;
    if let Some(original) = options.document {
        options.progress.at("compressing the document");
        environment.document = Some(local_evaluation::compress(original, pruned)?);
        findings.extend(local_evaluation::unseen(pruned));
    }
    environment.notes = findings.iter().take(MOST_NOTES).map(ToString::to_string).collect();
    options.progress.at("writing the snapshot");
    let written = remora_snapshot::write(&environment, bytes)?;
    Ok(Compiled {
        summary: summary(&environment, &written.files),
        files: written.files,
        revision: written.revision,
        findings,
    })
}

fn summary(environment: &model::Environment, files: &[File]) -> Summary {
    Summary {
        features: environment.features.iter().filter(|feature| feature.served).count(),
        segments: environment.segments.len(),
        identity_overrides: environment.identity_overrides.len(),
        bytes: files.iter().map(|file| file.bytes.len()).sum(),
    }
}
