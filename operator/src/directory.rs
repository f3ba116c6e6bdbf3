//! Snapshots in directories, laid out as a kubelet lays out volumes: a new directory for each revision, and a link
//! `..data` that is renamed over the old one, so that a reader sees one revision or the other.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use remora_snapshot::{Document, ReadError, Snapshot, files};

use crate::compile::Compiled;

/// What could not be done with which file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no snapshot.
    #[error(
        "{0} holds no snapshot: neither a file `core` nor directories with one; write one with `remora-operator compile`"
    )]
    NoSnapshot(PathBuf),
    /// Several, and none was named.
    #[error("{path} holds several environments ({names}): name one with --environment")]
    Several {
        /// Where.
        path: PathBuf,
        /// Which.
        names: String,
    },
    /// A file is no snapshot.
    #[error("{path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: ReadError,
    },
}

fn tried(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}

/// Writes a compiled environment to `directory/<environment>`, as a mounted volume looks.
///
/// # Errors
/// If the file system refuses; what was there before is then still there.
pub fn write(directory: &Path, environment: &str, compiled: &Compiled) -> Result<PathBuf, Error> {
    let volume = directory.join(environment);
    fs::create_dir_all(&volume).map_err(tried("create", &volume))?;
    let data = volume.join("..data");
    let before = fs::read_link(&data).ok();
    let name = format!("..{}", compiled.revision);
    if before.as_deref() == Some(Path::new(&name)) {
        return Ok(volume);
    }

    let target = volume.join(&name);
    if target.exists() {
        fs::remove_dir_all(&target).map_err(tried("remove", &target))?; // left by a run that did not end
    }
    fs::create_dir(&target).map_err(tried("create", &target))?;
    let revision = compiled.revision.to_string();
    let contents = compiled.files.iter().map(|file| (file.name.as_str(), file.bytes.as_slice()));
    for (name, bytes) in contents.chain([(files::REVISION, revision.as_bytes())]) {
        let path = target.join(name);
        fs::write(&path, bytes).map_err(tried("write", &path))?;
        let link = volume.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(name), &link).map_err(tried("link", &link))?;
        }
    }

    let next = volume.join("..data_tmp");
    if fs::symlink_metadata(&next).is_ok() {
        fs::remove_file(&next).map_err(tried("remove", &next))?;
    }
    symlink(&name, &next).map_err(tried("link", &next))?;
    fs::rename(&next, &data).map_err(tried("rename", &next))?;
    if let Some(before) = before {
        let before = volume.join(before);
        fs::remove_dir_all(&before).map_err(tried("remove", &before))?;
    }
    Ok(volume)
}

/// Reads the snapshot of one environment: from its own directory, or from one that holds the directories of several.
///
/// # Errors
/// If there is none, or more than one and no name, or it is malformed.
pub fn read(directory: &Path, environment: Option<&str>) -> Result<Snapshot<Vec<u8>>, Error> {
    let volume = volume(directory, environment)?;
    if !volume.join(files::CORE).exists() {
        return Err(Error::NoSnapshot(volume));
    }
    let load = |name: &str| load(&volume, name);
    let (path, core) = load(files::CORE)?;
    let mut snapshot = Snapshot::read(core).map_err(|source| Error::Read { path, source })?;
    for slot in 0..files::OVERRIDES_SLOTS {
        let name = files::overrides(slot);
        if volume.join(&name).exists() {
            let (path, overrides) = load(&name)?;
            snapshot.attach(overrides).map_err(|source| Error::Read { path, source })?;
        }
    }
    Ok(snapshot)
}

/// Reads the document that is served beside a snapshot from the same directory, if there is one.
///
/// # Errors
/// If it is malformed.
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
    fs::read(&path).map_err(tried("read", &path)).map(|bytes| (path, bytes))
}

/// The directory of one environment.
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

/// The directories that hold a snapshot each.
fn environments(directory: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(tried("read", directory))? {
        let entry = entry.map_err(tried("read", directory))?;
        if entry.path().join(files::CORE).exists() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
