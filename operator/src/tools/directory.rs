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
    /// There is something that `compile` did not make.
    #[error(
        "{path} is {found}, which `remora-operator compile` did not make and does not follow or delete: remove it, or choose another directory"
    )]
    Foreign {
        /// What is in the way.
        path: PathBuf,
        /// What it is.
        found: &'static str,
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
/// What is there and is not as this function makes it is neither followed nor deleted. (Nobody else may write to the directory
/// meanwhile.)
///
/// # Errors
/// If the file system refuses, or something of somebody else is in the way; what was there before is then still there.
pub fn write(directory: &Path, environment: &str, compiled: &Compiled) -> Result<PathBuf, Error> {
    let volume = directory.join(environment);
    if kind(&volume)? == Kind::Link {
        return Err(Error::Foreign { path: volume, found: "a link" });
    }
    fs::create_dir_all(&volume).map_err(tried("create", &volume))?;
    let data = volume.join("..data");
    let before = before(&data)?;
    let name = format!("..{}", compiled.revision);
    let target = volume.join(&name);
    let leftover = kind(&target)?;
    if matches!(leftover, Kind::Link | Kind::File) {
        return Err(Error::Foreign { path: target, found: "no directory" });
    }
    let revision = compiled.revision.to_string();
    let contents = || {
        let compiled = compiled.files.iter().map(|file| (file.name.as_str(), file.bytes.as_slice()));
        compiled.chain([(files::REVISION, revision.as_bytes())])
    };
    for (name, _) in contents() {
        let link = volume.join(name);
        let is_ours = fs::read_link(&link).is_ok_and(|to| to == Path::new("..data").join(name));
        if !is_ours && kind(&link)? != Kind::Nothing {
            return Err(Error::Foreign { path: link, found: "no link to the file of that name in ..data" });
        }
    }
    let next = volume.join("..data_tmp");
    let unfinished = kind(&next)?;
    if matches!(unfinished, Kind::File | Kind::Directory) {
        return Err(Error::Foreign { path: next, found: "no link" });
    }
    if before.as_deref() == Some(name.as_str()) {
        return Ok(volume);
    }

    if leftover == Kind::Directory {
        fs::remove_dir_all(&target).map_err(tried("remove", &target))?; // left by a run that did not end
    }
    fs::create_dir(&target).map_err(tried("create", &target))?;
    for (name, bytes) in contents() {
        let path = target.join(name);
        fs::write(&path, bytes).map_err(tried("write", &path))?;
        let link = volume.join(name);
        if kind(&link)? == Kind::Nothing {
            symlink(Path::new("..data").join(name), &link).map_err(tried("link", &link))?;
        }
    }

    if unfinished == Kind::Link {
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

/// The name of the directory that was written before, which is beside the link to it.
fn before(data: &Path) -> Result<Option<String>, Error> {
    let foreign = |path: &Path, found| Err(Error::Foreign { path: path.to_owned(), found });
    match kind(data)? {
        Kind::Nothing => return Ok(None),
        Kind::File | Kind::Directory => return foreign(data, "no link"),
        Kind::Link => {}
    }
    let to = fs::read_link(data).map_err(tried("read", data))?;
    let name = to.to_str().filter(|name| {
        let digits = name.strip_prefix("..").unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    let Some(name) = name else { return foreign(data, "a link to something that is no revision beside it") };
    let directory = data.with_file_name(name);
    match kind(&directory)? {
        Kind::Directory => Ok(Some(name.to_owned())),
        // Its revision was removed by hand.
        Kind::Nothing => Ok(None),
        Kind::Link | Kind::File => foreign(&directory, "no directory"),
    }
}

/// What is at a path, itself and not what it leads to.
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
        Err(error) => Err(tried("look at", path)(error)),
    }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::compile::{
        Options, compile,
        document::parse,
        prune::{Rules, prune},
    };

    /// A directory of its own, which goes with the test.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let place = std::env::temp_dir().join(format!("remora-directory-{}-{number}", std::process::id()));
            fs::create_dir_all(place.join("victim")).unwrap();
            fs::write(place.join("victim/precious"), "x").unwrap();
            Self(place)
        }

        fn write(&self, name: &str) -> Result<PathBuf, Error> {
            let document = format!(r#"{{"api_key":"{name}","project":{{}},"feature_states":[]}}"#);
            let pruned = prune(parse(document.as_bytes()).unwrap(), &Rules::new(&[], &[], false, false).unwrap());
            write(&self.0.join("out"), "shop", &compile(&pruned, &Options::default()).unwrap())
        }

        fn volume(&self) -> PathBuf {
            self.0.join("out/shop")
        }

        /// It is refused, and nothing is gone.
        fn refuses(&self, what: &str) {
            let error = self.write("other").unwrap_err();
            assert!(matches!(error, Error::Foreign { .. }), "{what}: {error}");
            assert!(self.0.join("victim/precious").exists(), "{what}: the victim was deleted");
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn new_revision_takes_place_of_one_before_which_is_removed() {
        let place = Place::new();
        let volume = place.write("one").unwrap();
        let one = fs::read_link(volume.join("..data")).unwrap();
        place.write("two").unwrap();
        let two = fs::read_link(volume.join("..data")).unwrap();
        assert!(one != two && !volume.join(&one).exists() && volume.join(&two).exists());
        assert!(read(&place.0.join("out"), None).is_ok());
        // What a run that did not end leaves is cleared away.
        symlink("..0", volume.join("..data_tmp")).unwrap();
        fs::create_dir(volume.join(&one)).unwrap();
        place.write("one").unwrap();
        assert!(!volume.join(&two).exists());
    }

    #[test]
    fn planted_data_link_is_neither_followed_nor_deleted_through() {
        let place = Place::new();
        let victim = place.0.join("victim");
        for to in [victim.as_path(), Path::new("../../victim"), Path::new(".."), Path::new("."), Path::new("../shop")] {
            let _ = fs::remove_dir_all(place.volume());
            fs::create_dir_all(place.volume()).unwrap();
            symlink(to, place.volume().join("..data")).unwrap();
            place.refuses(&to.display().to_string());
            assert_eq!(fs::read_link(place.volume().join("..data")).unwrap(), to);
        }
    }

    #[test]
    fn planted_link_in_place_of_revision_is_not_deleted_through() {
        let place = Place::new();
        let volume = place.write("one").unwrap();
        let one = volume.join(fs::read_link(volume.join("..data")).unwrap());
        fs::remove_dir_all(&one).unwrap();
        symlink(place.0.join("victim"), &one).unwrap();
        place.refuses("the revision before");
    }

    #[test]
    fn foreign_files_and_links_in_the_way_are_refused() {
        for name in ["core", "..data_tmp", "..data"] {
            let place = Place::new();
            fs::create_dir_all(place.volume()).unwrap();
            fs::write(place.volume().join(name), "theirs").unwrap();
            place.refuses(name);
            assert_eq!(fs::read(place.volume().join(name)).unwrap(), b"theirs", "{name}");
        }
        let place = Place::new();
        fs::create_dir_all(place.volume()).unwrap();
        symlink(place.0.join("victim/precious"), place.volume().join("core")).unwrap();
        place.refuses("a link in place of core");
        let place = Place::new();
        fs::create_dir_all(place.0.join("out")).unwrap();
        symlink(place.0.join("victim"), place.volume()).unwrap();
        place.refuses("a link in place of the volume");
    }
}
