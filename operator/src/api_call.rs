//! Bounds each call to the API server in time. The client itself has no timeout, because watches need none, and it
//! repeats some refused requests for minutes.

use std::time::Duration;

use kube::core::Status;
use tokio::time::timeout;

/// Error of a call to the API server. Callers name the call.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The API server refused the request.
    #[error("{}", .0.message)]
    Refused(Box<Status>),
    /// There is no usable answer: the API server cannot be reached, or its answer cannot be read.
    #[error(transparent)]
    Unanswered(kube::Error),
    /// The API server did not answer within this time.
    #[error("the API server did not answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused(status),
            error => Self::Unanswered(error),
        }
    }
}

impl CallError {
    /// True if a test of a JSON patch failed, because the object has changed since it was read. Admission may refuse a
    /// request with the same code.
    pub(crate) fn is_unprocessable(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code == 422)
    }

    /// True if the API server refused to create an object because its namespace is being deleted.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        let Self::Refused(status) = self else { return false };
        status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// True if another writer created or changed the object first.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(status) if status.is_conflict() || status.is_already_exists())
    }
}

/// Runs a call for at most this time.
///
/// # Errors
/// The call failed, or has no result within the time.
pub(crate) async fn within<T>(limit: Duration, call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    Ok(timeout(limit, call).await.map_err(|_| CallError::Timeout(limit))??)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    async fn failed(limit: Duration, call: impl Future<Output = kube::Result<()>>) -> CallError {
        within(limit, call).await.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn call_without_answer_fails_after_its_time() {
        let late = failed(Duration::from_secs(10), pending()).await;
        assert_eq!(late.to_string(), "the API server did not answer within 10 s");
        let late = failed(Duration::from_millis(500), pending()).await;
        assert_eq!(late.to_string(), "the API server did not answer within 0.5 s");
    }

    #[tokio::test]
    async fn refusal_has_message_of_api_server() {
        let status = Status::failure("the object has been modified", "Conflict").with_code(409);
        let refused = failed(Duration::from_secs(10), ready(Err(kube::Error::Api(status.boxed())))).await;
        assert!(refused.is_conflict(), "{refused:?}");
        assert_eq!(refused.to_string(), "the object has been modified");
    }
}
