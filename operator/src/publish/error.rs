/// Why a snapshot is not, or not wholly, published. What was published before stays.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else's object has the name.
    #[error(
        "{0} exists and is not Remora's: delete or rename it, or rename this FeatureEnvironment; it is not touched"
    )]
    Conflict(String),
    /// A file is larger than an object may be.
    #[error(
        "{file} has {size} bytes, and an object carries at most {limit}: leave out features or overrides with spec.prune"
    )]
    CapacityExceeded {
        /// The file.
        file: String,
        /// Its size.
        size: usize,
        /// The bound.
        limit: usize,
    },
    /// The namespace's quota is used up.
    #[error("{object} does not fit the namespace's quota ({problem}): raise the quota, or delete what is not needed")]
    QuotaExceeded {
        /// The object.
        object: String,
        /// What the API server says.
        problem: String,
    },
    /// The namespace is on its way out.
    #[error("the namespace is being deleted: nothing is published into it")]
    NamespaceTerminating,
    /// The API server refused, or did not answer.
    #[error("{object} cannot be written: {problem}")]
    WriteFailed {
        /// The object.
        object: String,
        /// What the API server says.
        problem: String,
    },
}

impl Error {
    /// The variant's name: the reason in conditions and Events, and a metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "Conflict",
            Self::CapacityExceeded { .. } => "CapacityExceeded",
            Self::QuotaExceeded { .. } => "QuotaExceeded",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::WriteFailed { .. } => "WriteFailed",
        }
    }
}
