//! Errors of reading a snapshot.

use crate::Revision;
use crate::format::layout::{FORMAT_MAJOR, SUPPORTED_FEATURES};

/// Reason for refusing a file. The sidecar keeps serving the file that it was meant to replace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The file is shorter than its header.
    #[error("{0} bytes are too few for a snapshot's header: the file is cut off or empty; publish it again")]
    TooShort(usize),
    /// The magic of the file is not the magic of this kind of file.
    #[error("the file does not begin with {expected}: it is not what its name says; publish it again")]
    WrongMagic {
        /// Magic of the expected kind of file.
        expected: &'static str,
    },
    /// This reader does not know the format major of the file.
    #[error(
        "the snapshot has format {0}, this reader knows format {FORMAT_MAJOR}: upgrade the sidecar (restart the pod), \
         or let an operator of the same version publish it"
    )]
    UnknownMajor(u16),
    /// The file requires features that this reader does not have.
    #[error(
        "the snapshot needs features {0:#x} that this reader does not have (it has {SUPPORTED_FEATURES:#x}): \
         upgrade the sidecar (restart the pod)"
    )]
    UnknownFeatures(u32),
    /// The length of the file differs from the length in its header.
    #[error("the header says {stated} bytes, the file has {actual}: it is cut off or mixed up; publish it again")]
    WrongLength {
        /// Length in the header, in bytes.
        stated: u64,
        /// Length of the file, in bytes.
        actual: usize,
    },
    /// The checksum does not match: the file was damaged after it was written.
    #[error("the checksum does not match: the file was damaged after it was written; publish it again")]
    WrongChecksum,
    /// The checksum matches, but a row refers to something that does not exist.
    #[error("{part} {index} is malformed: {problem}; this is a fault of the writer, please report it")]
    Malformed {
        /// Name of the table.
        part: &'static str,
        /// Row of the table.
        index: usize,
        /// Description of the problem.
        problem: &'static str,
    },
    /// The file belongs to another environment.
    #[error("the file belongs to another environment than the file core beside it")]
    OtherEnvironment,
    /// The parts hold another core than the pointer names: objects are published one after another.
    #[error("the parts hold revision {found} instead of {named}: the others are still on their way")]
    OtherRevision {
        /// Revision in the header of the first part.
        found: Revision,
        /// Revision in the pointer.
        named: Revision,
    },
    /// The parts do not belong to one core: objects are published one after another.
    #[error("the parts do not belong together: some of another revision are still on their way, or one is damaged")]
    MixedParts,
    /// The parts belong to two documents: objects are published one after another.
    #[error("part {0} belongs to another document than the first: the rest of one is still on its way")]
    OtherDocument(usize),
    /// The overrides file belongs to another slot than its name says.
    #[error("it is the overrides file number {found}, and its name says {named}: publish it again")]
    OtherSlot {
        /// Slot in the file.
        found: usize,
        /// Slot of the file's name.
        named: usize,
    },
    /// The overrides file has a slot number that this format does not have.
    #[error("the overrides file is number {0}, of which this format has fewer")]
    UnknownSlot(usize),
}
