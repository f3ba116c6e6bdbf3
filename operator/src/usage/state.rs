//! State of the collection of an environment, for the status and the log. Pure.

use std::fmt;

use super::BYTES_MAX;

/// State of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum CollectionState {
    /// All pods are read, and the source takes their counts.
    #[default]
    Collecting,
    /// Number of pods that were not read since the day before began.
    WithoutPods(usize),
    /// Number of pods whose counts have no room in memory.
    OutOfMemory(usize),
    /// The source takes no counts, because of this problem.
    NotSent(String),
}

impl CollectionState {
    /// Returns the state after a round: the gravest problem, if there are several.
    pub(super) fn of(problem: Option<&str>, without_room: usize, unread: usize) -> Self {
        match (problem, without_room, unread) {
            (Some(problem), ..) => Self::NotSent(problem.to_owned()),
            (None, 0, 0) => Self::Collecting,
            (None, 0, pods) => Self::WithoutPods(pods),
            (None, pods, _) => Self::OutOfMemory(pods),
        }
    }
}

impl fmt::Display for CollectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collecting => f.write_str("collecting"),
            Self::WithoutPods(pods) => write!(
                f,
                "collecting, without {pods} of the pods, which were not read since yesterday began: such days do not count as days without uses; see that the controller reaches the admin ports"
            ),
            Self::OutOfMemory(pods) => write!(
                f,
                "collecting, without {pods} of the pods: the {BYTES_MAX} bytes for counts of all environments have no room for more of this namespace"
            ),
            Self::NotSent(problem) => write!(f, "not sent: {problem}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gravest_problem_of_a_round_is_its_state() {
        let refused = CollectionState::NotSent("HTTP 500".to_owned());
        assert_eq!(CollectionState::of(Some("HTTP 500"), 1, 1), refused);
        assert_eq!(refused.to_string(), "not sent: HTTP 500");
        assert_eq!(CollectionState::of(None, 2, 1), CollectionState::OutOfMemory(2));
        assert_eq!(CollectionState::of(None, 0, 1), CollectionState::WithoutPods(1));
        assert_eq!(CollectionState::of(None, 0, 0), CollectionState::Collecting);
    }
}
