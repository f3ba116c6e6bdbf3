//! Desired state of each published object, and the comparison with the existing object. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference},
};
use remora_snapshot::files;

use super::{
    record::Record,
    snapshot::{File, Snapshot},
};
use crate::api::{
    ObjectKind,
    names::{EnvironmentName, FIELD_MANAGER, FORMAT, Format, annotation, label},
};

/// Annotation that keeps Stakater's Reloader, a widely used controller, from restarting pods whenever flags change.
const RELOADER_IGNORE: &str = "reloader.stakater.com/ignore";

/// FeatureEnvironment that owns a set of published objects, and the kind of these objects.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Namespace of the FeatureEnvironment and of all its objects.
    pub namespace: String,
    /// Name of the FeatureEnvironment.
    pub environment: EnvironmentName,
    /// Owner reference to the FeatureEnvironment.
    pub reference: OwnerReference,
    /// Kind of the published objects.
    pub object_kind: ObjectKind,
    /// True if there may be previous objects of the other kind. They are kept up to date until no pod mounts them.
    pub was_other: bool,
}

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
    file: &'a File,
    annotations: BTreeMap<String, String>,
}

impl Owner {
    /// Returns the desired object for `file` of the published revision.
    pub(super) fn live<'a>(&self, file: &'a File, snapshot: &Snapshot, record: Option<&Record>) -> Wanted<'a> {
        let mut annotations = annotations(file);
        // Only the core has annotations that change with every revision, so other objects are not written while their
        // bytes are the same.
        if file.is_core() {
            annotations.insert(annotation::REVISION.to_owned(), snapshot.revision.clone());
            let record = record.and_then(|record| serde_json::to_string(record).ok());
            annotations.extend(record.map(|record| (annotation::RECORD.to_owned(), record)));
        }
        Wanted { name: self.environment.object(&file.name), file, annotations }
    }

    /// Returns the desired object that keeps `file` of an earlier revision.
    pub(super) fn past<'a>(&self, file: &'a File, revision: &str) -> Wanted<'a> {
        let name = self.environment.past_object(&file.name, revision, &file.digest);
        Wanted { name, file, annotations: annotations(file) }
    }

    /// True if an object of this name keeps a file of an earlier revision.
    pub(super) fn is_past(&self, name: &str) -> bool {
        name.starts_with(&self.environment.past_prefix())
    }

    /// Returns the same owner with the other kind of objects.
    pub(super) fn other(&self) -> Self {
        Self { object_kind: self.object_kind.other(), was_other: false, ..self.clone() }
    }

    /// Returns the same owner with the other kind of objects, if there may be previous objects of that kind.
    pub(super) fn previous(&self) -> Option<Self> {
        self.was_other.then(|| self.other())
    }

    /// Returns the format of an object of this owner, which its name contains.
    pub(super) fn format(&self, found: &ObjectMeta) -> Format {
        let parsed = self.environment.format_and_file(found.name.as_deref().unwrap_or_default());
        // An object whose name does not parse counts as one of the current format, so the publisher deletes it.
        parsed.map_or(FORMAT, |(format, _)| format)
    }

    /// True if the object is a core, in any format. A core names the other objects of its revision.
    pub(super) fn is_core(&self, found: &ObjectMeta) -> bool {
        let parsed = self.environment.format_and_file(found.name.as_deref().unwrap_or_default());
        parsed.is_some_and(|(_, file)| file == files::CORE)
    }

    /// Returns kind and name of an object, for messages.
    pub(super) fn describe(&self, name: &str) -> String {
        format!("{} {name}", self.object_kind.as_str())
    }

    /// Builds the metadata and the content of a desired object.
    pub(super) fn object(&self, wanted: &Wanted<'_>) -> (ObjectMeta, BTreeMap<String, ByteString>) {
        let Wanted { name, file, annotations } = wanted;
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(self.namespace.clone()),
            labels: Some(self.labels()),
            annotations: Some(annotations.clone()),
            owner_references: Some(vec![self.reference.clone()]),
            ..ObjectMeta::default()
        };
        (metadata, BTreeMap::from([(file.name.clone(), ByteString(file.bytes.clone()))]))
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let format = FORMAT.to_string();
        [(label::MANAGED_BY, label::REMORA), (label::ENVIRONMENT, self.environment.as_str()), (label::FORMAT, &format)]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    /// Compares an existing object with the desired object of the same name. `written` is the resource version after
    /// the operator's last write, if it is cached: any other version means that somebody else wrote the object.
    pub(super) fn verdict(&self, found: &ObjectMeta, wanted: &Wanted<'_>, written: Option<&str>) -> Verdict {
        if !self.owns(found) {
            return Verdict::Foreign;
        }
        let untouched = match written {
            Some(version) => found.resource_version.as_deref() == Some(version),
            None => written_by_us_alone(found) && self.is_labelled(found) && self.refers(found),
        };
        let carries = carries(found.annotations.as_ref(), &wanted.annotations);
        if untouched && carries { Verdict::Current } else { Verdict::Outdated }
    }

    /// True if the FeatureEnvironment controls the object, or if no object controls it and the operator has applied it:
    /// somebody removed the owner reference.
    pub(super) fn owns(&self, found: &ObjectMeta) -> bool {
        let controller = found.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        match controller {
            Some(controller) => controller.uid == self.reference.uid,
            None => found.managed_fields.iter().flatten().any(is_our_apply),
        }
    }

    fn refers(&self, found: &ObjectMeta) -> bool {
        found.owner_references.iter().flatten().any(|owner| *owner == self.reference)
    }

    fn is_labelled(&self, found: &ObjectMeta) -> bool {
        carries(found.labels.as_ref(), &self.labels())
    }
}

fn annotations(file: &File) -> BTreeMap<String, String> {
    BTreeMap::from([
        (annotation::CONTENT.to_owned(), file.digest.clone()),
        (RELOADER_IGNORE.to_owned(), "true".to_owned()),
    ])
}

/// Returns the value of an annotation.
pub(super) fn annotation<'a>(found: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    found.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Parses the record in a core's annotation. `None` if the annotation is missing or cannot be parsed.
pub(super) fn record(core: &ObjectMeta) -> Option<Record> {
    serde_json::from_str(annotation(core, annotation::RECORD)?).ok()
}

fn carries(found: Option<&BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| found.and_then(|found| found.get(key)) == Some(value))
}

fn is_our_apply(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() == Some("Apply")
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
    use serde_json::json;

    use super::*;

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
            object_kind: ObjectKind::ConfigMap,
            was_other: false,
        }
    }

    fn snapshot() -> Snapshot {
        Snapshot::new("abc".to_owned(), vec![File::new("core".to_owned(), b"bytes".to_vec())])
    }

    fn entry(manager: &str, operation: &str) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some(operation.to_owned()),
            fields_v1: Some(FieldsV1(json!({"f:binaryData": {"f:core": {}}}))),
            ..ManagedFieldsEntry::default()
        }
    }

    /// Metadata that the API server stores after a write of the operator.
    fn published() -> ObjectMeta {
        let snapshot = snapshot();
        let owner = owner();
        let mut meta = owner.object(&owner.live(&snapshot.files[0], &snapshot, None)).0;
        meta.resource_version = Some("7".to_owned());
        meta.managed_fields = Some(vec![entry(FIELD_MANAGER, "Apply")]);
        meta
    }

    fn verdict(meta: &ObjectMeta, written: Option<&str>) -> Verdict {
        let snapshot = snapshot();
        let owner = owner();
        owner.verdict(meta, &owner.live(&snapshot.files[0], &snapshot, None), written)
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
    fn only_core_object_has_revision_label() {
        let file = File::new("overrides-00".to_owned(), vec![1]);
        let has_revision = |file: &File| {
            let wanted = owner().live(file, &snapshot(), None);
            wanted.annotations.contains_key(annotation::REVISION)
        };
        assert!(!has_revision(&file));
        assert!(has_revision(&snapshot().files[0]));
    }
}
