use crate::{
    compile::prune,
    compiler,
    controller::report::{Facts, Failure, Fetch, Publication},
    publish,
    source::fetch::{self, Retry},
};

/// Step of a reconciliation that failed, with its error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name of the FeatureEnvironment cannot be part of object names.
    #[error(transparent)]
    Name(#[from] crate::api::names::InvalidEnvironmentName),
    /// The prune rules contain an invalid pattern.
    #[error(transparent)]
    Prune(#[from] prune::Error),
    /// The source returned no document.
    #[error(transparent)]
    Fetch(#[from] fetch::Error),
    /// The document cannot be compiled.
    #[error(transparent)]
    Compile(#[from] compiler::Error),
    /// The snapshot cannot be published.
    #[error(transparent)]
    Publish(#[from] publish::Error),
}

impl Error {
    /// Returns the reason in conditions and Events, in one word. It is also a metric's label.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Name(_) => "InvalidName",
            Self::Prune(_) => "InvalidPattern",
            Self::Fetch(error) => error.reason(),
            Self::Compile(error) => error.reason(),
            Self::Publish(error) => error.reason(),
        }
    }

    /// True if the namespace is being deleted. That is no fault and ends soon.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self, Self::Publish(publish::Error::NamespaceTerminating))
    }

    /// Returns when to retry the failed step.
    pub(super) fn retry(&self) -> Retry {
        match self {
            Self::Name(_) | Self::Prune(_) => Retry::Edited,
            Self::Fetch(error) => error.retry(),
            Self::Compile(error) if error.is_costly() => Retry::Costly,
            Self::Compile(_) | Self::Publish(_) => Retry::Backoff,
        }
    }

    /// Stores the failure in the fact of the step that it belongs to.
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
