use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How a snapshot comes to pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// After a publication, patch an annotation of the pods that serve the environment: their kubelets then bring the new
    /// snapshot at once, not within 60 to 90 seconds.
    #[serde(default = "yes")]
    pub nudge: bool,
}

impl Default for Delivery {
    fn default() -> Self {
        Self { nudge: yes() }
    }
}

fn yes() -> bool {
    true
}
