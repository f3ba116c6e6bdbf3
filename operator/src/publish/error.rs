//! Errors of a publication.

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
    /// The namespace has used up its share of the memory for snapshots.
    #[error(
        "the snapshot takes {bytes} bytes, and the snapshots of this namespace have used up its share of the {limit} bytes that the controller keeps for all namespaces: delete environments that nobody uses, leave out features or overrides with spec.prune, or ask the administrator to raise controller.maxSnapshotBytes and the controller's memory limit"
    )]
    OutOfMemory {
        /// Memory that the snapshot takes, in bytes.
        bytes: usize,
        /// Memory for the snapshots of all namespaces, in bytes.
        limit: usize,
    },
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
    #[error(
        "{object} cannot be read: {problem}: check the API server, and the controller's permissions; the operator tries again"
    )]
    ReadFailed {
        /// Kind and name of the object.
        object: String,
        /// Message of the API server, or reason why there is none.
        problem: String,
    },
    /// The API server refused the write, or did not answer.
    #[error(
        "{object} cannot be written: {problem}: check the API server, and the controller's permissions; the operator tries again"
    )]
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
            Self::Indivisible(_) => Reason::CoreIndivisible,
            Self::OutOfMemory { .. } => Reason::SnapshotMemoryFull,
            Self::QuotaExceeded { .. } => Reason::QuotaExceeded,
            Self::NamespaceTerminating => Reason::NamespaceTerminating,
            Self::ReadFailed { .. } => Reason::ReadFailed,
            Self::WriteFailed { .. } => Reason::WriteFailed,
        }
    }
}
