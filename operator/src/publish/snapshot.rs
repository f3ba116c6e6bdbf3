//! Files of one revision, as they are written to objects and read from them.

use std::{collections::BTreeMap, sync::Arc};

use remora_compile::digest::Digest;
use remora_snapshot::files;

use super::Error;
use crate::{
    api::Revision,
    compiler::Response,
    memory::{Memory, Reserved, Share},
};

/// Memory that a snapshot takes beside its files and its record: its state and the status.
const BESIDE_FILES: usize = 16 << 10;
/// Largest size of all files of a snapshot in bytes: the core, the overrides and the document.
const FILES_BYTES: usize =
    files::MAX_CORE_BYTES + (files::OVERRIDES_SLOTS + files::DOCUMENT_SLOTS) * files::MAX_FILE_BYTES;

/// Published form of an environment at one revision, either compiled by this process or read from the cluster after a
/// restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Revision, which identifies the content of all files.
    pub revision: Revision,
    /// Files in the order in which they are written: overrides first, the core last.
    pub files: Vec<File>,
    /// Digests of the parts in which the core is published. Empty if the core is published in one object.
    pub(super) parts: Vec<Digest>,
    memory_hold: MemoryHold,
}

/// Memory that a snapshot has reserved. It is no part of the content, so all are equal.
#[derive(Clone, Debug, Default)]
struct MemoryHold(Option<Arc<Reserved>>);

impl PartialEq for MemoryHold {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for MemoryHold {}

/// File of a snapshot. Each file is published in one object, except a core that needs several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Name of the file in the volume.
    pub name: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
    /// Digest of the content.
    pub digest: Digest,
}

impl File {
    /// Creates a file and computes its digest.
    pub fn new(name: String, bytes: Vec<u8>) -> Self {
        let digest = Digest::of(&bytes);
        Self { name, bytes, digest }
    }

    /// True if this file is the core, which names the other files.
    pub fn is_core(&self) -> bool {
        self.name == files::CORE
    }

    /// Returns the largest size in bytes that a file of this name may have.
    pub(super) fn limit(&self) -> usize {
        if self.is_core() { files::MAX_CORE_BYTES } else { files::MAX_FILE_BYTES }
    }
}

impl Snapshot {
    /// Creates a snapshot and sorts its files into the order in which they are written.
    pub fn new(revision: Revision, mut files: Vec<File>) -> Self {
        files.sort_by(|a, b| a.is_core().cmp(&b.is_core()).then_with(|| a.name.cmp(&b.name)));
        let parts = files.last().filter(|last| last.is_core()).map(|core| part_digests(&core.bytes));
        Self { revision, parts: parts.unwrap_or_default(), files, memory_hold: MemoryHold::default() }
    }

    /// Reserves the memory that the snapshot takes, until it is dropped. `record_bytes` is the memory of its record.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]: the namespace has used up its share. The snapshot must not be kept then.
    pub fn reserve_in(&mut self, memory: &Arc<Memory>, namespace: &str, record_bytes: usize) -> Result<(), Error> {
        let bytes = self.size() + BESIDE_FILES + record_bytes;
        // A snapshot that was read has the memory of its files.
        let reserved = match self.memory_hold.0.take().and_then(Arc::into_inner) {
            Some(mut reserved) => reserved.resize(bytes).map(|()| reserved),
            None => memory.share(namespace).reserve(bytes),
        };
        let reserved = reserved.map_err(|_| Error::OutOfMemory { bytes, limit: memory.bytes() })?;
        self.memory_hold = MemoryHold(Some(Arc::new(reserved)));
        Ok(())
    }

    /// Takes over the memory that was reserved while the snapshot was read.
    pub(super) fn holding(mut self, reading: Reading) -> Self {
        self.memory_hold = MemoryHold(reading.reserved.map(Arc::new));
        self
    }

    /// Returns the core.
    pub fn core(&self) -> Option<&File> {
        self.files.last().filter(|last| last.is_core())
    }

    /// Returns the digest of each file that a copy of the snapshot has, by file name.
    pub fn digests(&self) -> BTreeMap<String, Digest> {
        let contents = self.archive_contents().into_iter();
        contents.map(|content| (content.file.into_owned(), content.digest.into_owned())).collect()
    }

    /// Returns the number of parts in which the core is published. 0 if the core is published in one object.
    pub fn core_parts(&self) -> usize {
        self.parts.len()
    }

    /// Returns the size of the core in bytes.
    pub fn core_bytes(&self) -> usize {
        self.core().map_or(0, |core| core.bytes.len())
    }

    /// Returns the size in bytes of the files in the volume of a pod. Beside a core in parts, the volume has the core
    /// before it, which is about as large.
    pub fn volume_bytes(&self) -> usize {
        self.size() + if self.core_parts() > 0 { self.core_bytes() } else { 0 }
    }

    /// Returns the number of files with identity overrides.
    pub fn overrides_files(&self) -> usize {
        self.files.iter().filter(|file| files::is_overrides(&file.name)).count()
    }

    /// Returns the total size of all files in bytes.
    pub fn size(&self) -> usize {
        self.files.iter().map(|file| file.bytes.len()).sum()
    }
}

impl From<Response> for Snapshot {
    fn from(compiled: Response) -> Self {
        let files = compiled.files.into_iter().map(|file| File::new(file.name, file.bytes)).collect();
        Self::new(Revision::new(compiled.revision), files)
    }
}

/// Memory of a snapshot that is being read from the cluster. It grows with each object, so that at most one object is in
/// memory that is not reserved.
#[derive(Debug)]
pub(super) struct Reading {
    share: Arc<Share>,
    reserved: Option<Reserved>,
    bytes: usize,
    limit: usize,
}

impl Reading {
    /// Begins to read a snapshot of this namespace.
    pub(super) fn new(memory: &Arc<Memory>, namespace: &str) -> Self {
        Self { share: memory.share(namespace), reserved: None, bytes: 0, limit: memory.bytes() }
    }

    /// Reserves the memory of a further object.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]: the namespace has used up its share.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes;
        let reserved = match &mut self.reserved {
            Some(reserved) => reserved.resize(self.bytes),
            None => self.share.reserve(self.bytes).map(|reserved| self.reserved = Some(reserved)),
        };
        reserved.map_err(|_| Error::OutOfMemory { bytes: self.bytes, limit: self.limit })
    }
}

/// True if a snapshot can have files of these sizes. Whoever may write the objects that hold them decides how large they
/// are.
pub(super) fn are_bounded(files: &[File]) -> bool {
    let sum: usize = files.iter().map(|file| file.bytes.len()).sum();
    sum <= FILES_BYTES && files.iter().all(|file| file.bytes.len() <= file.limit())
}

/// Returns the digests of the parts of a core. Empty if the core is one object.
fn part_digests(core: &[u8]) -> Vec<Digest> {
    if core.len() <= files::MAX_FILE_BYTES { Vec::new() } else { files::parts(core).map(Digest::of).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_is_written_last() {
        let file = |name: &str| File::new(name.to_owned(), vec![1]);
        let snapshot =
            Snapshot::new(Revision::new("r"), vec![file("core"), file("overrides-01"), file("overrides-00")]);
        let names: Vec<_> = snapshot.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["overrides-00", "overrides-01", "core"]);
    }

    #[test]
    fn files_beyond_those_of_largest_snapshot_are_not_bounded() {
        // The digest is not read.
        let file = |name: String, bytes: usize| File { name, bytes: vec![0; bytes], digest: Digest::of(&[]) };
        let names = (0..files::OVERRIDES_SLOTS).map(files::overrides);
        let names = names.chain((0..files::DOCUMENT_SLOTS).map(files::document));
        let mut largest: Vec<File> = names.map(|name| file(name, files::MAX_FILE_BYTES)).collect();
        largest.push(file(files::CORE.to_owned(), files::MAX_CORE_BYTES));
        assert!(are_bounded(&largest));
        largest.push(file(files::core_part(files::CoreSet::B, 0), 1));
        assert!(!are_bounded(&largest), "all files together have one byte too many");
        assert!(!are_bounded(&[file(files::overrides(0), files::MAX_FILE_BYTES + 1)]));
        assert!(!are_bounded(&[file(files::CORE.to_owned(), files::MAX_CORE_BYTES + 1)]));
    }
}
