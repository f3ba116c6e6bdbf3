//! The files of one environment's volume, in memory.
//!
//! Kubelet writes a volume into a new directory and renames a link, `..data`, onto it. A reader that opens the
//! directory behind the link once, and all files relative to it, sees files of one version, whatever is renamed
//! meanwhile.

mod mapping;
mod sealed;

use std::cell::Cell;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use remora_snapshot::files::{self, CoreSet, MAX_FILE_BYTES};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use crate::log;
use mapping::Source;
pub(crate) use sealed::Unsealed;

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

/// Bytes of a file, or of a core in parts, shared by all answers that refer to them.
#[derive(Debug, Clone)]
pub(crate) struct Region(Arc<Mmap>);

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Mmap> for Region {
    fn from(map: Mmap) -> Region {
        Region(Arc::new(map))
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
    /// The system refused memory for the files.
    #[error("cannot reserve memory for the files: {0}")]
    Memory(std::io::Error),
    /// The file is larger than a snapshot's file can be.
    #[error("{name} has {size} bytes, and a file of a snapshot has at most {MAX_FILE_BYTES}: publish it again")]
    TooLarge {
        /// Name of the file.
        name: String,
        /// Size of the file in bytes.
        size: u64,
    },
    /// A part of a core is missing.
    #[error("{name} is missing")]
    NoPart {
        /// Name of the file.
        name: String,
    },
    /// A part has another size than this part of that core.
    #[error("{name} has {size} bytes instead of {expected}")]
    WrongPart {
        /// Name of the file.
        name: String,
        /// Size of the file in bytes.
        size: usize,
        /// Size of the part in bytes.
        expected: usize,
    },
    /// The entry is not a regular file, or is empty, and has no bytes to map.
    #[error("{name} is not a regular file, or is empty: publish it again")]
    NotAFile {
        /// Name of the file.
        name: String,
    },
}

impl MapError {
    /// True if the system refused to read the file, which may pass without a change of the file.
    pub(crate) fn is_of_system(&self) -> bool {
        matches!(self, MapError::Read { .. } | MapError::Memory(_))
    }
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
    /// False if files are copied, because they may change or could not be mapped.
    in_place: Cell<bool>,
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
        let immutable = in_pod && renamed && read_only;
        Ok(Some(Volume { directory: data, identity, immutable, in_place: Cell::new(immutable) }))
    }

    /// Identity of the directory, which is the same until the link is renamed.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// True if the files never change.
    pub(crate) fn is_immutable(&self) -> bool {
        self.immutable
    }

    /// True if files are mapped in place, false if they are copied.
    pub(crate) fn maps_in_place(&self) -> bool {
        self.in_place.get()
    }

    /// Copies files from now on.
    pub(crate) fn copy_files(&self) {
        self.in_place.set(false);
    }

    /// Loads a file. `None` if there is no such file.
    ///
    /// # Errors
    /// The file could not be read, is larger than [`MAX_FILE_BYTES`], or is not a regular file with content.
    pub(crate) fn map(&self, name: &str) -> Result<Option<Region>, MapError> {
        let Some(source) = self.source(name)? else { return Ok(None) };
        self.load(&[source]).map(Some)
    }

    /// Loads the parts of a core with `length` bytes, one after another.
    ///
    /// # Errors
    /// A part is missing, could not be read, or has another size than this part of such a core.
    pub(crate) fn map_parts(&self, set: CoreSet, length: usize) -> Result<Region, MapError> {
        let part = |(part, expected)| {
            let name = files::core_part(set, part);
            match self.source(&name)? {
                Some(source) if source.length == expected => Ok(source),
                Some(source) => Err(MapError::WrongPart { name, size: source.length, expected }),
                None => Err(MapError::NoPart { name }),
            }
        };
        let sources = files::part_lengths(length).enumerate().map(part).collect::<Result<Vec<_>, _>>()?;
        self.load(&sources)
    }

    /// Opens a file with content. `None` if there is no such file.
    fn source(&self, name: &str) -> Result<Option<Source>, MapError> {
        let Some(file) = self.open_file(name)? else { return Ok(None) };
        let stat =
            rustix::fs::fstat(&file).map_err(|cause| MapError::Read { name: name.to_owned(), cause: cause.into() })?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() || stat.st_size == 0 {
            return Err(MapError::NotAFile { name: name.to_owned() });
        }
        match usize::try_from(stat.st_size) {
            Ok(length) if length <= MAX_FILE_BYTES => Ok(Some(Source { name: name.to_owned(), file, length })),
            _ => Err(MapError::TooLarge { name: name.to_owned(), size: stat.st_size.unsigned_abs() }),
        }
    }

    /// Loads files, one after another.
    fn load(&self, sources: &[Source]) -> Result<Region, MapError> {
        if self.maps_in_place() {
            match mapping::map_in_place(sources) {
                // A failed attempt cannot give its addresses back, so there is only one.
                Err(MapError::Read { name, cause }) => {
                    log::warning!("cannot map {name} in place: {cause}; copying the files of this volume");
                    self.copy_files();
                }
                other => return other,
            }
        }
        mapping::copy(sources)
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use remora_snapshot::files::PART_BYTES;

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
    fn volume_whose_files_cannot_be_mapped_in_place_is_copied_from_then_on() {
        let path = volume("in-place", &[("one", &[1; 70_001]), ("two", b"2")]);
        let mut opened = Volume::open(&path, true).unwrap().unwrap();
        opened.immutable = true;
        opened.in_place.set(true);
        let sources = ["one", "two"].map(|name| opened.source(name).unwrap().unwrap());
        // The second file does not begin a page.
        assert_eq!(opened.load(&sources).unwrap().as_ref().len(), 70_002);
        assert!(opened.is_immutable() && !opened.maps_in_place());
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
        let source = opened.source("core").unwrap().unwrap();
        set_length(MAX_FILE_BYTES as u64 + 100);
        assert_eq!(opened.load(&[source]).unwrap().as_ref().len(), MAX_FILE_BYTES);
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn parts_are_loaded_only_with_their_sizes() {
        let (whole, rest) = (vec![1; PART_BYTES], vec![2; PART_BYTES - 7]);
        let path = volume("parts", &[("core-a-00", &whole), ("core-a-01", &rest), ("core-b-01", &rest)]);
        let opened = Volume::open(&path, false).unwrap().unwrap();
        let load = |set, length| opened.map_parts(set, length);
        let length = 2 * PART_BYTES - 7;
        assert_eq!(load(CoreSet::A, length).unwrap().as_ref(), [whole, rest].concat());
        assert!(matches!(
            load(CoreSet::A, length - 1),
            Err(MapError::WrongPart { name, expected, .. }) if name == "core-a-01" && expected == PART_BYTES - 8
        ));
        assert!(matches!(load(CoreSet::A, 3 * PART_BYTES), Err(MapError::WrongPart { .. })));
        assert!(matches!(load(CoreSet::B, length), Err(MapError::NoPart { name }) if name == "core-b-00"));
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
