//! Reasons why a request ends without a result. Failures are among them; limits that others use up are none.

use super::{
    Fetched,
    error::{Error, Fault},
    failure::unavailable,
    limiter::Rejection,
    memory_budget::OverBudget,
    origin::Origin,
};

/// Reason why a request has no result.
#[derive(Debug)]
pub(super) enum Interrupted {
    /// The limiter admitted no request.
    Rejected(Rejection),
    /// The memory budget has no room for the document at the moment.
    OverBudget(OverBudget),
    /// The request failed.
    Failed(Box<Error>),
}

impl From<Rejection> for Interrupted {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<OverBudget> for Interrupted {
    fn from(over_budget: OverBudget) -> Self {
        Self::OverBudget(over_budget)
    }
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl Interrupted {
    /// Returns the outcome of a fetch from this server.
    pub(super) fn outcome(self, origin: &Origin) -> Result<Fetched, Error> {
        match self {
            Self::Rejected(Rejection::Busy) => Ok(Fetched::Busy),
            Self::Rejected(Rejection::CircuitOpen { problem, wait }) => Err(Error::UpstreamUnavailable {
                origin: origin.clone(),
                problem,
                fault: Fault::Answer,
                retry_after: Some(wait),
            }),
            Self::OverBudget(OverBudget { needed }) => Ok(Fetched::OverBudget { expected: needed }),
            Self::Failed(error) => Err(*error),
        }
    }

    /// Returns the error of a request to this server that is no fetch.
    pub(super) fn error(self, origin: &Origin) -> Error {
        match self {
            Self::Rejected(Rejection::Busy) => unavailable(origin, "other requests to the server take its places"),
            Self::Rejected(Rejection::CircuitOpen { problem, .. }) => unavailable(origin, &problem),
            Self::OverBudget(_) => unavailable(origin, "the memory for answers is used up"),
            Self::Failed(error) => *error,
        }
    }
}
