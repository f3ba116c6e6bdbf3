//! The pointer to a core in parts: the file `core` of a core that does not fit into one file.

use crate::ReadError;
use crate::format::{
    files::{self, CoreSet, MAX_CORE_BYTES},
    header::{malformed, read_header, stated_core},
    layout::{CoreParts, HEADER, POINTER_LENGTH, POINTER_MAGIC},
    revision::Revision,
};
use crate::values::{hash::Fingerprint, rows::Row};

/// Names the set of files that hold the published core. It is in the file `core`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    set: CoreSet,
    length: usize,
    revision: Revision,
    fingerprint: Fingerprint,
}

impl Pointer {
    /// Reads the file `core`. `None` if the file is not a pointer, which means that it is to be read as a core.
    ///
    /// # Errors
    /// The file is a pointer, and is damaged or of another format.
    pub fn read(file: &[u8]) -> Result<Option<Self>, ReadError> {
        if !file.starts_with(&POINTER_MAGIC) {
            return Ok(None);
        }
        let header = read_header(file, POINTER_MAGIC, "REMORA<SUB>P", POINTER_LENGTH)?;
        let row = file.get(HEADER..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
        let CoreParts { set, number, length } = CoreParts::decode(&row);
        let malformed = |problem| malformed("pointer", 0, problem);
        let set = match set {
            0 => CoreSet::A,
            1 => CoreSet::B,
            _ => return Err(malformed("there is no such set")),
        };
        let length = usize::try_from(length).ok().filter(|length| *length <= MAX_CORE_BYTES);
        let length = length.ok_or_else(|| malformed("a core is never that long"))?;
        if files::part_lengths(length).count() != number as usize || number == 0 {
            return Err(malformed("a core of that length has another number of parts"));
        }
        Ok(Some(Self { set, length, revision: header.revision, fingerprint: header.fingerprint }))
    }

    /// Set of files that holds the core.
    #[must_use]
    pub fn set(&self) -> CoreSet {
        self.set
    }

    /// Length of the core in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Revision of the core.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Environment of the core.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Returns the length of a core in bytes, as its first part states it.
///
/// # Errors
/// The bytes are not the start of a core of this format, or the core would be longer than [`MAX_CORE_BYTES`].
pub fn core_length(first_part: &[u8]) -> Result<usize, ReadError> {
    let header = stated_core(first_part)?;
    let length = usize::try_from(header.length).ok().filter(|length| *length <= MAX_CORE_BYTES);
    length.ok_or_else(|| malformed("header", 0, "a core is never that long"))
}
