use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::Period;

/// When the source is asked again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refresh {
    /// The time between two fetches; it is jittered by a tenth.
    #[serde(default = "default_interval")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('24h')")
        .message("interval must be between 1s and 24h, as in 30s"))]
    pub interval: Period,
    /// The time that one fetch may take, with all its pages.
    #[serde(default = "default_timeout")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('10m')")
        .message("timeout must be between 1s and 10m, as in 60s or 1m"))]
    pub timeout: Period,
}

fn default_interval() -> Period {
    Period::seconds(30)
}

fn default_timeout() -> Period {
    Period::seconds(60)
}

impl Default for Refresh {
    fn default() -> Self {
        Self { interval: default_interval(), timeout: default_timeout() }
    }
}
