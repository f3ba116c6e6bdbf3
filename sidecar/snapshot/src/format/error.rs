//! Why bytes are not a snapshot.

use crate::format::layout::{FORMAT_MAJOR, SUPPORTED_FEATURES};

/// Why a file was refused. The file it was meant to replace goes on being served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The file ends before its header does.
    #[error("{0} bytes are too few for a snapshot's header: the file is cut off or empty; publish it again")]
    TooShort(usize),
    /// The file does not begin as this kind of file does.
    #[error("the file does not begin with {expected}: it is not what its name says; publish it again")]
    WrongMagic {
        /// Which kind of file was expected.
        expected: &'static str,
    },
    /// The file is of a format that this reader does not know.
    #[error(
        "the snapshot has format {0}, this reader knows format {FORMAT_MAJOR}: upgrade the sidecar (restart the pod), \
         or let an operator of the same version publish it"
    )]
    UnknownMajor(u16),
    /// The file needs something that this reader cannot do.
    #[error(
        "the snapshot needs features {0:#x} that this reader does not have (it has {SUPPORTED_FEATURES:#x}): \
         upgrade the sidecar (restart the pod)"
    )]
    UnknownFeatures(u32),
    /// The file is shorter or longer than it says.
    #[error("the header says {stated} bytes, the file has {actual}: it is cut off or mixed up; publish it again")]
    WrongLength {
        /// What the header says.
        stated: u64,
        /// What there is.
        actual: usize,
    },
    /// The bytes are not those that were written.
    #[error("the checksum does not match: the file was damaged after it was written; publish it again")]
    WrongChecksum,
    /// The checksum is right, yet a part refers to something that is not there.
    #[error("{part} {index} is malformed: {problem}; this is a fault of the writer, please report it")]
    Malformed {
        /// Which table.
        part: &'static str,
        /// Which row of it.
        index: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// An overrides file of another environment.
    #[error("the overrides belong to another environment than the core they were put beside")]
    OtherEnvironment,
    /// Parts of two documents: objects are published one after another.
    #[error("part {0} belongs to another document than the first: the rest of one is still on its way")]
    OtherDocument(usize),
    /// An overrides file with a slot that its core does not know.
    #[error("the overrides file is number {0}, of which this format has fewer")]
    UnknownSlot(usize),
}
