//! The properties of an environment that determine the volume of its pods. They are read when a pod is admitted,
//! because a pod's volumes never change.

use std::collections::BTreeMap;

use remora_snapshot::files;
use serde_json::{Value, json};

use crate::api::{ObjectKind, names::EnvironmentName};

/// Object kind and capacity of an environment's volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Kind of the objects that the volume names.
    pub object_kind: ObjectKind,
    /// Number of objects for identity overrides that the volume names.
    pub slots: usize,
    /// Capacity for one snapshot, in bytes.
    pub bytes: u128,
}

/// Known layouts of the environments of one namespace.
pub type Layouts = BTreeMap<EnvironmentName, Layout>;

/// Capacity in bytes of a volume with the fewest slots.
const LEAST_BYTES: u128 =
    (files::FEW_OVERRIDES_SLOTS + files::DOCUMENT_SLOTS + 1) as u128 * files::MAX_FILE_BYTES as u128;

impl Default for Layout {
    /// Returns the layout of an environment that does not exist yet.
    fn default() -> Self {
        Self { object_kind: ObjectKind::ConfigMap, slots: files::FEW_OVERRIDES_SLOTS, bytes: LEAST_BYTES }
    }
}

impl Layout {
    /// Creates a layout with at least `slots` overrides files and with twice the published files and bytes. The reserve
    /// is needed because the number of files doubles when they are full. `published_files` and `published_bytes` are 0
    /// if unknown.
    pub fn new(object_kind: ObjectKind, slots: usize, published_files: usize, published_bytes: u128) -> Self {
        let slots = slots.max(published_files.saturating_mul(2)).clamp(1, files::OVERRIDES_SLOTS);
        Self { object_kind, slots, bytes: LEAST_BYTES.max(published_bytes.saturating_mul(2)) }
    }

    /// Returns the volume of one environment's snapshot. It projects the core, the slots for overrides and for the
    /// document, and the revision that the controller announced.
    pub fn volume(&self, environment: &EnvironmentName) -> Value {
        let source = match self.object_kind {
            ObjectKind::ConfigMap => "configMap",
            ObjectKind::Secret => "secret",
        };
        let files = files::all(self.slots, 0).map(|file| {
            json!({source: {
                "name": environment.object(&file),
                // Optional, so that a pod can start before its flags are published.
                "optional": true,
                "items": [{"key": file, "path": file}],
            }})
        });
        let revision = json!({"downwardAPI": {"items": [{
            "path": files::REVISION,
            "fieldRef": {"apiVersion": "v1", "fieldPath": format!("metadata.annotations['{}']", environment.revision_annotation())},
        }]}});
        let sources: Vec<_> = files.chain([revision]).collect();
        json!({"name": environment.volume(), "projected": {"defaultMode": READABLE, "sources": sources}})
    }
}

/// File mode that lets every user read, because the user ID of the sidecar is not known here.
pub(super) const READABLE: u32 = 0o444;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_twice_the_published_files_up_to_the_format_limit() {
        let slots = |least, published| Layout::new(ObjectKind::Secret, least, published, 0).slots;
        assert_eq!((slots(8, 0), slots(8, 4), slots(8, 8), slots(8, 32)), (8, 8, 16, 64));
        assert_eq!((slots(64, 1), slots(0, 0), slots(8, usize::MAX)), (64, 1, 64));
        assert_eq!(Layout::new(ObjectKind::ConfigMap, 8, 0, 0), Layout::default());
        assert_eq!(Layout::new(ObjectKind::ConfigMap, 8, 0, 20_000_000).bytes, 40_000_000);
    }

    #[test]
    fn volume_names_objects_of_one_kind() {
        let environment = "shop".parse().unwrap();
        for (object_kind, kind, other) in
            [(ObjectKind::ConfigMap, "configMap", "secret"), (ObjectKind::Secret, "secret", "configMap")]
        {
            let volume = Layout { object_kind, slots: 2, bytes: 0 }.volume(&environment);
            let sources = volume["projected"]["sources"].as_array().unwrap();
            assert_eq!(sources.len(), 1 + 2 + files::DOCUMENT_SLOTS + 1);
            assert_eq!(sources[0][kind]["name"], "remora-shop-v3-core");
            assert!(sources.iter().all(|source| source.get(other).is_none()), "{volume}");
        }
    }
}
