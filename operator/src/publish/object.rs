//! Desired state of each published object, and the comparison with the existing object. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use remora_snapshot::files;

use super::{
    core::{Content, CoreLocation},
    owner::{self, Owner, is_our_apply},
    record::Record,
    record_bounds::record_digest,
};
use crate::api::{Revision, names::annotation};

/// Annotation that keeps Stakater's Reloader, a widely used controller, from restarting pods whenever flags change.
pub(super) const RELOADER_IGNORE: &str = "reloader.stakater.com/ignore";

/// Result of the comparison of an existing object with its desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The object has the desired state.
    Current,
    /// The object belongs to this owner and differs from the desired state.
    Outdated,
    /// The object belongs to another owner.
    Foreign,
}

/// Desired state of an object.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) name: String,
    content: Content<'a>,
    annotations: BTreeMap<String, String>,
    /// Number of overrides files of the revision, if this is one of them. It follows from the bytes, so an object without it
    /// is not written again: an earlier version wrote that object.
    overrides_files: Option<usize>,
}

impl<'a> Wanted<'a> {
    /// Returns the desired object with this content of the published revision.
    pub(super) fn live(owner: &Owner, content: Content<'a>, placed: &CoreLocation, record: Option<&Record>) -> Self {
        let mut annotations = annotations(&content);
        // Only the core has annotations that change with every revision, so other objects are not written while their
        // bytes are the same.
        if content.file == files::CORE {
            annotations.insert(annotation::REVISION.to_owned(), placed.revision.to_string());
            annotations.extend(placed.set.map(|set| (annotation::CORE_SET.to_owned(), set.to_string())));
            let overrides = placed.overrides.map(|count| (annotation::OVERRIDES_FILES.to_owned(), count.to_string()));
            annotations.extend(overrides);
            let record = record.and_then(|record| serde_json::to_string(record).ok());
            annotations.extend(record.map(|record| (annotation::RECORD.to_owned(), record)));
        }
        let overrides_files = placed.overrides.filter(|_| files::is_overrides(&content.file));
        Self { name: owner.environment.object(&content.file), content, annotations, overrides_files }
    }

    /// Returns the desired object that keeps this content of an earlier revision.
    pub(super) fn past(owner: &Owner, content: Content<'a>, revision: &Revision) -> Self {
        let name = owner.environment.past_object(&content.file, revision, &content.digest);
        Self { name, annotations: annotations(&content), content, overrides_files: None }
    }

    /// True if the object carries the core, or the pointer to it.
    pub(super) fn is_core(&self) -> bool {
        self.content.file == files::CORE
    }

    /// True if the object has the annotations, of which only a digest of the record is known.
    fn carries_digest(&self, found: &ObjectMeta) -> bool {
        let Some(record) = self.annotations.get(annotation::RECORD) else { return false };
        let mut wanted = self.annotations.clone();
        wanted.insert(annotation::RECORD.to_owned(), record_digest(record));
        carries(found.annotations.as_ref(), &wanted)
    }

    /// Builds the metadata and the content of the object.
    pub(super) fn object(&self, owner: &Owner) -> (ObjectMeta, BTreeMap<String, ByteString>) {
        let Self { name, content, annotations, overrides_files } = self;
        let mut annotations = annotations.clone();
        annotations.extend(overrides_files.map(|count| (annotation::OVERRIDES_FILES.to_owned(), count.to_string())));
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(owner.namespace.clone()),
            labels: Some(owner.labels()),
            annotations: Some(annotations),
            owner_references: Some(vec![owner.reference.clone()]),
            ..ObjectMeta::default()
        };
        (metadata, BTreeMap::from([(content.file.to_string(), ByteString(content.bytes.to_vec()))]))
    }

    /// Compares an existing object with this desired object of the same name. `written` is the resource version after
    /// the operator's last write, if it is cached: any other version means that somebody else wrote the object.
    pub(super) fn verdict(&self, owner: &Owner, found: &ObjectMeta, written: Option<&str>) -> Verdict {
        if !owner.owns(found) {
            return Verdict::Foreign;
        }
        let untouched = match written {
            Some(version) => found.resource_version.as_deref() == Some(version),
            None => {
                let is_labelled = carries(found.labels.as_ref(), &owner.labels());
                written_by_us_alone(found) && is_labelled && owner.is_referred_by(found)
            }
        };
        let carries = carries(found.annotations.as_ref(), &self.annotations) || self.carries_digest(found);
        if untouched && carries { Verdict::Current } else { Verdict::Outdated }
    }
}

fn annotations(content: &Content<'_>) -> BTreeMap<String, String> {
    BTreeMap::from([
        (annotation::CONTENT.to_owned(), content.digest.to_string()),
        (RELOADER_IGNORE.to_owned(), "true".to_owned()),
    ])
}

/// Parses the record in a core's annotation. `None` if the annotation is missing, or is no record of the operator.
pub(super) fn record(core: &ObjectMeta) -> Option<Record> {
    Record::parse(owner::annotation(core, annotation::RECORD)?)
}

fn carries(found: Option<&BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| found.and_then(|found| found.get(key)) == Some(value))
}

/// True if the operator is the only field manager of the object's data.
fn written_by_us_alone(found: &ObjectMeta) -> bool {
    let mut writers = found.managed_fields.iter().flatten().filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields.get("f:binaryData").is_some() || fields.get("f:data").is_some())
    });
    writers.next().is_some_and(is_our_apply) && writers.next().is_none()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, OwnerReference};
    use serde_json::json;

    use super::*;
    use crate::{
        api::names::FIELD_MANAGER,
        publish::snapshot::{File, Snapshot},
    };

    fn owner() -> Owner {
        Owner {
            namespace: "shop".to_owned(),
            environment: "storefront".parse().unwrap(),
            reference: OwnerReference {
                api_version: "remora.dev/v1alpha1".to_owned(),
                kind: "FeatureEnvironment".to_owned(),
                name: "storefront".to_owned(),
                uid: "uid-1".to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            },
        }
    }

    fn snapshot() -> Snapshot {
        Snapshot::new(Revision::new("abc"), vec![File::new("core".to_owned(), b"bytes".to_vec())])
    }

    fn entry(manager: &str, operation: &str) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some(operation.to_owned()),
            fields_v1: Some(FieldsV1(json!({"f:binaryData": {"f:core": {}}}))),
            ..ManagedFieldsEntry::default()
        }
    }

    /// Returns the desired object of the first file.
    fn wanted<'a>(owner: &Owner, snapshot: &'a Snapshot) -> Wanted<'a> {
        let placed = CoreLocation::next(snapshot, None);
        Wanted::live(owner, (&snapshot.files[0]).into(), &placed, None)
    }

    /// Metadata that the API server stores after a write of the operator.
    fn published() -> ObjectMeta {
        let snapshot = snapshot();
        let owner = owner();
        let mut meta = wanted(&owner, &snapshot).object(&owner).0;
        meta.resource_version = Some("7".to_owned());
        meta.managed_fields = Some(vec![entry(FIELD_MANAGER, "Apply")]);
        meta
    }

    fn verdict(meta: &ObjectMeta, written: Option<&str>) -> Verdict {
        let snapshot = snapshot();
        let owner = owner();
        wanted(&owner, &snapshot).verdict(&owner, meta, written)
    }

    #[test]
    fn unchanged_object_is_not_written() {
        assert_eq!(verdict(&published(), Some("7")), Verdict::Current);
        assert_eq!(verdict(&published(), None), Verdict::Current);
    }

    #[test]
    fn altered_object_is_written_again() {
        assert_eq!(verdict(&published(), Some("6")), Verdict::Outdated);
        let mut edited = published();
        edited.managed_fields.as_mut().unwrap().push(entry("kubectl-edit", "Update"));
        assert_eq!(verdict(&edited, None), Verdict::Outdated);
        let mut unlabelled = published();
        unlabelled.labels = None;
        assert_eq!(verdict(&unlabelled, None), Verdict::Outdated);
        let mut other = published();
        other.annotations.as_mut().unwrap().insert(annotation::CONTENT.to_owned(), "0".to_owned());
        assert_eq!(verdict(&other, Some("7")), Verdict::Outdated);
    }

    #[test]
    fn own_object_without_owner_is_adopted() {
        let mut orphan = published();
        orphan.owner_references = None;
        assert_eq!(verdict(&orphan, None), Verdict::Outdated);
    }

    #[test]
    fn foreign_object_is_a_conflict() {
        let mut foreign = published();
        foreign.owner_references.as_mut().unwrap()[0].uid = "uid-2".to_owned();
        assert_eq!(verdict(&foreign, Some("7")), Verdict::Foreign);
        let mut made_by_hand = published();
        made_by_hand.owner_references = None;
        made_by_hand.managed_fields = Some(vec![entry("kubectl", "Update")]);
        assert_eq!(verdict(&made_by_hand, None), Verdict::Foreign);
    }

    #[test]
    fn only_core_object_has_revision_annotation() {
        let file = File::new("overrides-00".to_owned(), vec![1]);
        let has_revision = |file: &File| {
            let wanted = Wanted::live(&owner(), file.into(), &CoreLocation::next(&snapshot(), None), None);
            wanted.annotations.contains_key(annotation::REVISION)
        };
        assert!(!has_revision(&file));
        assert!(has_revision(&snapshot().files[0]));
    }
}
