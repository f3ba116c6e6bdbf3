use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// What keeps a document that is probably a mistake from being published. A document that is held back leaves the last good
/// one published and `Ready` true; the condition `Published` says why, and how to confirm it: by the annotation
/// `remora.dev/confirm` with the revision in `status.heldRevision`.
///
/// Held back, too, whatever is set here: a document of another environment than the one that is published, and from a server one
/// that is older. Nothing is compared after `spec.source` was edited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Guard {
    /// A document is held back if it lost more than this share of its features, of its segments, or of its identities with
    /// overrides; fewer than 5 features or segments and fewer than 100 identities do not count. One that has no
    /// features left is always held back. 100 lets every loss pass.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 100))]
    pub max_shrink_percent: i32,
}

impl Default for Guard {
    fn default() -> Self {
        Self { max_shrink_percent: half() }
    }
}

fn half() -> i32 {
    50
}
