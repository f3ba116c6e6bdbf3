//! What of an environment decides which volume its pods get. A pod's volumes never change, so this is asked when it is
//! admitted.

use std::collections::BTreeMap;

use remora_snapshot::files;
use serde_json::{Value, json};

use crate::api::{Carrier, names::EnvironmentName};

/// How an environment's snapshot is carried, and how large it may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The kind of the objects.
    pub carrier: Carrier,
    /// How many of them the volume names for identity overrides.
    pub slots: usize,
    /// The bytes that the volume has room for, once.
    pub bytes: u128,
}

/// The layouts of environments of one namespace, as far as they are known.
pub type Layouts = BTreeMap<EnvironmentName, Layout>;

/// What fills a volume with the fewest slots.
const LEAST_BYTES: u128 =
    (files::FEW_OVERRIDES_SLOTS + files::DOCUMENT_SLOTS + 1) as u128 * files::MAX_FILE_BYTES as u128;

impl Default for Layout {
    /// Of an environment that is not there yet.
    fn default() -> Self {
        Self { carrier: Carrier::ConfigMap, slots: files::FEW_OVERRIDES_SLOTS, bytes: LEAST_BYTES }
    }
}

impl Layout {
    /// Prepared for at least `slots` overrides files; where that is known, for twice the overrides files and twice the bytes
    /// that are published: files double when they do not hold everything any more.
    pub fn new(carrier: Carrier, slots: usize, published_files: usize, published_bytes: u128) -> Self {
        let slots = slots.max(published_files.saturating_mul(2)).clamp(1, files::OVERRIDES_SLOTS);
        Self { carrier, slots, bytes: LEAST_BYTES.max(published_bytes.saturating_mul(2)) }
    }

    /// One environment's snapshot: the core, the slots for overrides and for the document, and the revision that the
    /// controller announced.
    pub fn volume(&self, environment: &EnvironmentName) -> Value {
        let source = match self.carrier {
            Carrier::ConfigMap => "configMap",
            Carrier::Secret => "secret",
        };
        let files = files::all(self.slots).map(|file| {
            json!({source: {
                "name": environment.object(&file),
                // A pod starts without its flags, and gets them when they come.
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

/// Read by all: the user that the sidecar runs as is not known here.
pub(super) const READABLE: u32 = 0o444;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_leave_room_to_grow_and_end_with_the_format() {
        let slots = |least, published| Layout::new(Carrier::Secret, least, published, 0).slots;
        assert_eq!((slots(8, 0), slots(8, 4), slots(8, 8), slots(8, 32)), (8, 8, 16, 64));
        assert_eq!((slots(64, 1), slots(0, 0), slots(8, usize::MAX)), (64, 1, 64));
        assert_eq!(Layout::new(Carrier::ConfigMap, 8, 0, 0), Layout::default());
        assert_eq!(Layout::new(Carrier::ConfigMap, 8, 0, 20_000_000).bytes, 40_000_000);
    }

    #[test]
    fn a_volume_names_objects_of_one_kind() {
        let environment = "shop".parse().unwrap();
        for (carrier, kind, other) in
            [(Carrier::ConfigMap, "configMap", "secret"), (Carrier::Secret, "secret", "configMap")]
        {
            let volume = Layout { carrier, slots: 2, bytes: 0 }.volume(&environment);
            let sources = volume["projected"]["sources"].as_array().unwrap();
            assert_eq!(sources.len(), 1 + 2 + files::DOCUMENT_SLOTS + 1);
            assert_eq!(sources[0][kind]["name"], "remora-shop-v2-core");
            assert!(sources.iter().all(|source| source.get(other).is_none()), "{volume}");
        }
    }
}
