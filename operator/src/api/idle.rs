//! `status.idleFlags`: flags that no application uses.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Flags without uses, by days in UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdleFlags {
    /// Day on which the operator began to count, for example `2026-11-20`. Earlier uses are unknown.
    pub since: String,
    /// Last day that the counts include as a whole.
    pub until: String,
    /// Last of these days on which any flag was used. Absent if none was: applications may not report uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_use: Option<String>,
    /// Number of flags without a use on the last day.
    pub count: i64,
    /// Number of flags without a use for 30 days. 0 while no flag was used for 7 days, because then applications may not
    /// report uses.
    pub unused: i64,
    /// Flags without a use on the last day, the longest without one first: at most 200, with 16,384 bytes of names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<IdleFlag>,
}

/// A flag without a use since a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdleFlag {
    /// Name of the flag.
    pub flag: String,
    /// Day of its last use, or the first day on which the operator knew the flag. Later by one day for each
    /// day on which not every running pod could be read.
    pub since: String,
}
