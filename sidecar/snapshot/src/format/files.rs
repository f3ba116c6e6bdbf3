//! Names of the files of a snapshot, in a directory and as keys of a ConfigMap.

/// Name of the core file: everything except identity overrides that do not fit into it, and the document.
pub const CORE: &str = "core";

/// Name of the file that shows the revision that a pod should have (a Kubernetes downward API item).
pub const REVISION: &str = "revision";

/// Maximum number of overrides files; a power of two, because leading hash bits choose the file. 64 files hold more
/// than a million identities that have values of their own.
pub const OVERRIDES_SLOTS: usize = 64;

/// Default number of overrides files that a pod's volume names. It is fixed when the pod is admitted, and the kubelet
/// watches each named object, even if the object does not exist.
pub const FEW_OVERRIDES_SLOTS: usize = 8;

/// Maximum number of files of the environment's document. The core and all files of both kinds, held twice, still leave
/// the sidecar the memory for itself within its default memory limit.
pub const DOCUMENT_SLOTS: usize = 3;

/// Maximum size of one file in bytes: a ConfigMap holds 1,048,576 bytes, and needs some of them for its metadata.
pub const MAX_FILE_BYTES: usize = 1_000_000;

/// Returns the name of an overrides file.
#[must_use]
pub fn overrides(slot: usize) -> String {
    format!("overrides-{slot:02}")
}

/// Returns true if a file of this name holds overrides.
#[must_use]
pub fn is_overrides(name: &str) -> bool {
    (0..OVERRIDES_SLOTS).any(|slot| overrides(slot) == name)
}

/// Returns the name of a part of the environment's document.
#[must_use]
pub fn document(slot: usize) -> String {
    format!("document-{slot:02}")
}

/// Lists the files that a directory with `slots` slots for overrides may hold for one environment, the core first.
pub fn all(slots: usize) -> impl Iterator<Item = String> {
    let overrides = (0..slots.min(OVERRIDES_SLOTS)).map(overrides);
    let documents = (0..DOCUMENT_SLOTS).map(document);
    std::iter::once(CORE.to_owned()).chain(overrides).chain(documents)
}
