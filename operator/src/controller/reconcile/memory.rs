//! Keeps snapshots within the namespace's share of the controller's memory.

use std::sync::Arc;

use super::environment::Environment;
use crate::{
    memory::Memory,
    publish::{Error, Record, Snapshot},
};

/// Memory in bytes for the snapshots of all environments, unless the chart's value says otherwise.
pub const SNAPSHOTS_MAX: usize = 128 << 20;

/// Reserves the memory of a snapshot that was compiled, or that `spec.pin` names, and of its record. If there is none,
/// `release` drops the snapshots that it replaces first: what is published stays in the cluster, and is read back when it
/// is needed and has room.
///
/// # Errors
/// The namespace has used up its share.
pub(super) fn reserve(
    memory: &Arc<Memory>,
    namespace: &str,
    snapshot: &mut Snapshot,
    record_bytes: usize,
    release: impl FnOnce(),
) -> Result<(), Error> {
    if snapshot.reserve_in(memory, namespace, record_bytes).is_ok() {
        return Ok(());
    }
    release();
    snapshot.reserve_in(memory, namespace, record_bytes)
}

/// Reserves the memory of a snapshot that was read from the cluster. Returns `None`, with a line in the log, if there is
/// none.
pub(super) fn reserve_read(
    environment: &Environment<'_>,
    memory: &Arc<Memory>,
    mut snapshot: Snapshot,
    record: Option<&Record>,
) -> Option<Snapshot> {
    let (namespace, environment) = (environment.namespace(), &environment.name.name);
    if let Err(error) = snapshot.reserve_in(memory, namespace, record.map_or(0, Record::memory_bytes)) {
        tracing::warn!(
            namespace,
            environment,
            %error,
            "the published snapshot stays as it is: it is not restored if somebody deletes it, and not archived"
        );
        return None;
    }
    Some(snapshot)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use remora_snapshot::files;
    use serde_json::json;

    use super::*;
    use crate::api::Revision;
    use crate::publish::File;

    #[test]
    fn snapshot_whose_record_has_no_room_is_not_kept() {
        let object = serde_json::from_value(json!({
            "apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment",
            "metadata": {"name": "storefront", "namespace": "shop", "uid": "uid-1"},
            "spec": {"source": {"document": {"configMapKeyRef": {"name": "flags", "key": "environment.json"}}}},
        }));
        let object = object.unwrap();
        let files: BTreeMap<String, String> =
            (0..files::OVERRIDES_SLOTS).map(|slot| (files::overrides(slot), "a".repeat(64))).collect();
        let past = json!({"revision": "0a1b", "publishedAt": "2026-11-24T00:00:00Z", "files": files});
        let document = json!({"source": "s", "environment": "e", "features": 0, "segments": 0, "overrides": 0});
        let record = json!({"publishedAt": "2026-11-24T00:00:00Z", "document": document, "history": vec![past; 20]});
        let record: Record = serde_json::from_value(record).unwrap();
        let keep = |bytes: usize, record: Option<&Record>| {
            let snapshot = Snapshot::new(Revision::new("r"), vec![File::new("core".to_owned(), vec![1])]);
            reserve_read(&Environment::new(&object), &Memory::new(bytes), snapshot, record).is_some()
        };
        assert!(keep(100_000, None) && !keep(100_000, Some(&record)));
        assert!(keep(100_000 + record.memory_bytes(), Some(&record)));
    }
}
