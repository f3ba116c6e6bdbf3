//! The core of a snapshot as files, one or several.

use remora_snapshot::{
    File, Pointer, ReadError, Snapshot,
    files::{self, CORE, CoreSet, MAX_FILE_BYTES},
    pointer,
};

/// Reads a core from the content of the file `core`. If that is a pointer, `part` returns the content of each part, by
/// its name.
///
/// # Errors
/// Those of `part`, or the files do not form one core.
pub fn read<E: From<ReadError>>(
    file: Vec<u8>,
    mut part: impl FnMut(&str) -> Result<Vec<u8>, E>,
) -> Result<Snapshot<Vec<u8>>, E> {
    let Some(pointer) = Pointer::read(&file)? else { return Ok(Snapshot::read(file)?) };
    let mut core = Vec::new();
    for number in 0..files::part_lengths(pointer.length()).count() {
        core.extend(part(&files::core_part(pointer.set(), number))?);
    }
    Ok(Snapshot::read_parts(core, &pointer)?)
}

/// Cuts the core of a compiled snapshot into parts and a pointer, unless it fits into one file.
///
/// # Errors
/// The core is not one of this format.
pub(super) fn cut(compiled: &[File]) -> Result<Vec<File>, ReadError> {
    let mut cut = Vec::with_capacity(compiled.len());
    for file in compiled {
        if file.name != CORE || file.bytes.len() <= MAX_FILE_BYTES {
            cut.push(file.clone());
            continue;
        }
        let set = CoreSet::A;
        cut.push(File { name: CORE.to_owned(), bytes: pointer(&file.bytes, set)? });
        let part = |(part, bytes): (usize, &[u8])| File { name: files::core_part(set, part), bytes: bytes.to_vec() };
        cut.extend(files::parts(&file.bytes).enumerate().map(part));
    }
    Ok(cut)
}
