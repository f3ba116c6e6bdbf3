//! Failures of the plugin. Each has an exit code.

use std::{fmt, io};

use crate::api_call::CallError;

/// A right that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// Verb, such as `get`.
    pub verb: &'static str,
    /// Resource with its group, such as `featureenvironments.remora.dev`.
    pub resource: String,
    /// Namespace. `None` for all namespaces, or for a resource of the cluster.
    pub namespace: Option<String>,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, resource, namespace } = self;
        match namespace {
            Some(namespace) => write!(f, "{verb} {resource} in namespace {namespace}"),
            None => write!(f, "{verb} {resource} in the cluster"),
        }
    }
}

/// Reason why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line names something that does not exist or cannot be meant.
    #[error("{0}")]
    Usage(String),
    /// The API server refused a request.
    #[error("missing right: {right}. The API server says: {message}. Ask an administrator for this right")]
    Forbidden {
        /// Right that the request needs.
        right: Right,
        /// Answer of the API server.
        message: String,
    },
    /// The API server does not know who asks.
    #[error("the API server does not accept the credentials: {0}. Log in again, or set --context or --kubeconfig")]
    Unauthenticated(String),
    /// The cluster has no FeatureEnvironments.
    #[error("the cluster does not know FeatureEnvironments: install Remora's chart")]
    NotInstalled,
    /// The API server gave no answer, or an unusable one.
    #[error("cannot {right}: {message}")]
    Unanswered {
        /// The request.
        right: Right,
        /// Cause.
        message: String,
    },
    /// The kubeconfig cannot be used.
    #[error("cannot connect to a cluster: {0}. Set KUBECONFIG or --kubeconfig, and --context")]
    Connection(String),
    /// Objects of the cluster are no snapshot that this version can read.
    #[error("{0}")]
    Unreadable(String),
    /// The answer cannot be written.
    #[error("cannot write the answer: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// Returns the failure for a revision that is none of those that are `kept`.
    pub(super) fn not_kept(revision: &str, kept: &[&str]) -> Self {
        Self::Usage(match kept {
            [] => format!("revision {revision:?} is not kept: no revision is published yet"),
            _ => format!("revision {revision:?} is not kept: name one of {}", kept.join(", ")),
        })
    }

    /// Returns the exit code: 2 for a wrong command line, else 3.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Usage(_)) { 2 } else { 3 }
    }

    /// Classifies an error of a request.
    pub(super) fn of(error: CallError, right: Right) -> Self {
        match error {
            CallError::Refused(status) if status.code == 401 => Self::Unauthenticated(status.message),
            CallError::Refused(status) if status.code == 403 => Self::Forbidden { right, message: status.message },
            CallError::Refused(status) if status.code == 404 && right.resource.ends_with(".remora.dev") => {
                Self::NotInstalled
            }
            error => Self::Unanswered { right, message: error.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn failure(code: u16, resource: &str) -> Failure {
        let right = Right { verb: "get", resource: resource.to_owned(), namespace: Some("shop".to_owned()) };
        let status = Status { code, message: "no".to_owned(), ..Status::default() };
        Failure::of(CallError::Refused(Box::new(status)), right)
    }

    #[test]
    fn refused_request_names_missing_right() {
        let refused = failure(403, "configmaps");
        assert!(refused.to_string().starts_with("missing right: get configmaps in namespace shop."), "{refused}");
        assert_eq!(refused.exit_code(), 3);
        let unknown = failure(401, "pods");
        assert!(unknown.to_string().contains("Log in again") && unknown.exit_code() == 3, "{unknown}");
        assert!(matches!(failure(500, "pods"), Failure::Unanswered { .. }));
        assert!(matches!(failure(404, "featureenvironments.remora.dev"), Failure::NotInstalled));
        assert_eq!(Failure::Usage("no".to_owned()).exit_code(), 2);
    }
}
