//! Reasons why a document has no snapshot.

use std::io;

use serde::{Deserialize, Serialize};

use crate::api::Reason;

/// Kind of a compiler error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// The document does not fit into the files of a snapshot.
    Capacity,
    /// The document contradicts itself.
    Contradiction,
}

/// Reason why a document has no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are not a valid document.
    #[error("the source holds no usable environment document: {0}")]
    Malformed(String),
    /// The pages come from different versions of the document.
    #[error("the environment changed between two pages of its document")]
    ChangedBetweenPages,
    /// The compiler rejects the document.
    #[error("the document cannot be compiled: {problem}")]
    Refused {
        /// Kind of the error.
        kind: RefusalKind,
        /// Description of the problem and its place in the document.
        problem: String,
    },
    /// The child exceeded its memory bound.
    #[error(
        "the document cannot be compiled: that takes more than {limit} MiB of memory{place}; simplify what it was at (regular expressions, long lists of IN), or leave features and identity overrides out by spec.prune"
    )]
    Memory {
        /// Bound in MiB.
        limit: u64,
        /// Part of the document that the child was compiling.
        place: DocumentPlace,
    },
    /// The child exceeded a time bound.
    #[error(
        "the document cannot be compiled: that takes more than {limit} s of {clock}{place}; simplify what it was at (regular expressions, JSONPaths, long lists of IN), or leave features and identity overrides out by spec.prune"
    )]
    Time {
        /// Bound in seconds.
        limit: u64,
        /// Kind of the time, for the message: CPU time or wall-clock time.
        clock: &'static str,
        /// Part of the document that the child was compiling.
        place: DocumentPlace,
    },
    /// The child ended without an answer for another reason.
    #[error(
        "the document cannot be compiled: its process {how}{place}; simplify what it was at, and report this as a bug of Remora"
    )]
    Crashed {
        /// Way in which the child ended, for the message.
        how: String,
        /// Part of the document that the child was compiling.
        place: DocumentPlace,
    },
    /// The child could not be started.
    #[error("the process that compiles documents cannot be started: {0}; it is tried again")]
    NotStarted(io::Error),
}

/// Last part of the document that a child reported before it ended. Empty if it had reported none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentPlace(pub(super) String);

impl std::fmt::Display for DocumentPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", and it was at: {}", self.0) }
    }
}

impl Error {
    /// Returns the reason in conditions, Events and metrics.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Malformed(_) => Reason::ParseError,
            Self::ChangedBetweenPages => Reason::PagesChanged,
            Self::Refused { kind: RefusalKind::Capacity, .. } => Reason::CapacityExceeded,
            Self::Refused { kind: RefusalKind::Contradiction, .. } => Reason::CompileError,
            Self::Memory { .. } => Reason::CompileOutOfMemory,
            Self::Time { .. } => Reason::CompileOutOfTime,
            Self::Crashed { .. } => Reason::CompileCrashed,
            Self::NotStarted(_) => Reason::CompileNotStarted,
        }
    }

    /// True if the compilation exceeded a bound or crashed: another attempt costs as much again.
    #[must_use]
    pub fn is_costly(&self) -> bool {
        matches!(self, Self::Memory { .. } | Self::Time { .. } | Self::Crashed { .. })
    }
}
