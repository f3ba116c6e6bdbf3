//! `spec.refresh`: interval and timeout of fetches.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::Period;

/// Pace of the operator's fetches from the source, and the time that one fetch may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refresh {
    /// Time from the start of one poll to the next, 1s to 24h, for example `30s` or `1h30m`. The operator adds a jitter of up
    /// to a tenth, and waits longer while the source fails. Default: 30s.
    #[serde(default = "default_interval")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('24h')")
        .message("interval must be between 1s and 24h, as in 30s"))]
    pub interval: Period,
    /// Longest time of one fetch, from the connection to the last byte of its last page, 1s to 10m. A fetch that takes
    /// longer fails and is retried. A fetch fails earlier if the server sends less than 8 KiB a second for 15 s, or
    /// less than 256 KiB a second for 60 s. Default: 1m.
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
