//! Condition types, and how a condition follows from the previous one. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{
    Reason,
    message::{CONDITION_MAX, truncated},
};

/// The operator can act on the spec and on the objects that it refers to.
pub const ACCEPTED: &str = "Accepted";
/// The last fetch from the source succeeded.
pub const FETCHED: &str = "Fetched";
/// The document that was fetched last is published.
pub const PUBLISHED: &str = "Published";
/// A snapshot is published, so that pods can serve flags.
pub const READY: &str = "Ready";
/// The source has not confirmed the published snapshot for a long time.
pub const STALE: &str = "Stale";

/// Status, reason and message of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) status: &'static str,
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl State {
    pub(super) fn yes(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: "True", reason, message: message.into() }
    }

    pub(super) fn no(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: "False", reason, message: message.into() }
    }

    pub(super) fn unknown(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: "Unknown", reason, message: message.into() }
    }
}

/// Returns the condition that follows from `previous`. `lastTransitionTime` changes only with the status.
pub(super) fn next(
    previous: Option<&Condition>,
    kind: &str,
    state: State,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let since = previous
        .filter(|previous| previous.status == state.status)
        .map(|previous| previous.last_transition_time.clone());
    Condition {
        type_: kind.to_owned(),
        status: state.status.to_owned(),
        reason: state.reason.to_string(),
        message: truncated(state.message, CONDITION_MAX),
        observed_generation: generation,
        last_transition_time: since.unwrap_or(Time(now)),
    }
}

/// Returns the same condition, observed at this generation.
pub(super) fn again(previous: &Condition, generation: Option<i64>) -> Condition {
    Condition { observed_generation: generation, ..previous.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_time_changes_only_with_status() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let first = next(None, READY, State::no(Reason::Pending, "waiting"), Some(1), at(1));
        let second = next(Some(&first), READY, State::no(Reason::NothingPublished, "gone"), Some(2), at(2));
        assert_eq!(second.last_transition_time, Time(at(1)));
        assert_eq!(second.observed_generation, Some(2));
        let third = next(Some(&second), READY, State::yes(Reason::Published, ""), Some(2), at(3));
        assert_eq!(third.last_transition_time, Time(at(3)));
    }
}
