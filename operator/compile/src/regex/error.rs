//! Reasons why a pattern is not compiled.

use std::fmt;

use super::{DOCUMENT_STEPS, step_budget::OutOfSteps};

/// Reason why a pattern is not compiled. Its text continues a sentence whose subject is the pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// All patterns of the document together take too many steps.
    OutOfSteps,
    /// The pattern is invalid, unsupported, or exceeds a limit of its own.
    Refused(String),
}

impl From<OutOfSteps> for PatternError {
    fn from(OutOfSteps: OutOfSteps) -> Self {
        Self::OutOfSteps
    }
}

impl From<String> for PatternError {
    fn from(problem: String) -> Self {
        Self::Refused(problem)
    }
}

impl From<&str> for PatternError {
    fn from(problem: &str) -> Self {
        Self::Refused(problem.to_owned())
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfSteps => write!(
                f,
                "exceeds the {DOCUMENT_STEPS} steps for all patterns of a document; use fewer or smaller repetitions and sets"
            ),
            Self::Refused(problem) => f.write_str(problem),
        }
    }
}
