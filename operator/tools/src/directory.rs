//! Snapshots in directories with the layout of a kubelet's volumes: each revision has a new directory, and a link
//! `..data` to it is renamed over the previous one, so a reader sees either one revision or the other.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use remora_compile::Compiled;
use remora_snapshot::{Document, ReadError, Snapshot, files};

use crate::parts;

/// Failure to read or write a snapshot directory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// Verb of the operation, for the message.
        action: &'static str,
        /// File or directory that the operation was about.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The directory holds no snapshot.
    #[error(
        "{0} holds no snapshot, neither a file `core` nor directories with one: write one with `remora-operator compile`"
    )]
    NoSnapshot(PathBuf),
    /// The directory holds several environments, and the caller named none.
    #[error("{path} holds several environments ({names}): name one with --environment")]
    Several {
        /// Directory with the environments.
        path: PathBuf,
        /// Names of the environments, separated by commas.
        names: String,
    },
    /// A file or link is in the way that `compile` did not write.
    #[error(
        "{path} is {found}, which `remora-operator compile` did not create and does not follow or delete: remove it, or choose another directory"
    )]
    Foreign {
        /// Path of the file or link.
        path: PathBuf,
        /// Kind of what is at that path, for the message.
        found: &'static str,
    },
    /// A file is not a valid part of a snapshot.
    #[error("{path}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Reason why the file is invalid.
        source: ReadError,
    },
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}

/// Writes a compiled environment to `directory/<environment>` with the layout of a mounted volume. Returns the path of
/// that volume.
///
/// The function neither follows nor deletes a file or link that it would not have written itself. No other process may
/// write to the directory at the same time.
///
/// # Errors
/// If a file operation fails, or a foreign file or link is in the way. The previous revision is then still in place.
pub fn write(directory: &Path, environment: &str, compiled: &Compiled) -> Result<PathBuf, Error> {
    let volume = directory.join(environment);
    if kind(&volume)? == Kind::Link {
        return Err(Error::Foreign { path: volume, found: "a link" });
    }
    fs::create_dir_all(&volume).map_err(file_error("create", &volume))?;
    let data = volume.join("..data");
    let previous = previous_revision(&data)?;
    let name = format!("..{}", compiled.revision);
    let target = volume.join(&name);
    let leftover = kind(&target)?;
    if matches!(leftover, Kind::Link | Kind::File) {
        return Err(Error::Foreign { path: target, found: "not a directory" });
    }
    let revision = compiled.revision.to_string();
    let cut = parts::cut(&compiled.files).map_err(|source| Error::Read { path: volume.join(files::CORE), source })?;
    let contents = || {
        let files = cut.iter().map(|file| (file.name.as_str(), file.bytes.as_slice()));
        files.chain([(files::REVISION, revision.as_bytes())])
    };
    for (name, _) in contents() {
        let link = volume.join(name);
        let is_ours = fs::read_link(&link).is_ok_and(|to| to == Path::new("..data").join(name));
        if !is_ours && kind(&link)? != Kind::Nothing {
            return Err(Error::Foreign { path: link, found: "not a link to the file of that name in ..data" });
        }
    }
    let next = volume.join("..data_tmp");
    let unfinished = kind(&next)?;
    if matches!(unfinished, Kind::File | Kind::Directory) {
        return Err(Error::Foreign { path: next, found: "not a link" });
    }
    if previous.as_deref() == Some(name.as_str()) {
        return Ok(volume);
    }

    if leftover == Kind::Directory {
        fs::remove_dir_all(&target).map_err(file_error("remove", &target))?; // leftover of a run that did not finish
    }
    fs::create_dir(&target).map_err(file_error("create", &target))?;
    for (name, bytes) in contents() {
        let path = target.join(name);
        fs::write(&path, bytes).map_err(file_error("write", &path))?;
        let link = volume.join(name);
        if kind(&link)? == Kind::Nothing {
            symlink(Path::new("..data").join(name), &link).map_err(file_error("link", &link))?;
        }
    }

    if unfinished == Kind::Link {
        fs::remove_file(&next).map_err(file_error("remove", &next))?;
    }
    symlink(&name, &next).map_err(file_error("link", &next))?;
    fs::rename(&next, &data).map_err(file_error("rename", &next))?;
    if let Some(previous) = previous {
        let previous = volume.join(previous);
        fs::remove_dir_all(&previous).map_err(file_error("remove", &previous))?;
    }
    Ok(volume)
}

/// Returns the name of the directory of the previous revision, which `..data` links to. Fails if the link points
/// elsewhere.
fn previous_revision(data: &Path) -> Result<Option<String>, Error> {
    let foreign = |path: &Path, found| Err(Error::Foreign { path: path.to_owned(), found });
    match kind(data)? {
        Kind::Nothing => return Ok(None),
        Kind::File | Kind::Directory => return foreign(data, "not a link"),
        Kind::Link => {}
    }
    let to = fs::read_link(data).map_err(file_error("read", data))?;
    let name = to.to_str().filter(|name| {
        let digits = name.strip_prefix("..").unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    let Some(name) = name else { return foreign(data, "a link to something other than a revision beside it") };
    let directory = data.with_file_name(name);
    match kind(&directory)? {
        Kind::Directory => Ok(Some(name.to_owned())),
        // Somebody removed the directory of the revision by hand.
        Kind::Nothing => Ok(None),
        Kind::Link | Kind::File => foreign(&directory, "not a directory"),
    }
}

/// Type of the file at a path. Links are not followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    Link,
    Directory,
    File,
}

fn kind(path: &Path) -> Result<Kind, Error> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Ok(Kind::Link),
        Ok(found) if found.is_dir() => Ok(Kind::Directory),
        Ok(_) => Ok(Kind::File),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kind::Nothing),
        Err(error) => Err(file_error("inspect", path)(error)),
    }
}

/// Reads the snapshot of one environment, from its own directory or from a directory that holds several environments.
///
/// # Errors
/// If the directory holds no snapshot, holds several and `environment` is `None`, or the snapshot is malformed.
pub fn read(directory: &Path, environment: Option<&str>) -> Result<Snapshot<Vec<u8>>, Error> {
    let volume = volume(directory, environment)?;
    if !volume.join(files::CORE).exists() {
        return Err(Error::NoSnapshot(volume));
    }
    let load = |name: &str| load(&volume, name);
    let (path, file) = load(files::CORE)?;
    let mut snapshot = parts::read(file, |part| Ok(load(part)?.1)).map_err(|error| match error {
        CoreError::File(error) => error,
        CoreError::Read(source) => Error::Read { path, source },
    })?;
    for slot in 0..files::OVERRIDES_SLOTS {
        let name = files::overrides(slot);
        if volume.join(&name).exists() {
            let (path, overrides) = load(&name)?;
            snapshot.attach(overrides).map_err(|source| Error::Read { path, source })?;
        }
    }
    Ok(snapshot)
}

/// Failure to read a core: of a file, or of all of them together.
enum CoreError {
    File(Error),
    Read(ReadError),
}

impl From<Error> for CoreError {
    fn from(error: Error) -> Self {
        Self::File(error)
    }
}

impl From<ReadError> for CoreError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// Reads the document that is served with `snapshot` from the same directory. Returns `None` if the snapshot serves no
/// document or the directory holds none.
///
/// # Errors
/// If a part of the document cannot be read or is malformed.
pub fn read_document(
    directory: &Path,
    environment: Option<&str>,
    snapshot: &Snapshot<Vec<u8>>,
) -> Result<Option<Document<Vec<u8>>>, Error> {
    let volume = volume(directory, environment)?;
    if !snapshot.serves_document() || !volume.join(files::document(0)).exists() {
        return Ok(None);
    }
    let (path, first) = load(&volume, &files::document(0))?;
    let malformed = |source| Error::Read { path: path.clone(), source };
    let mut parts = Vec::new();
    for slot in 0..Document::<Vec<u8>>::count(&first).map_err(malformed)? {
        parts.push(load(&volume, &files::document(slot))?.1);
    }
    snapshot.document(parts).map(Some).map_err(malformed)
}

fn load(volume: &Path, name: &str) -> Result<(PathBuf, Vec<u8>), Error> {
    let path = volume.join(name);
    fs::read(&path).map_err(file_error("read", &path)).map(|bytes| (path, bytes))
}

/// Returns the directory of one environment.
fn volume(directory: &Path, environment: Option<&str>) -> Result<PathBuf, Error> {
    if let Some(name) = environment {
        return Ok(directory.join(name));
    }
    if directory.join(files::CORE).exists() {
        return Ok(directory.to_owned());
    }
    let mut names = environments(directory)?;
    match (names.pop(), names.is_empty()) {
        (None, _) => Err(Error::NoSnapshot(directory.to_owned())),
        (Some(only), true) => Ok(directory.join(only)),
        (Some(last), false) => {
            names.push(last);
            Err(Error::Several { path: directory.to_owned(), names: names.join(", ") })
        }
    }
}

/// Returns the sorted names of the subdirectories that hold a snapshot.
fn environments(directory: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(file_error("read", directory))? {
        let entry = entry.map_err(file_error("read", directory))?;
        if entry.path().join(files::CORE).exists() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use remora_compile::{
        Options, compile,
        document::parse,
        prune::{Rules, prune},
    };

    /// Temporary directory that is deleted on drop.
    struct TempDir(PathBuf);

    impl TempDir {
        fn new() -> Self {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let temp = std::env::temp_dir().join(format!("remora-directory-{}-{number}", std::process::id()));
            fs::create_dir_all(temp.join("victim")).unwrap();
            fs::write(temp.join("victim/precious"), "x").unwrap();
            Self(temp)
        }

        fn write(&self, name: &str) -> Result<PathBuf, Error> {
            self.write_document(&format!(r#"{{"api_key":"{name}","project":{{}},"feature_states":[]}}"#))
        }

        fn write_document(&self, document: &str) -> Result<PathBuf, Error> {
            let pruned = prune(parse(document.as_bytes()).unwrap(), &Rules::default());
            write(&self.0.join("out"), "shop", &compile(&pruned, &Options::default()).unwrap())
        }

        fn volume(&self) -> PathBuf {
            self.0.join("out/shop")
        }

        /// Asserts that the write is refused and that the victim still exists.
        fn refuses(&self, what: &str) {
            let error = self.write("other").unwrap_err();
            assert!(matches!(error, Error::Foreign { .. }), "{what}: {error}");
            assert!(self.0.join("victim/precious").exists(), "{what}: the victim was deleted");
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn new_revision_replaces_and_removes_previous_one() {
        let temp = TempDir::new();
        let volume = temp.write("one").unwrap();
        let one = fs::read_link(volume.join("..data")).unwrap();
        temp.write("two").unwrap();
        let two = fs::read_link(volume.join("..data")).unwrap();
        assert!(one != two && !volume.join(&one).exists() && volume.join(&two).exists());
        assert!(read(&temp.0.join("out"), None).is_ok());
        // The next write removes the leftovers of a run that did not finish.
        symlink("..0", volume.join("..data_tmp")).unwrap();
        fs::create_dir(volume.join(&one)).unwrap();
        temp.write("one").unwrap();
        assert!(!volume.join(&two).exists());
    }

    #[test]
    fn core_beyond_one_file_is_written_and_read_in_parts() {
        let temp = TempDir::new();
        let value = "x".repeat(1_500_000);
        let state = r#"{"feature":{"id":1,"name":"large"},"enabled":true,"django_id":1,"feature_state_value":"#;
        let document = format!(r#"{{"api_key":"one","project":{{}},"feature_states":[{state}"{value}"}}]}}"#);
        let volume = temp.write_document(&document).unwrap();
        let size = |name: &str| fs::metadata(volume.join(name)).map(|file| file.len()).ok();
        assert_eq!([size("core"), size("core-a-00"), size("core-b-00")], [Some(80), Some(983_040), None]);
        let snapshot = read(&volume, None).unwrap();
        assert!(snapshot.bytes() > 2_900_000);
        let part = volume.join("..data/core-a-01");
        fs::write(&part, "x").unwrap();
        assert!(read(&volume, None).unwrap_err().to_string().contains("cut off or mixed up"));
        fs::remove_file(&part).unwrap();
        assert!(read(&volume, None).unwrap_err().to_string().contains("core-a-01"));
        // A smaller core is one file again.
        temp.write("one").unwrap();
        assert!(size("core").unwrap() > 80 && size("core-a-00").is_none() && read(&volume, None).is_ok());
    }

    #[test]
    fn planted_data_link_is_neither_followed_nor_deleted_through() {
        let temp = TempDir::new();
        let victim = temp.0.join("victim");
        for to in [victim.as_path(), Path::new("../../victim"), Path::new(".."), Path::new("."), Path::new("../shop")] {
            let _ = fs::remove_dir_all(temp.volume());
            fs::create_dir_all(temp.volume()).unwrap();
            symlink(to, temp.volume().join("..data")).unwrap();
            temp.refuses(&to.display().to_string());
            assert_eq!(fs::read_link(temp.volume().join("..data")).unwrap(), to);
        }
    }

    #[test]
    fn planted_link_in_place_of_revision_is_not_deleted_through() {
        let temp = TempDir::new();
        let volume = temp.write("one").unwrap();
        let one = volume.join(fs::read_link(volume.join("..data")).unwrap());
        fs::remove_dir_all(&one).unwrap();
        symlink(temp.0.join("victim"), &one).unwrap();
        temp.refuses("the revision before");
    }

    #[test]
    fn foreign_files_and_links_in_the_way_are_refused() {
        for name in ["core", "..data_tmp", "..data"] {
            let temp = TempDir::new();
            fs::create_dir_all(temp.volume()).unwrap();
            fs::write(temp.volume().join(name), "theirs").unwrap();
            temp.refuses(name);
            assert_eq!(fs::read(temp.volume().join(name)).unwrap(), b"theirs", "{name}");
        }
        let temp = TempDir::new();
        fs::create_dir_all(temp.volume()).unwrap();
        symlink(temp.0.join("victim/precious"), temp.volume().join("core")).unwrap();
        temp.refuses("a link in place of core");
        let temp = TempDir::new();
        fs::create_dir_all(temp.0.join("out")).unwrap();
        symlink(temp.0.join("victim"), temp.volume()).unwrap();
        temp.refuses("a link in place of the volume");
    }
}
