use crate::{
    compile::prune,
    compiler,
    controller::report::{Facts, Failure, Fetch, Publication},
    publish,
    source::fetch::{self, Retry},
};

/// Which step failed, and why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object cannot have the name of its objects.
    #[error(transparent)]
    Name(#[from] crate::api::names::InvalidEnvironmentName),
    /// The rules for pruning cannot be read.
    #[error(transparent)]
    Prune(#[from] prune::Error),
    /// There is no document.
    #[error(transparent)]
    Fetch(#[from] fetch::Error),
    /// There is no snapshot of the document.
    #[error(transparent)]
    Compile(#[from] compiler::Error),
    /// The snapshot cannot be published.
    #[error(transparent)]
    Publish(#[from] publish::Error),
}

impl Error {
    /// One word: the reason in conditions and Events, and a metric's label.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Name(_) => "InvalidName",
            Self::Prune(_) => "InvalidPattern",
            Self::Fetch(error) => error.reason(),
            Self::Compile(error) => error.reason(),
            Self::Publish(error) => error.reason(),
        }
    }

    /// Whether the namespace is going, which is nobody's fault and soon over.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self, Self::Publish(publish::Error::NamespaceTerminating))
    }

    /// When to try again.
    pub(super) fn retry(&self) -> Retry {
        match self {
            Self::Name(_) | Self::Prune(_) => Retry::Edited,
            Self::Fetch(error) => error.retry(),
            Self::Compile(error) if error.is_costly() => Retry::Costly,
            Self::Compile(_) | Self::Publish(_) => Retry::Backoff,
        }
    }

    /// Writes down where the failure belongs.
    pub(super) fn note(&self, facts: &mut Facts) {
        let failure = Failure { reason: self.reason(), message: self.to_string() };
        match self {
            Self::Name(_) | Self::Prune(_) => facts.fetch = Fetch::Refused(failure),
            Self::Fetch(error) if error.is_refusal() => facts.fetch = Fetch::Refused(failure),
            Self::Fetch(_) | Self::Compile(compiler::Error::Malformed(_) | compiler::Error::ChangedBetweenPages) => {
                facts.fetch = Fetch::Failed(failure);
            }
            Self::Compile(_) | Self::Publish(_) => facts.publication = Publication::Failed(failure),
        }
    }
}
