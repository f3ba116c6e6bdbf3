//! Revisions of snapshots.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Revision of a snapshot, which names the content of all its files: twelve hexadecimal digits.
///
/// Authors of objects and earlier formats may have written any text, so the text is not checked here.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Revision(String);

impl Revision {
    /// Creates a revision from its text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the revision as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Compares with a text of a person, such as `spec.pin`.
impl PartialEq<str> for Revision {
    fn eq(&self, text: &str) -> bool {
        self.0 == text
    }
}
