use remora_snapshot::files;

use crate::{compile::digest::digest, compiler::Response};

/// An environment at one revision, as it is published: what was compiled, or what was found published after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision.
    pub revision: String,
    /// Overrides first, the core last: the order in which they are written.
    pub files: Vec<File>,
}

/// One file of a snapshot: one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name in the volume.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The SHA-256 of the bytes.
    pub digest: String,
}

impl File {
    /// A file with its digest.
    pub fn new(name: String, bytes: Vec<u8>) -> Self {
        let digest = digest(&bytes);
        Self { name, bytes, digest }
    }

    /// Whether this is the file that names the others.
    pub fn is_core(&self) -> bool {
        self.name == files::CORE
    }
}

impl Snapshot {
    /// A snapshot of these files.
    pub fn new(revision: String, mut files: Vec<File>) -> Self {
        files.sort_by(|a, b| a.is_core().cmp(&b.is_core()).then_with(|| a.name.cmp(&b.name)));
        Self { revision, files }
    }

    /// How many files have identity overrides, beside the core.
    pub fn overrides_files(&self) -> usize {
        self.files.iter().filter(|file| files::is_overrides(&file.name)).count()
    }

    /// The bytes of all files.
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
    fn the_core_is_written_last() {
        let file = |name: &str| File::new(name.to_owned(), vec![1]);
        let snapshot = Snapshot::new("r".to_owned(), vec![file("core"), file("overrides-01"), file("overrides-00")]);
        let names: Vec<_> = snapshot.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["overrides-00", "overrides-01", "core"]);
    }
}
