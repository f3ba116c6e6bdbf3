//! Errors of the steps: reason, message, log and schedule of the next attempt.

use remora_compile::prune;

use super::{
    environment::Environment,
    report::{self, Reported},
};
use crate::{
    api::Reason,
    compiler,
    controller::status::{Failure, FetchOutcome},
    publish,
    source::{back_off::Retry, fetch},
};

/// Step of a reconciliation that failed, with its error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name of the FeatureEnvironment cannot be part of object names.
    #[error(transparent)]
    Name(#[from] crate::api::names::InvalidEnvironmentName),
    /// The environment is to be published as Secrets, and the administrator allows none.
    #[error(
        "spec.delivery.as is Secret, and the chart's value delivery.secrets is false: set spec.delivery.as to ConfigMap, or ask the administrator to allow published Secrets"
    )]
    SecretsNotAllowed,
    /// The prune rules contain an invalid pattern.
    #[error(transparent)]
    Prune(#[from] prune::Error),
    /// The source returned no document.
    #[error(transparent)]
    Fetch(Box<fetch::Error>),
    /// The document cannot be compiled.
    #[error(transparent)]
    Compile(#[from] compiler::Error),
    /// The snapshot cannot be published.
    #[error(transparent)]
    Publish(#[from] publish::Error),
    /// The status does not say yet what is about to be published.
    #[error(transparent)]
    Report(#[from] report::Error),
}

impl From<fetch::Error> for Error {
    fn from(error: fetch::Error) -> Self {
        Self::Fetch(Box::new(error))
    }
}

impl Error {
    /// Returns the reason in conditions, Events and metrics.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Name(_) => Reason::InvalidName,
            Self::SecretsNotAllowed => Reason::DeliveryNotAllowed,
            Self::Prune(_) => Reason::InvalidPattern,
            Self::Fetch(error) => error.reason(),
            Self::Compile(error) => error.reason(),
            Self::Publish(error) => error.reason(),
            Self::Report(_) => Reason::ReportFailed,
        }
    }

    /// Returns when to retry the failed step.
    pub(super) fn retry(&self) -> Retry {
        match self {
            Self::Name(_) | Self::SecretsNotAllowed | Self::Prune(_) => Retry::AfterEdit,
            Self::Fetch(error) => error.retry(),
            Self::Compile(error) if error.is_costly() => Retry::Costly,
            Self::Publish(publish::Error::OutOfMemory { .. }) => Retry::Costly,
            // The namespace takes no object any more, and the environment goes with it.
            Self::Publish(publish::Error::NamespaceTerminating) => Retry::AfterEdit,
            Self::Compile(_) | Self::Publish(_) | Self::Report(_) => Retry::Backoff,
        }
    }

    /// Returns the failure for conditions and Events.
    pub(super) fn to_failure(&self) -> Failure {
        Failure { reason: self.reason(), message: self.to_string() }
    }

    /// Returns the outcome of the fetch that follows from a failed fetch or compilation.
    pub(super) fn to_fetch(&self) -> FetchOutcome {
        match self {
            Self::Name(_) | Self::SecretsNotAllowed | Self::Prune(_) => FetchOutcome::NotAccepted(self.to_failure()),
            Self::Fetch(error) if error.is_fault_of_spec() => FetchOutcome::NotAccepted(self.to_failure()),
            _ if self.is_of_document() => FetchOutcome::Done,
            _ => FetchOutcome::Failed(self.to_failure()),
        }
    }

    /// True if the source returned a document, and the failure is of a later step.
    pub(super) fn is_of_document(&self) -> bool {
        match self {
            Self::Compile(error) => {
                !matches!(error, compiler::Error::Malformed(_) | compiler::Error::ChangedBetweenPages)
            }
            Self::Publish(_) | Self::Report(_) => true,
            Self::Name(_) | Self::SecretsNotAllowed | Self::Prune(_) | Self::Fetch(_) => false,
        }
    }

    /// Logs the failure: as a warning if the status does not have its reason yet. A namespace that is being deleted is
    /// no fault.
    pub(super) fn log(&self, environment: &Environment<'_>, reported: &Reported) {
        let (namespace, environment, reason) = (environment.namespace(), &environment.name.name, self.reason());
        let is_ending = matches!(self, Self::Publish(publish::Error::NamespaceTerminating));
        if is_ending || reported.has(reason) {
            tracing::debug!(namespace, environment, %reason, error = %self, "the reconciliation failed again");
        } else {
            tracing::warn!(namespace, environment, %reason, error = %self, "the reconciliation failed: it is retried");
        }
    }
}
