//! What the files of a snapshot are called, in a directory and as keys of a ConfigMap.

/// The file that holds everything but the identity overrides that did not fit beside it.
pub const CORE: &str = "core";

/// The file in which Kubernetes tells the revision that a pod should have (a downward API item).
pub const REVISION: &str = "revision";

/// How many overrides files there can be; a power of two, because leading hash bits choose the file. Sixty-four hold
/// more than a million identities that have values of their own.
pub const OVERRIDES_SLOTS: usize = 64;

/// How many of them a pod's volume names where nobody asks for more. They are fixed when a pod is admitted, and a kubelet
/// watches for each of them, whether it is there or not.
pub const FEW_OVERRIDES_SLOTS: usize = 8;

/// How many files the environment's document can be divided into. All of them, the core and all overrides, twice, leave
/// the sidecar its own part of its default memory limit.
pub const DOCUMENT_SLOTS: usize = 3;

/// The most bytes that one file may have: a ConfigMap holds 1,048,576, and keeps some for the rest.
pub const MAX_FILE_BYTES: usize = 1_000_000;

/// The name of one overrides file.
#[must_use]
pub fn overrides(slot: usize) -> String {
    format!("overrides-{slot:02}")
}

/// Whether a file of this name holds overrides.
#[must_use]
pub fn is_overrides(name: &str) -> bool {
    (0..OVERRIDES_SLOTS).any(|slot| overrides(slot) == name)
}

/// The name of one part of the environment's document.
#[must_use]
pub fn document(slot: usize) -> String {
    format!("document-{slot:02}")
}

/// The files that a directory with so many slots for overrides may hold for one environment, the core first.
pub fn all(slots: usize) -> impl Iterator<Item = String> {
    let overrides = (0..slots.min(OVERRIDES_SLOTS)).map(overrides);
    let documents = (0..DOCUMENT_SLOTS).map(document);
    std::iter::once(CORE.to_owned()).chain(overrides).chain(documents)
}
