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
    /// Objects that the volume names beside the core.
    pub slots: Slots,
    /// Capacity for the files of one volume, in bytes.
    pub bytes: u128,
}

/// Numbers of objects that a volume names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Number of objects for identity overrides.
    pub overrides: usize,
    /// Number of objects for the parts of a core, in each of the two sets.
    pub core_parts: usize,
}

/// Sizes of an environment that the volume of a new pod needs room for. Zeros if they are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of published overrides files.
    pub overrides: usize,
    /// Size in bytes of the largest core that the status reports. It may be withheld.
    pub core: usize,
    /// Size in bytes of the published files other than the core.
    pub others: u128,
}

/// Known layouts of the environments of one namespace.
pub type Layouts = BTreeMap<EnvironmentName, Layout>;

/// Capacity in bytes of a volume with the fewest slots.
const LEAST_BYTES: u128 =
    (files::FEW_OVERRIDES_SLOTS + files::DOCUMENT_SLOTS + 1) as u128 * files::MAX_FILE_BYTES as u128;

/// Size of a core in bytes from which on the volume of a new pod names parts: the core may outgrow one object while the
/// pod runs. Kubelet watches each named object, so the volumes of smaller environments name none.
const GROWING_CORE: usize = 500_000;

impl Default for Slots {
    fn default() -> Self {
        Self { overrides: files::FEW_OVERRIDES_SLOTS, core_parts: 0 }
    }
}

impl Slots {
    /// Returns at least these slots, and twice as many as a snapshot of this size needs. The reserve is needed because
    /// the number of overrides files doubles when they are full, and the core may grow.
    fn with_reserve(self, size: &Size) -> Self {
        let parts = files::part_lengths(size.core.min(files::MAX_CORE_BYTES)).count();
        let growing = if size.core < GROWING_CORE { 0 } else { 2 * parts };
        Self {
            overrides: self.overrides.max(size.overrides.saturating_mul(2)).clamp(1, files::OVERRIDES_SLOTS),
            core_parts: self.core_parts.max(growing).min(files::MAX_CORE_PARTS),
        }
    }
}

impl Default for Layout {
    /// Returns the layout of an environment that does not exist yet.
    fn default() -> Self {
        Self { object_kind: ObjectKind::ConfigMap, slots: Slots::default(), bytes: LEAST_BYTES }
    }
}

impl Layout {
    /// Creates a layout with at least the slots `least`, and with room for a snapshot of twice this size.
    pub fn new(object_kind: ObjectKind, least: Slots, size: Size) -> Self {
        let slots = least.with_reserve(&size);
        // The volume has the parts of the published core and those of the core before it.
        let parts = 2 * slots.core_parts as u128 * files::PART_BYTES as u128;
        let one_object = if slots.core_parts == 0 { size.core as u128 } else { 0 };
        let single = size.others.saturating_add(one_object);
        Self { object_kind, slots, bytes: LEAST_BYTES.max(single.saturating_mul(2).saturating_add(parts)) }
    }

    /// Returns the volume of one environment's snapshot. It projects the core, the slots for its parts, for overrides and
    /// for the document, and the revision that the controller announced.
    pub fn volume(&self, environment: &EnvironmentName) -> Value {
        let source = match self.object_kind {
            ObjectKind::ConfigMap => "configMap",
            ObjectKind::Secret => "secret",
        };
        let files = files::all(self.slots.overrides, self.slots.core_parts).map(|file| {
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

    fn least(overrides: usize, core_parts: usize) -> Slots {
        Slots { overrides, core_parts }
    }

    #[test]
    fn overrides_slots_are_twice_the_published_files_up_to_the_format_limit() {
        let slots = |few, published| {
            let size = Size { overrides: published, ..Size::default() };
            Layout::new(ObjectKind::Secret, least(few, 0), size).slots.overrides
        };
        assert_eq!((slots(8, 0), slots(8, 4), slots(8, 8), slots(8, 32)), (8, 8, 16, 64));
        assert_eq!((slots(64, 1), slots(0, 0), slots(8, usize::MAX)), (64, 1, 64));
        assert_eq!(Layout::new(ObjectKind::ConfigMap, Slots::default(), Size::default()), Layout::default());
    }

    #[test]
    fn core_slots_are_twice_the_parts_from_half_an_object_on() {
        let slots = |few, core| {
            let size = Size { core, ..Size::default() };
            Layout::new(ObjectKind::ConfigMap, least(8, few), size).slots.core_parts
        };
        assert_eq!((slots(0, 0), slots(0, 499_999), slots(0, 500_000), slots(0, 1_000_000)), (0, 0, 2, 2));
        assert_eq!((slots(0, 1_000_001), slots(0, 8 * files::PART_BYTES), slots(0, 9_000_000)), (4, 16, 17));
        assert_eq!((slots(3, 0), slots(3, 600_000), slots(99, 0)), (3, 3, 17));
    }

    #[test]
    fn capacity_has_room_for_both_sets_of_parts() {
        let bytes = |core, others| {
            let size = Size { core, others, overrides: 0 };
            Layout::new(ObjectKind::ConfigMap, Slots::default(), size).bytes
        };
        assert_eq!(bytes(0, 0), LEAST_BYTES);
        assert_eq!(bytes(100_000, 19_900_000), 40_000_000);
        assert_eq!(bytes(900_000, 0), LEAST_BYTES);
        // Four parts in each set hold a core of twice its size, and the one before it.
        let four: usize = 4 * files::PART_BYTES;
        assert_eq!(bytes(1_900_000, 20_000_000), 40_000_000 + 2 * four as u128);
        assert!(bytes(files::MAX_CORE_BYTES, 0) >= 2 * files::MAX_CORE_BYTES as u128);
        assert_eq!(bytes(usize::MAX, u128::MAX), u128::MAX);
    }

    #[test]
    fn volume_names_objects_of_one_kind() {
        let environment = "shop".parse().unwrap();
        for (object_kind, kind, other) in
            [(ObjectKind::ConfigMap, "configMap", "secret"), (ObjectKind::Secret, "secret", "configMap")]
        {
            let volume = Layout { object_kind, slots: least(2, 3), bytes: 0 }.volume(&environment);
            let sources = volume["projected"]["sources"].as_array().unwrap();
            assert_eq!(sources.len(), 1 + 2 + files::DOCUMENT_SLOTS + 2 * 3 + 1);
            assert_eq!(sources[0][kind]["name"], "remora-shop-v3-core");
            assert!(sources.iter().all(|source| source.get(other).is_none()), "{volume}");
        }
    }
}
