//! `spec.delivery`: objects that hold the snapshot, and room for it in pods.

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Delivery of the snapshot to pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Kind of the objects that hold the snapshot. `ConfigMap` (default): anybody who may read ConfigMaps of the namespace can
    /// read flag values. `Secret`: Secrets of type `remora.dev/snapshot`, which fewer people may read and which clusters can
    /// encrypt at rest. After a change, running pods use the previous kind until they restart; the operator updates both kinds
    /// until then, and removes the earlier revisions from `status.history`.
    #[serde(rename = "as", default)]
    pub object_kind: ObjectKind,
    /// Minimum number of overrides objects that the volume of a new pod has room for, 1 to 64. One object holds about 50,000
    /// identities with overrides, or 1 MB of their values. A new pod has room for twice the number of published objects in any
    /// case. The volume of a running pod does not change: a pod needs a restart when more objects are published than its
    /// volume has room for. Default: 8.
    #[serde(default = "few")]
    #[schemars(range(min = 1, max = 64))]
    pub overrides_slots: i32,
    /// Minimum number of parts of a core that the volume of a new pod has room for, 0 to 17. A core (flags, segments and
    /// values) beyond 1,000,000 bytes is published in parts of 983,040 bytes. From 500,000 bytes on, a new pod has room for
    /// twice the parts of `status.coreBytes` in any case, and for two at least. The volume of a running pod does not change: a
    /// core that needs more parts is not published before the pod was restarted. Set this field where pods start before the
    /// first document of that size is published, or where a core more than doubles during the life of a pod. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 17))]
    pub core_parts: i32,
    /// Pod notification: after each publication the operator patches the annotation `remora.dev/revision.ENVIRONMENT` (for
    /// example `remora.dev/revision.storefront`) of the pods that serve the environment, so that kubelet updates their volumes
    /// within a second. `false`: kubelet updates them within 60 to 90 seconds. Default: true.
    #[serde(default = "yes")]
    pub nudge: bool,
}

/// Kind of the objects that hold a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ObjectKind {
    /// ConfigMaps.
    #[default]
    ConfigMap,
    /// Secrets of the type `remora.dev/snapshot`.
    Secret,
}

/// Delivery of the published snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivered {
    /// Kind of the objects that hold the published snapshot, and that new pods mount: `ConfigMap` or `Secret`.
    #[serde(rename = "as", default)]
    pub object_kind: ObjectKind,
    /// Number of published overrides objects. Zero if all identity overrides fit into the core object.
    #[serde(default)]
    pub overrides_files: i32,
    /// Size of the published core in bytes. `status.coreBytes` also counts cores that are not published yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_bytes: Option<i64>,
    /// Kind of the objects that held the snapshot before `spec.delivery.as` changed: `ConfigMap` or `Secret`. The
    /// operator keeps these objects up to date while pods mount them; `status.pods.problem` names such pods. Absent if
    /// there is no such kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kind")]
    pub formerly: Option<ObjectKind>,
}

impl ObjectKind {
    /// The other kind.
    pub fn other(self) -> Self {
        match self {
            Self::ConfigMap => Self::Secret,
            Self::Secret => Self::ConfigMap,
        }
    }

    /// The `kind` of the objects in the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

impl Default for Delivery {
    fn default() -> Self {
        Self { object_kind: ObjectKind::default(), overrides_slots: few(), core_parts: 0, nudge: yes() }
    }
}

/// Describes a kind without the type's own description, which would replace the one of the field.
pub(super) fn kind(_: &mut SchemaGenerator) -> Schema {
    let kinds = [ObjectKind::ConfigMap, ObjectKind::Secret].map(ObjectKind::as_str);
    json_schema!({"type": "string", "enum": kinds, "nullable": true})
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
    fn schema_of_slots_matches_bounds_of_format() {
        assert_eq!(usize::try_from(few()), Ok(files::FEW_OVERRIDES_SLOTS));
        let schema = serde_json::to_value(schemars::schema_for!(Delivery)).unwrap();
        assert_eq!(schema["properties"]["overridesSlots"]["maximum"], files::OVERRIDES_SLOTS);
        assert_eq!(schema["properties"]["coreParts"]["maximum"], files::MAX_CORE_PARTS);
    }
}
