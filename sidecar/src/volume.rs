//! The files of one environment's volume, in memory.
//!
//! Kubelet writes a volume into a new directory and renames a link, `..data`, onto it. A reader that opens the
//! directory behind the link once, and all files relative to it, sees files of one version, whatever is renamed
//! meanwhile.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};
use remora_snapshot::files::MAX_FILE_BYTES;
use rustix::fs::{AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags};
use rustix::io::Errno;

/// Name of the link that kubelet renames when the files change.
const DATA_LINK: &str = "..data";

/// Variable with the address of the API server. Kubelet sets it in every container; outside of a pod it is usually
/// unset.
const POD_VARIABLE: &str = "KUBERNETES_SERVICE_HOST";

/// Pattern of the names of the directories behind the link: the time and a number. Each `0` stands for a digit.
const KUBELET_NAME: &[u8] = b"..0000_00_00_00_00_00.";

/// True if the process runs in a container that kubelet started.
pub(crate) fn is_in_pod() -> bool {
    std::env::var_os(POD_VARIABLE).is_some()
}

/// True if kubelet gives directories such names: `..2026_11_21_02_00_00.123456789`.
fn is_kubelets(name: &[u8]) -> bool {
    let (Some(time), Some(number)) = (name.get(..KUBELET_NAME.len()), name.get(KUBELET_NAME.len()..)) else {
        return false;
    };
    let fits = |(byte, shape): (&u8, &u8)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    time.iter().zip(KUBELET_NAME).all(fits) && !number.is_empty() && number.iter().all(u8::is_ascii_digit)
}

/// Bytes of a file, shared by all answers that refer to them.
#[derive(Debug, Clone)]
pub(crate) struct Region(Arc<Mmap>);

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Reason why a file of a volume could not be loaded into memory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    /// The directory or the file could not be opened or read.
    #[error("cannot read {name}: {cause}")]
    Read {
        /// Name of the file or directory.
        name: String,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// The file is larger than a snapshot's file can be.
    #[error("{name} has {size} bytes, and a file of a snapshot has at most {MAX_FILE_BYTES}: publish it again")]
    TooLarge {
        /// Name of the file.
        name: String,
        /// Size of the file in bytes, or of the part that was read.
        size: u64,
    },
    /// The entry is not a regular file, or is empty, and has no bytes to map.
    #[error("{name} is not a regular file, or is empty: publish it again")]
    NotAFile {
        /// Name of the file.
        name: String,
    },
}

/// Identity of a directory, which differs from that of the directory that will replace it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

/// The directory behind `..data` at the time it was opened.
#[derive(Debug)]
pub(crate) struct Volume {
    directory: OwnedFd,
    identity: Identity,
    immutable: bool,
}

impl Volume {
    /// Opens the directory behind `..data` in `directory`. `None` if there is no such link. With `in_pod`, its files
    /// may be mapped without a copy.
    ///
    /// # Errors
    /// The directory could not be opened.
    pub(crate) fn open(directory: &Path, in_pod: bool) -> Result<Option<Volume>, MapError> {
        let fail = |cause: Errno| MapError::Read {
            name: directory.join(DATA_LINK).display().to_string(),
            cause: cause.into(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let link = directory.join(DATA_LINK);
        let data = match rustix::fs::openat(CWD, &link, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(fail)?,
        };
        let stat = rustix::fs::fstat(&data).map_err(fail)?;
        let identity = Identity {
            device: stat.st_dev,
            inode: stat.st_ino,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        };
        // Truncating a file while it is mapped ends the process, so three conditions must hold: the name has kubelet's
        // pattern, no process in this container can write there, and kubelet started this container. Outside of a pod,
        // the owner of a directory can still write to it where this mount of it is read-only.
        let renamed = rustix::fs::readlinkat(CWD, &link, Vec::new()).is_ok_and(|target| is_kubelets(target.to_bytes()));
        let read_only = rustix::fs::fstatvfs(&data).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY));
        Ok(Some(Volume { directory: data, identity, immutable: in_pod && renamed && read_only }))
    }

    /// Identity of the directory, which is the same until the link is renamed.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// True if files are mapped in place, false if they are copied.
    pub(crate) fn is_immutable(&self) -> bool {
        self.immutable
    }

    /// Loads a file. `None` if there is no such file.
    ///
    /// # Errors
    /// The file could not be read, is larger than [`MAX_FILE_BYTES`], or is not a regular file with content.
    pub(crate) fn map(&self, name: &str) -> Result<Option<Region>, MapError> {
        let Some(file) = self.open_file(name)? else { return Ok(None) };
        let fail = |cause| MapError::Read { name: name.to_owned(), cause };
        let stat = rustix::fs::fstat(&file).map_err(|cause| fail(cause.into()))?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() || stat.st_size == 0 {
            return Err(MapError::NotAFile { name: name.to_owned() });
        }
        let too_large = |size: u64| MapError::TooLarge { name: name.to_owned(), size };
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > MAX_FILE_BYTES as u64 {
            return Err(too_large(size));
        }
        let map = if self.immutable { map_in_place(&file) } else { copy(file) }.map_err(fail)?;
        // The file may have grown after its size was read.
        if map.len() > MAX_FILE_BYTES {
            return Err(too_large(map.len() as u64));
        }
        Ok(Some(Region(Arc::new(map))))
    }

    /// Reads the first `limit` bytes of a text file. `None` if there is no such file.
    pub(crate) fn read(&self, name: &str, limit: u64) -> Result<Option<String>, MapError> {
        let Some(file) = self.open_file(name)? else { return Ok(None) };
        let mut text = String::new();
        match file.take(limit).read_to_string(&mut text) {
            Ok(_) => Ok(Some(text)),
            Err(cause) => Err(MapError::Read { name: name.to_owned(), cause }),
        }
    }

    fn open_file(&self, name: &str) -> Result<Option<File>, MapError> {
        // Non-blocking, because opening a named pipe would block the thread.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(File::from(file))),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(MapError::Read { name: name.to_owned(), cause: cause.into() }),
        }
    }
}

/// True if `directory` is itself a volume that kubelet wrote, and not a directory of volumes.
pub(crate) fn is_volume(directory: &Path) -> bool {
    rustix::fs::statat(CWD, directory.join(DATA_LINK), AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Maps a file of a kubelet volume without copying it.
#[expect(unsafe_code, reason = "the one place where a file is mapped that the kernel does not prove immutable")]
fn map_in_place(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: a mapping is unsound if the file behind it is written or truncated while it is mapped. This function is
    // only called in a container that kubelet started, for files behind kubelet's `..data` link, on a mount that is
    // read-only for this container. Kubelet's writer never touches a file after the link refers to its directory: an
    // update goes to a new directory, the link is renamed, and the old files are unlinked, which keeps their bytes for
    // existing mappings. No process of this container can write there, because the mount is read-only, and every other
    // container gets the volume read-only, too. Root on the node can write there, and can do anything else to this
    // process as well; the reader checks every offset all the same.
    unsafe { Mmap::map(file) }
}

/// Copies a file into sealed memory, which cannot change any more, and maps that. Of a file larger than the limit, it
/// copies one byte more than the limit, so that the caller can refuse it.
fn copy(file: File) -> std::io::Result<Mmap> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut memory = File::from(rustix::fs::memfd_create("remora", flags)?);
    std::io::copy(&mut file.take(MAX_FILE_BYTES as u64 + 1), &mut memory)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    Ok(MmapOptions::new().map_if_safe(&memory)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn volume(name: &str, files: &[(&str, &[u8])]) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("remora-map-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("..1")).unwrap();
        for (file, bytes) in files {
            std::fs::write(path.join("..1").join(file), bytes).unwrap();
        }
        symlink("..1", path.join("..data")).unwrap();
        path
    }

    #[test]
    fn copied_file_survives_truncation_and_removal() {
        let path = volume("copy", &[("core", b"bytes")]);
        let opened = Volume::open(&path, true).unwrap().unwrap();
        assert!(!opened.is_immutable(), "a directory that can be written to");
        let region = opened.map("core").unwrap().unwrap();
        std::fs::write(path.join("..1/core"), b"").unwrap();
        assert_eq!(region.as_ref(), b"bytes");
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(region.as_ref(), b"bytes");
        assert!(opened.map("core").unwrap().is_none());
    }

    #[test]
    fn empty_file_and_directory_are_refused() {
        let path = volume("odd", &[("empty", b"")]);
        std::fs::create_dir(path.join("..1/directory")).unwrap();
        let opened = Volume::open(&path, true).unwrap().unwrap();
        assert!(opened.map("missing").unwrap().is_none());
        assert!(matches!(opened.map("empty"), Err(MapError::NotAFile { .. })));
        assert!(matches!(opened.map("directory"), Err(MapError::NotAFile { .. })));
        std::fs::remove_dir_all(&path).unwrap();
        assert!(Volume::open(&path, true).unwrap().is_none());
    }

    #[test]
    fn renamed_link_changes_the_volume_identity() {
        let path = volume("rename", &[("core", b"one")]);
        let one = Volume::open(&path, true).unwrap().unwrap();
        assert_eq!(one.identity(), Volume::open(&path, true).unwrap().unwrap().identity());
        std::fs::create_dir(path.join("..2")).unwrap();
        symlink("..2", path.join("..data_tmp")).unwrap();
        std::fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
        assert_ne!(one.identity(), Volume::open(&path, true).unwrap().unwrap().identity());
        assert!(is_volume(&path));
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn file_beyond_the_size_limit_is_refused_before_the_copy() {
        let path = volume("large", &[("core", b"bytes")]);
        let opened = Volume::open(&path, false).unwrap().unwrap();
        let set_length =
            |length| File::options().write(true).open(path.join("..1/core")).unwrap().set_len(length).unwrap();
        set_length(5 << 30);
        let refused = opened.map("core").unwrap_err();
        assert!(matches!(refused, MapError::TooLarge { size: 5_368_709_120, .. }), "{refused}");
        assert!(refused.to_string().contains("at most 1000000"), "{refused}");
        set_length(MAX_FILE_BYTES as u64);
        assert_eq!(opened.map("core").unwrap().unwrap().as_ref().len(), MAX_FILE_BYTES);
        // A file that grows after its size was read.
        set_length(MAX_FILE_BYTES as u64 + 100);
        assert_eq!(copy(File::open(path.join("..1/core")).unwrap()).unwrap().len(), MAX_FILE_BYTES + 1);
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn only_names_in_the_pattern_of_kubelet_are_recognized() {
        assert!(is_kubelets(b"..2026_11_21_02_00_00.123456789"));
        for name in [
            "..2026_11_21_02_00_00.",
            "..2026_11_21_02_00_00",
            "..0123456789ab",
            "..data",
            "..1",
            "/..2026_11_21_02_00_00.1",
            "..2026_11_21_02_00_00.1/x",
        ] {
            assert!(!is_kubelets(name.as_bytes()), "{name}");
        }
    }
}
