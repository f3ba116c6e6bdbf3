use remora_snapshot::files;

use crate::{compile::digest::digest, compiler::Response};

/// Published form of an environment at one revision, either compiled by this process or read from the cluster after a
/// restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Revision, which identifies the content of all files.
    pub revision: String,
    /// Files in the order in which they are written: overrides first, the core last.
    pub files: Vec<File>,
}

/// File of a snapshot. Each file is published in one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Name of the file in the volume.
    pub name: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
    /// SHA-256 of the content, in hexadecimal.
    pub digest: String,
}

impl File {
    /// Creates a file and computes its digest.
    pub fn new(name: String, bytes: Vec<u8>) -> Self {
        let digest = digest(&bytes);
        Self { name, bytes, digest }
    }

    /// True if this file is the core, which names the other files.
    pub fn is_core(&self) -> bool {
        self.name == files::CORE
    }
}

impl Snapshot {
    /// Creates a snapshot and sorts its files into the order in which they are written.
    pub fn new(revision: String, mut files: Vec<File>) -> Self {
        files.sort_by(|a, b| a.is_core().cmp(&b.is_core()).then_with(|| a.name.cmp(&b.name)));
        Self { revision, files }
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
        Self::new(compiled.revision, files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_is_written_last() {
        let file = |name: &str| File::new(name.to_owned(), vec![1]);
        let snapshot = Snapshot::new("r".to_owned(), vec![file("core"), file("overrides-01"), file("overrides-00")]);
        let names: Vec<_> = snapshot.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["overrides-00", "overrides-01", "core"]);
    }
}
