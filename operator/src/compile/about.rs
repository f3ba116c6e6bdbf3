//! What a document says of itself.

use serde::{Deserialize, Serialize};

use crate::compile::document::Document;

/// What a document says of itself, before anything is left out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The client key, which identifies the environment.
    pub client_key: String,
    /// When it last changed, as Flagsmith words it.
    pub updated_at: Option<String>,
    /// Features.
    pub features: usize,
    /// Segments.
    pub segments: usize,
    /// Identities with overrides.
    pub overrides: usize,
}

impl About {
    /// What `document` says of itself.
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
