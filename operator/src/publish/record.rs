use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::guard::Outline;

/// What is written beside a snapshot, on its core object: what another process must know of it that its bytes do not tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Since when this revision is published.
    pub published_at: Time,
    /// The document that was accepted last.
    pub document: Outline,
}
