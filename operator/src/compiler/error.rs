//! Why there is no snapshot.

use std::io;

use serde::{Deserialize, Serialize};

/// Why a document was refused by the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// It does not fit into the files of a snapshot.
    Capacity,
    /// It contradicts itself.
    Contradiction,
}

/// Why there is no snapshot of a document.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are no document.
    #[error("the source holds no usable environment document: {0}")]
    Malformed(String),
    /// The pages are of different times.
    #[error("the environment changed between two pages of its document")]
    ChangedBetweenPages,
    /// The compiler refuses the document.
    #[error("the document cannot be compiled: {problem}")]
    Refused {
        /// In which way.
        kind: Refusal,
        /// What is wrong, and where.
        problem: String,
    },
    /// The process needed more memory than it may have.
    #[error(
        "the document cannot be compiled: that takes more than {limit} MiB of memory{place}; simplify what it was at (regular expressions, long lists of IN), or leave features and identity overrides out by spec.prune"
    )]
    Memory {
        /// Its bound, in MiB.
        limit: u64,
        /// Where it was.
        place: Place,
    },
    /// The process needed more time than it may have.
    #[error(
        "the document cannot be compiled: that takes more than {limit} s of {clock}{place}; simplify what it was at (regular expressions, JSONPaths, long lists of IN), or leave features and identity overrides out by spec.prune"
    )]
    Time {
        /// Its bound, in seconds.
        limit: u64,
        /// Of which time.
        clock: &'static str,
        /// Where it was.
        place: Place,
    },
    /// The process ended in another way than it should.
    #[error(
        "the document cannot be compiled: its process {how}{place}; simplify what it was at, and report this as a bug of Remora"
    )]
    Crashed {
        /// In which way.
        how: String,
        /// Where it was.
        place: Place,
    },
    /// The process could not be started.
    #[error("the process that compiles documents cannot be started: {0}; it is tried again")]
    NotStarted(io::Error),
}

/// What a child was at when it ended; nothing if it had not begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(pub(super) String);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", and it was at: {}", self.0) }
    }
}

impl Error {
    /// One word: the reason in conditions and Events, and a metric's label.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "ParseError",
            Self::ChangedBetweenPages => "PagesChanged",
            Self::Refused { kind: Refusal::Capacity, .. } => "CapacityExceeded",
            Self::Refused { kind: Refusal::Contradiction, .. } => "CompileError",
            Self::Memory { .. } => "CompileOutOfMemory",
            Self::Time { .. } => "CompileOutOfTime",
            Self::Crashed { .. } => "CompileCrashed",
            Self::NotStarted(_) => "CompileNotStarted",
        }
    }

    /// Whether the document took all that a process may have, or made it end: trying again costs as much again.
    #[must_use]
    pub fn is_costly(&self) -> bool {
        matches!(self, Self::Memory { .. } | Self::Time { .. } | Self::Crashed { .. })
    }
}
