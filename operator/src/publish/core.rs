//! Division of a core into objects. Pure.
//!
//! A core of up to 1,000,000 bytes is one object. A larger core is divided into parts, each in an object of its own, and
//! the object `core` points to them. There are two sets of such objects: one holds the published core, the other the
//! core before it. A publication writes the set that is not published, then the object `core`, so that pods find one
//! whole core at any time.

#[cfg(test)]
mod model;
mod order;
mod overrides;

use std::borrow::Cow;

use kube::core::ObjectMeta;
use remora_compile::digest::Digest;
use remora_snapshot::{
    Pointer, ReadError,
    files::{self, CoreSet},
    pointer,
};

pub(super) use self::{order::order, overrides::PresentFile};
use super::{
    owner,
    snapshot::{File, Snapshot},
};
use crate::api::{Revision, names::annotation};

/// Content of one object: a file of the volume.
#[derive(Debug)]
pub(super) struct Content<'a> {
    pub(super) file: Cow<'a, str>,
    pub(super) bytes: Cow<'a, [u8]>,
    /// Digest of the bytes.
    pub(super) digest: Cow<'a, Digest>,
}

impl<'a> From<&'a File> for Content<'a> {
    fn from(file: &'a File) -> Self {
        let File { name, bytes, digest } = file;
        Self { file: name.into(), bytes: bytes.into(), digest: Cow::Borrowed(digest) }
    }
}

impl From<File> for Content<'_> {
    fn from(file: File) -> Self {
        let File { name, bytes, digest } = file;
        Self { file: name.into(), bytes: bytes.into(), digest: Cow::Owned(digest) }
    }
}

/// Revision that is published, and the set of objects that holds its core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CoreLocation {
    pub(super) revision: Revision,
    /// `None` if the core is one object.
    pub(super) set: Option<CoreSet>,
    /// Number of files with identity overrides. `None` if the version that published it did not state the number.
    pub(super) overrides: Option<usize>,
}

impl CoreLocation {
    /// Reads the annotations of the object `core`. `None` if they name no revision.
    pub(super) fn of(core: &ObjectMeta) -> Option<Self> {
        let revision = owner::annotation(core, annotation::REVISION).map(Revision::new)?;
        let set = owner::annotation(core, annotation::CORE_SET);
        let set = CoreSet::ALL.into_iter().find(|known| set == Some(known.to_string().as_str()));
        Some(Self { revision, set, overrides: owner::overrides_files(core) })
    }

    /// Returns the place where a snapshot is published if `before` is published now: a core in parts goes to the set
    /// that holds it already, else to the set that is not published.
    pub(super) fn next(snapshot: &Snapshot, before: Option<&Self>) -> Self {
        let set = match before {
            Some(Self { revision, set: Some(set), .. }) if *revision == snapshot.revision => *set,
            Some(Self { set: Some(set), .. }) => set.other(),
            Some(Self { set: None, .. }) | None => CoreSet::A,
        };
        Self {
            revision: snapshot.revision.clone(),
            set: (snapshot.core_parts() > 0).then_some(set),
            overrides: Some(snapshot.overrides_files()),
        }
    }

    /// True if the published core is one object, and has to be kept in the unpublished set while the object `core`
    /// becomes a pointer.
    pub(super) fn outgrows(&self, before: Option<&Self>) -> bool {
        self.set.is_some() && before.is_some_and(|before| before.set.is_none())
    }
}

impl Snapshot {
    /// Returns the contents of the objects that hold the snapshot, in the order in which they are written: the core, or
    /// the pointer to its parts in `set`, last.
    ///
    /// # Errors
    /// The core is in parts, and its header cannot be read.
    pub(super) fn contents(&self, set: CoreSet) -> Result<Vec<Content<'_>>, ReadError> {
        let mut contents = self.archive_contents();
        if let Some(core) = self.core().filter(|_| self.core_parts() > 0) {
            let parts = contents.iter_mut().filter(|content| files::is_core_part(&content.file));
            for (number, part) in parts.enumerate() {
                part.file = files::core_part(set, number).into();
            }
            contents.push(File::new(files::CORE.to_owned(), pointer(&core.bytes, set)?).into());
        }
        Ok(contents)
    }

    /// Returns the contents of the objects that hold the snapshot as an earlier revision. A core in parts has no pointer
    /// then, and its parts have the names of set `a`.
    pub(super) fn archive_contents(&self) -> Vec<Content<'_>> {
        let mut contents = Vec::new();
        for file in &self.files {
            if file.is_core() && self.core_parts() > 0 {
                let parts = files::parts(&file.bytes).zip(&self.parts).enumerate();
                contents.extend(parts.map(|(number, (bytes, digest))| Content {
                    file: files::core_part(CoreSet::A, number).into(),
                    bytes: bytes.into(),
                    digest: Cow::Borrowed(digest),
                }));
            } else {
                contents.push(file.into());
            }
        }
        contents
    }

    /// Creates a snapshot from the files of an archived one, and puts the parts of its core together.
    pub(super) fn from_archived(revision: Revision, files: Vec<File>) -> Self {
        let (mut parts, mut files): (Vec<File>, Vec<File>) =
            files.into_iter().partition(|file| files::is_core_part(&file.name));
        if !parts.is_empty() {
            parts.sort_by(|a, b| a.name.cmp(&b.name));
            let mut core = Vec::with_capacity(parts.iter().map(|part| part.bytes.len()).sum());
            // Each part is dropped once it is copied.
            parts.into_iter().for_each(|part| core.extend_from_slice(&part.bytes));
            files.push(File::new(files::CORE.to_owned(), core));
        }
        Self::new(revision, files)
    }
}

/// Returns the file of a core that was put together from its parts. `None` if it is not the core that the pointer names.
pub(super) fn checked(core: Vec<u8>, pointer: &Pointer) -> Option<File> {
    remora_snapshot::Snapshot::read_parts(core.as_slice(), pointer).ok()?;
    Some(File::new(files::CORE.to_owned(), core))
}

/// Returns the core that is published as one object as the content of the set that `placed` leaves alone.
pub(super) fn kept(core: File, set: CoreSet) -> File {
    File { name: files::core_part(set.other(), 0), ..core }
}
