use remora_snapshot::ReadError;

use crate::api::Reason;

/// Reason why a snapshot is not published, or only in part. The previously published snapshot stays.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object of another owner has the name.
    #[error(
        "{0} exists and is not Remora's: delete or rename it, or rename this FeatureEnvironment; it is not touched"
    )]
    Conflict(String),
    /// A file is larger than its objects may be.
    #[error(
        "{file} has {size} bytes, and its objects carry at most {limit}: leave out features or overrides with spec.prune"
    )]
    CapacityExceeded {
        /// Name of the file.
        file: String,
        /// Size of the file in bytes.
        size: usize,
        /// Largest size of a file in bytes.
        limit: usize,
    },
    /// The core cannot be divided into parts.
    #[error("the compiled core cannot be divided into objects: {0}; report this as a bug of Remora")]
    Indivisible(#[from] ReadError),
    /// The namespace's quota is used up.
    #[error("{object} does not fit the namespace's quota ({problem}): raise the quota, or delete what is not needed")]
    QuotaExceeded {
        /// Kind and name of the object.
        object: String,
        /// Message of the API server.
        problem: String,
    },
    /// The namespace is being deleted.
    #[error("the namespace is being deleted: nothing is published into it")]
    NamespaceTerminating,
    /// The API server did not return a published object.
    #[error("{object} cannot be read: {problem}")]
    ReadFailed {
        /// Kind and name of the object.
        object: String,
        /// Message of the API server, or reason why there is none.
        problem: String,
    },
    /// The API server refused the write, or did not answer.
    #[error("{object} cannot be written: {problem}")]
    WriteFailed {
        /// Kind and name of the object.
        object: String,
        /// Message of the API server, or reason why there is none.
        problem: String,
    },
}

impl Error {
    /// Returns the reason in conditions, Events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Conflict(_) => Reason::Conflict,
            Self::CapacityExceeded { .. } => Reason::CapacityExceeded,
            Self::Indivisible(_) => Reason::CompileCrashed,
            Self::QuotaExceeded { .. } => Reason::QuotaExceeded,
            Self::NamespaceTerminating => Reason::NamespaceTerminating,
            Self::ReadFailed { .. } => Reason::ReadFailed,
            Self::WriteFailed { .. } => Reason::WriteFailed,
        }
    }
}
