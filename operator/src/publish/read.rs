//! Reads what is published: the revision and its record from the cached metadata, and whole snapshots from the cluster.

use std::{collections::BTreeMap, sync::Arc};

use kube::core::ObjectMeta;
use remora_compile::digest::Digest;
use remora_snapshot::{Pointer, files};

use super::{
    Destination, Error, File, Publisher, Record, Snapshot, core, object,
    owner::{self, Collection},
    record_bounds::is_revision,
    snapshot::{Reading, are_bounded},
};
use crate::{
    api::Revision,
    api::names::{FORMAT, Format, annotation},
};

impl Publisher {
    /// Returns the revision that is published in the current format, according to its core: the core of the published
    /// kind, else the core of the other kind.
    pub fn revision(&self, destination: &Destination) -> Option<Revision> {
        let (_, core) = self.published(destination)?;
        owner::annotation(&core, annotation::REVISION).map(Revision::new)
    }

    /// Returns the record of the published revision. `None` if the version that published it wrote no record, or if the
    /// record was altered and cannot be parsed.
    pub fn record(&self, destination: &Destination) -> Option<Record> {
        if let Some(core) = self.core(destination.current()) {
            return object::record(&core);
        }
        let records = self.obsolete_cores(destination).into_iter().filter_map(|core| object::record(&core));
        let latest = records.max_by_key(|record| record.published_at.0)?;
        // Copies of earlier revisions exist only in the obsolete kind and format.
        let archived_in_other_kind =
            latest.history.into_iter().chain(latest.dropped).chain(latest.archived_in_other_kind).collect();
        Some(Record { history: Vec::new(), dropped: Vec::new(), archived_in_other_kind, ..latest })
    }

    /// Returns the other format in which a revision is published, if none is published in the current format.
    pub fn only_in(&self, destination: &Destination) -> Option<Format> {
        if self.revision(destination).is_some() {
            return None;
        }
        let formats = self.obsolete_cores(destination).into_iter().map(|core| destination.owner.format(&core));
        formats.filter(|format| *format != FORMAT).max()
    }

    /// Returns the core that is published in the current format, and the objects that it belongs to.
    fn published<'a>(&self, destination: &'a Destination) -> Option<(Collection<'a>, Arc<ObjectMeta>)> {
        let collections = [Some(destination.current()), destination.other_kind_if_used()];
        collections.into_iter().flatten().find_map(|objects| Some((objects, self.core(objects)?)))
    }

    pub(super) fn core(&self, objects: Collection<'_>) -> Option<Arc<ObjectMeta>> {
        let core = self.known(objects, &objects.owner.environment.object(files::CORE))?;
        (objects.owner.owns(&core) && core.deletion_timestamp.is_none()).then_some(core)
    }

    /// Reads the published snapshot from the cluster, for use while it cannot be compiled again. `None` unless every
    /// file exists and matches its digest, and a snapshot can have files of their sizes. If the process before has written
    /// some files of the next revision already, the copies that it made first are read.
    ///
    /// # Errors
    /// If the API server rejects a request or does not answer in time, or the namespace has no memory for the snapshot.
    pub async fn read_published(&self, destination: &Destination) -> Result<Option<(Snapshot, Option<Record>)>, Error> {
        let _place = self.permits.read(&destination.owner.namespace).await;
        let Some((objects, _)) = self.published(destination) else {
            return Ok(None);
        };
        // The cache may be older than the core, so the revision and the record come from the object that is read.
        let core = self.read_object(objects, &objects.owner.environment.object(files::CORE)).await?;
        let core = core.filter(|(metadata, core)| objects.owner.owns(metadata) && core.is_core());
        let Some((metadata, core)) = core else {
            return Ok(None);
        };
        let revision = owner::annotation(&metadata, annotation::REVISION).filter(|revision| is_revision(revision));
        let Some(revision) = revision.map(Revision::new) else {
            return Ok(None);
        };
        let mut reading = Reading::new(&self.memory, &destination.owner.namespace);
        reading.add(core.bytes.len())?;
        let is_current = objects.object_kind == destination.object_kind;
        let record = if is_current { object::record(&metadata) } else { self.record(destination) };
        let Some(core) = self.whole(objects, core, &mut reading).await? else { return Ok(None) };
        let digests = record.as_ref().map(|record| &record.files).filter(|files| !files.is_empty());
        let files = match digests {
            Some(digests) => self.with_recorded(objects, core, &revision, digests, &mut reading).await?,
            None => self.with_known(objects, core, &mut reading).await?,
        };
        let Some(files) = files else { return Ok(None) };
        let snapshot = Snapshot::new(revision, files).holding(reading);
        let is_recorded = digests.is_none_or(|digests| snapshot.digests() == *digests);
        Ok(is_recorded.then_some((snapshot, record)))
    }

    /// Reads the files that the record names beside the core.
    async fn with_recorded(
        &self,
        objects: Collection<'_>,
        core: File,
        revision: &Revision,
        digests: &BTreeMap<String, Digest>,
        reading: &mut Reading,
    ) -> Result<Option<Vec<File>>, Error> {
        let mut files = vec![core];
        for (name, digest) in digests {
            if name == files::CORE || files::is_core_part(name) {
                continue;
            }
            let Some(file) = self.read_either(objects, name, revision, digest).await? else { return Ok(None) };
            reading.add(file.bytes.len())?;
            files.push(file);
            if !are_bounded(&files) {
                return Ok(None);
            }
        }
        Ok(Some(files))
    }

    /// Reads the files beside the core of a revision that was published without a record: those that exist of all that a
    /// snapshot can have. Other objects with the labels of the environment are not read.
    async fn with_known(
        &self,
        objects: Collection<'_>,
        core: File,
        reading: &mut Reading,
    ) -> Result<Option<Vec<File>>, Error> {
        let mut files = vec![core];
        for name in files::all(files::OVERRIDES_SLOTS, 0) {
            let object = objects.owner.environment.object(&name);
            let known = self.known(objects, &object).filter(|known| objects.owner.owns(known));
            if name == files::CORE || known.is_none() {
                continue;
            }
            let file = self.read(objects, &object).await?.filter(|file| file.name == name);
            let Some(file) = file else { return Ok(None) };
            reading.add(file.bytes.len())?;
            files.push(file);
            if !are_bounded(&files) {
                return Ok(None);
            }
        }
        Ok(Some(files))
    }

    /// Reads the file with this digest, from its published object or from its copy.
    async fn read_either(
        &self,
        objects: Collection<'_>,
        name: &str,
        revision: &Revision,
        digest: &Digest,
    ) -> Result<Option<File>, Error> {
        let environment = &objects.owner.environment;
        for object in [environment.object(name), environment.past_object(name, revision, digest)] {
            if let Some(file) = self.read(objects, &object).await?.filter(|file| file.digest == *digest) {
                return Ok(Some(File { name: name.to_owned(), ..file }));
            }
        }
        Ok(None)
    }

    /// Returns the file, or, if it is a pointer, reads the core that it names.
    async fn whole(&self, objects: Collection<'_>, file: File, reading: &mut Reading) -> Result<Option<File>, Error> {
        let pointer = match Pointer::read(&file.bytes) {
            Ok(Some(pointer)) => pointer,
            Ok(None) => return Ok(Some(file)),
            Err(_) => return Ok(None),
        };
        reading.add(pointer.length())?;
        let mut core = Vec::with_capacity(pointer.length());
        for (part, _) in files::part_lengths(pointer.length()).enumerate() {
            let name = objects.owner.environment.object(&files::core_part(pointer.set(), part));
            let Some(part) = self.read(objects, &name).await? else { return Ok(None) };
            core.extend_from_slice(&part.bytes);
            if core.len() > pointer.length() {
                return Ok(None);
            }
        }
        Ok(core::checked(core, &pointer))
    }

    /// Reads the file that an object carries. `None` unless the object exists and its content matches its digest.
    pub(super) async fn read(&self, objects: Collection<'_>, name: &str) -> Result<Option<File>, Error> {
        Ok(self.read_object(objects, name).await?.map(|(_, file)| file))
    }

    /// Reads an object's metadata and the file that it carries, as [`Publisher::read`] does.
    async fn read_object(&self, objects: Collection<'_>, name: &str) -> Result<Option<(ObjectMeta, File)>, Error> {
        let Some(object) = self.calls(objects).read(name).await? else {
            return Ok(None);
        };
        let file = object.content.into_iter().next().map(|(name, bytes)| File::new(name, bytes.0));
        let digest = owner::annotation(&object.metadata, annotation::CONTENT);
        let file = file.filter(|file| Some(file.digest.as_str()) == digest);
        Ok(file.map(|file| (object.metadata, file)))
    }
}
