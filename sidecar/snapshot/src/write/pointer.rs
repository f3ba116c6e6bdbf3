//! The pointer to a core in parts.

use super::{check, head, put};
use crate::ReadError;
use crate::format::{
    files::{self, CoreSet},
    header::stated_core,
    layout::{CHECKED_FROM, CoreParts, HEADER, POINTER_LENGTH, POINTER_MAGIC},
};
use crate::values::rows::Row;

/// Writes the file `core` for a core whose parts ([`files::parts`]) are in the files of `set`.
///
/// # Errors
/// The bytes are not a core of this format.
pub fn pointer(core: &[u8], set: CoreSet) -> Result<Vec<u8>, ReadError> {
    let header = stated_core(core)?;
    let number = files::part_lengths(core.len()).count() as u32; // as many as the caller has memory for
    let parts = CoreParts { set: set as u32, number, length: core.len() as u64 };
    let mut file = vec![0; POINTER_LENGTH];
    put(&mut file, HEADER, &parts.encode());
    head(&mut file, POINTER_MAGIC, header.fingerprint);
    put(&mut file, CHECKED_FROM, &header.revision.0.to_le_bytes());
    check(&mut file);
    Ok(file)
}
