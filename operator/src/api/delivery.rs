use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a snapshot comes to pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// What carries the snapshot: ConfigMaps, or Secrets, which fewer people may read and which clusters can encrypt. When this is
    /// changed, pods go on with the former kind until they are restarted; its objects are kept up to date until then, and
    /// earlier revisions in `status.history` are dropped.
    #[serde(rename = "as", default)]
    pub carrier: Carrier,
    /// How many objects with identity overrides the volumes of new pods are prepared for, at the least; one holds some 50,000
    /// identities, or a megabyte of values. Twice as many as are published are prepared for in any case. What running pods
    /// are prepared for stays as it is until they are restarted.
    #[serde(default = "few")]
    #[schemars(range(min = 1, max = 64))]
    pub overrides_slots: i32,
    /// After a publication, patch an annotation of the pods that serve the environment: their kubelets then bring the new
    /// snapshot at once, not within 60 to 90 seconds.
    #[serde(default = "yes")]
    pub nudge: bool,
}

/// The kind of the objects that carry a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Carrier {
    /// ConfigMaps.
    #[default]
    ConfigMap,
    /// Secrets of the type `remora.dev/snapshot`.
    Secret,
}

/// How what is published is delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivered {
    /// The kind of the objects that carry it, and that new pods mount.
    #[serde(rename = "as", default)]
    pub carrier: Carrier,
    /// How many of them have identity overrides.
    #[serde(default)]
    pub overrides_files: i32,
    /// The kind that was before, and that is kept up to date while pods mount it: `status.pods.problem` names such pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formerly: Option<Carrier>,
}

impl Carrier {
    /// The other kind.
    pub fn other(self) -> Self {
        match self {
            Self::ConfigMap => Self::Secret,
            Self::Secret => Self::ConfigMap,
        }
    }

    /// Its name as a kind.
    pub fn kind(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

impl Default for Delivery {
    fn default() -> Self {
        Self { carrier: Carrier::default(), overrides_slots: few(), nudge: yes() }
    }
}

fn few() -> i32 {
    8
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use remora_snapshot::files;

    use super::*;

    #[test]
    fn the_schema_says_what_the_format_does() {
        assert_eq!(usize::try_from(few()), Ok(files::FEW_OVERRIDES_SLOTS));
        let schema = serde_json::to_value(schemars::schema_for!(Delivery)).unwrap();
        assert_eq!(schema["properties"]["overridesSlots"]["maximum"], files::OVERRIDES_SLOTS);
    }
}
