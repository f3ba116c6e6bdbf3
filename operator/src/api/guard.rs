//! `spec.guard`: limits of what a document may lose.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Checks that hold back a document which is probably a mistake.
///
/// While a document is held back, the last good snapshot stays published and `Ready` stays true. The condition `Published`
/// names the reason. To publish the document all the same, set the annotation `remora.dev/confirm` to the revision in
/// `status.heldRevision`.
///
/// Two checks cannot be switched off: a document of another environment than the published one is held back, and so is a
/// document of a Flagsmith server that is older than the published one. No check compares documents of two places: after an
/// edit of `spec.source` that names another server, another reference to the key, or another object, the next document is
/// published without a comparison. Edits of `realtime` and `caBundleRef` do not have this effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Guard {
    /// Largest loss that is published without confirmation, in percent, 0 to 100. A document is held back if it has
    /// lost a larger share of its features, of its segments, or of its identities with overrides. Losses of fewer than
    /// 5 features or segments, or of fewer than 100 identities, do not count. A document that lost all of its features
    /// is held back, too. 100 switches the check off. Default: 50.
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
