//! Summary of a document.

use serde::{Deserialize, Serialize};

use crate::document::Document;

/// Summary of a document before pruning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentStats {
    /// Client-side key, which identifies the environment.
    pub client_key: String,
    /// Time of the last change, as Flagsmith writes it.
    pub updated_at: Option<String>,
    /// Number of features.
    pub features: usize,
    /// Number of segments.
    pub segments: usize,
    /// Number of identities with overrides.
    pub overrides: usize,
}

impl DocumentStats {
    /// Summarizes `document`.
    #[must_use]
    pub fn of(document: &Document) -> Self {
        Self {
            client_key: document.api_key.clone(),
            updated_at: document.updated_at().map(str::to_owned),
            features: document.feature_states.len(),
            segments: document.project.segments.len(),
            overrides: document.identity_overrides.len(),
        }
    }
}
