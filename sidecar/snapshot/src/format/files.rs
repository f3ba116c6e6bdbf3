//! Names of the files of a snapshot, in a directory and as keys of a ConfigMap.

use std::fmt;

/// Name of the core file: everything except identity overrides that do not fit into it, and the document. A core beyond
/// [`MAX_FILE_BYTES`] is in parts ([`core_part`]), and this file is a [`Pointer`](crate::Pointer) to them.
pub const CORE: &str = "core";

/// Name of the file that shows the revision that a pod should have (a Kubernetes downward API item).
pub const REVISION: &str = "revision";

/// Maximum number of overrides files; a power of two, because leading hash bits choose the file. 64 files hold more
/// than a million identities that have values of their own.
pub const OVERRIDES_SLOTS: usize = 64;

/// Default number of overrides files that a pod's volume names. It is fixed when the pod is admitted, and the kubelet
/// watches each named object, even if the object does not exist.
pub const FEW_OVERRIDES_SLOTS: usize = 8;

/// Maximum number of files of the environment's document. With a core in one file and [`FEW_OVERRIDES_SLOTS`] overrides
/// files, two revisions have at most 24,000,000 bytes. The operator sets the memory limit of a sidecar by the files that
/// its volume names.
pub const DOCUMENT_SLOTS: usize = 3;

const _: () = assert!(2 * (1 + FEW_OVERRIDES_SLOTS + DOCUMENT_SLOTS) * MAX_FILE_BYTES == 24_000_000);

/// Maximum size of one file in bytes: a ConfigMap holds 1,048,576 bytes, and needs some of them for its metadata.
pub const MAX_FILE_BYTES: usize = 1_000_000;

/// Size in bytes of each part of a core except the last: 15 times 64 KiB. It is a multiple of every page size, so that
/// a reader can map the parts beside each other.
pub const PART_BYTES: usize = 15 << 16;

/// Maximum number of parts of a core.
pub const MAX_CORE_PARTS: usize = 17;

/// Maximum size of a core in bytes.
pub const MAX_CORE_BYTES: usize = MAX_CORE_PARTS * PART_BYTES;

/// One of two series of files for the parts of a core. One series has the parts of the published core, the other those
/// of the core before it, or none. The writer alternates between them, so that the previous core stays whole until the
/// next one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CoreSet {
    /// The files `core-a-00`, `core-a-01` and so on.
    A,
    /// The files `core-b-00`, `core-b-01` and so on.
    B,
}

impl CoreSet {
    /// Both sets.
    pub const ALL: [CoreSet; 2] = [CoreSet::A, CoreSet::B];

    /// Returns the other set.
    #[must_use]
    pub fn other(self) -> CoreSet {
        match self {
            CoreSet::A => CoreSet::B,
            CoreSet::B => CoreSet::A,
        }
    }
}

impl fmt::Display for CoreSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CoreSet::A => "a",
            CoreSet::B => "b",
        })
    }
}

/// Returns the name of a part of a core.
#[must_use]
pub fn core_part(set: CoreSet, part: usize) -> String {
    format!("core-{set}-{part:02}")
}

/// Returns true if a file of this name holds a part of a core.
#[must_use]
pub fn is_core_part(name: &str) -> bool {
    CoreSet::ALL.iter().any(|set| (0..MAX_CORE_PARTS).any(|part| core_part(*set, part) == name))
}

/// Lists the lengths of the parts of a core with `length` bytes: all have [`PART_BYTES`] except the last. A core that
/// fits into one file is one part.
pub fn part_lengths(length: usize) -> impl Iterator<Item = usize> {
    let size = if length <= MAX_FILE_BYTES { length.max(1) } else { PART_BYTES };
    (0..length).step_by(size).map(move |start| size.min(length - start))
}

/// Cuts a core into its parts ([`part_lengths`]).
pub fn parts(core: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = core;
    part_lengths(core.len()).map(move |length| {
        let (part, others) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        rest = others;
        part
    })
}

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

/// Returns true if a file of this name holds a part of the environment's document.
#[must_use]
pub fn is_document(name: &str) -> bool {
    (0..DOCUMENT_SLOTS).any(|slot| document(slot) == name)
}

/// Lists the files that a directory may hold for one environment, the core first: with `slots` slots for overrides, and
/// `parts` slots for the parts of a core in each set.
pub fn all(slots: usize, parts: usize) -> impl Iterator<Item = String> {
    let overrides = (0..slots.min(OVERRIDES_SLOTS)).map(overrides);
    let documents = (0..DOCUMENT_SLOTS).map(document);
    let parts = move |set| (0..parts.min(MAX_CORE_PARTS)).map(move |part| core_part(set, part));
    std::iter::once(CORE.to_owned()).chain(overrides).chain(documents).chain(CoreSet::ALL.into_iter().flat_map(parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_that_fits_into_one_file_is_one_part() {
        let lengths = |length| part_lengths(length).collect::<Vec<_>>();
        assert_eq!(lengths(0), []);
        assert_eq!(lengths(1), [1]);
        assert_eq!(lengths(PART_BYTES + 1), [PART_BYTES + 1]);
        assert_eq!(lengths(MAX_FILE_BYTES), [MAX_FILE_BYTES]);
        assert_eq!(lengths(MAX_FILE_BYTES + 1), [PART_BYTES, MAX_FILE_BYTES + 1 - PART_BYTES]);
        assert_eq!(lengths(2 * PART_BYTES), [PART_BYTES; 2]);
        assert_eq!(lengths(2 * PART_BYTES + 1), [PART_BYTES, PART_BYTES, 1]);
        assert_eq!(lengths(MAX_CORE_BYTES), [PART_BYTES; MAX_CORE_PARTS]);
    }

    #[test]
    fn parts_together_are_the_core() {
        for length in [0, 1, MAX_FILE_BYTES, MAX_FILE_BYTES + 1, 2 * PART_BYTES, 3 * PART_BYTES + 7] {
            let core: Vec<u8> = (0..length).map(|byte| (byte % 251) as u8).collect();
            assert!(parts(&core).map(<[u8]>::len).eq(part_lengths(length)), "{length}");
            assert_eq!(parts(&core).collect::<Vec<_>>().concat(), core, "{length}");
        }
    }

    #[test]
    fn names_of_parts_are_recognized() {
        assert_eq!(core_part(CoreSet::A, 0), "core-a-00");
        assert_eq!(core_part(CoreSet::A.other(), 16), "core-b-16");
        assert!(is_core_part("core-b-16") && is_core_part("core-a-09"));
        for other in [CORE, "core-a", "core-a-17", "core-a-9", "core-c-00", "overrides-00"] {
            assert!(!is_core_part(other), "{other}");
        }
        assert_eq!(all(1, 1).last().as_deref(), Some("core-b-00"));
        assert_eq!(all(usize::MAX, usize::MAX).count(), 1 + OVERRIDES_SLOTS + DOCUMENT_SLOTS + 2 * MAX_CORE_PARTS);
    }
}
