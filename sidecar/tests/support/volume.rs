//! A directory that is written in the way of kubelet's volumes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use remora_snapshot::files::{self, CORE, CoreSet};

/// A temporary directory, which is removed at the end of the test.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("remora-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Creates the volume of an environment in this directory.
    pub(crate) fn volume(&self, environment: &str) -> Volume {
        let path = self.0.join(environment);
        fs::create_dir_all(&path).unwrap();
        Volume { path, generation: 0 }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes as kubelet's atomic writer does: creates a new directory, renames the link, and removes the old directory.
pub(crate) struct Volume {
    pub(crate) path: PathBuf,
    generation: u64,
}

impl Volume {
    pub(crate) fn publish<'a>(&mut self, files: impl IntoIterator<Item = (&'a str, &'a [u8])>) {
        self.publish_with(files, |_| {});
    }

    /// Publishes files, and whatever `add` adds to their directory before it is visible.
    pub(crate) fn publish_with<'a>(
        &mut self,
        files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        add: impl FnOnce(&Path),
    ) {
        self.generation += 1;
        let name = format!("..2026_11_21_02_00_00.{}", self.generation);
        let directory = self.path.join(&name);
        fs::create_dir(&directory).unwrap();
        for (file, bytes) in files {
            fs::write(directory.join(file), bytes).unwrap();
            let visible = self.path.join(file);
            if !visible.exists() {
                let _ = fs::remove_file(&visible);
                symlink(Path::new("..data").join(file), visible).unwrap();
            }
        }
        add(&directory);
        let old = fs::read_link(self.path.join("..data")).ok();
        symlink(&name, self.path.join("..data_tmp")).unwrap();
        fs::rename(self.path.join("..data_tmp"), self.path.join("..data")).unwrap();
        if let Some(old) = old {
            fs::remove_dir_all(self.path.join(old)).unwrap();
        }
    }

    pub(crate) fn publish_written(&mut self, written: &remora_snapshot::Written) {
        self.publish(written.files.iter().map(|file| (file.name.as_str(), file.bytes.as_slice())));
    }
}

/// Creates a file that the system refuses to open: a link to itself.
pub(crate) fn create_unreadable(path: &Path) {
    symlink(path, path).unwrap();
}

/// Replaces such a file by one with content. A directory with a link to it does not change.
pub(crate) fn make_readable(path: &Path, bytes: &[u8]) {
    let written = path.with_extension("written");
    fs::write(&written, bytes).unwrap();
    fs::rename(written, path).unwrap();
}

/// Cuts the core of a snapshot into the files of a set, and adds the pointer to them.
pub(crate) fn in_parts(written: &remora_snapshot::Written, set: CoreSet) -> Vec<(String, Vec<u8>)> {
    let core = &written.files[0].bytes;
    let parts = files::parts(core).enumerate().map(|(part, bytes)| (files::core_part(set, part), bytes.to_vec()));
    parts.chain([(CORE.to_owned(), remora_snapshot::pointer(core, set).unwrap())]).collect()
}
