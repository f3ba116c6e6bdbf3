//! The FeatureEnvironment that owns published objects, and where its snapshots are published. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference};
use remora_snapshot::files::{self, CoreSet};

use crate::api::{
    NamespacedName, ObjectKind,
    names::{EnvironmentName, FIELD_MANAGER, FORMAT, Format, annotation, label},
};

/// FeatureEnvironment that owns published objects.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Namespace of the FeatureEnvironment and of all its objects.
    pub namespace: String,
    /// Name of the FeatureEnvironment.
    pub environment: EnvironmentName,
    /// Owner reference to the FeatureEnvironment.
    pub reference: OwnerReference,
}

/// Place where the snapshots of a FeatureEnvironment are published.
#[derive(Clone, Debug)]
pub struct Destination {
    /// FeatureEnvironment that owns the objects.
    pub owner: Owner,
    /// Kind of the published objects.
    pub object_kind: ObjectKind,
    /// True if there may be objects of the other kind. They are kept up to date until no pod mounts them.
    pub may_have_other_kind: bool,
    /// True if a publication in objects of the other kind may have been cut off. Its objects are deleted unless pods mount
    /// them: those that were admitted while nothing was published.
    pub has_unfinished: bool,
}

/// Objects of one kind that belong to one FeatureEnvironment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collection<'a> {
    pub(super) owner: &'a Owner,
    pub(super) object_kind: ObjectKind,
}

impl Destination {
    /// Returns the objects of the published kind.
    pub(super) fn current(&self) -> Collection<'_> {
        Collection { owner: &self.owner, object_kind: self.object_kind }
    }

    /// Returns the objects of the other kind, whether there are any or not.
    pub(super) fn other_kind(&self) -> Collection<'_> {
        Collection { owner: &self.owner, object_kind: self.object_kind.other() }
    }

    /// Returns the objects of the other kind, if there may be any.
    pub(super) fn other_kind_if_used(&self) -> Option<Collection<'_>> {
        self.may_have_other_kind.then(|| self.other_kind())
    }
}

impl Collection<'_> {
    /// Returns kind and name of an object, for messages.
    pub(super) fn describe(&self, name: &str) -> String {
        format!("{} {name}", self.object_kind.as_str())
    }
}

impl Owner {
    /// Returns the name of the FeatureEnvironment.
    pub(super) fn name(&self) -> NamespacedName {
        self.object(self.environment.as_str())
    }

    /// Returns the name of an object of this owner.
    pub(super) fn object(&self, name: &str) -> NamespacedName {
        NamespacedName::new(&self.namespace, name)
    }

    /// Lists the names of the objects that hold the parts of a core in this set.
    pub(super) fn parts(&self, set: CoreSet) -> impl Iterator<Item = String> {
        (0..files::MAX_CORE_PARTS).map(move |part| self.environment.object(&files::core_part(set, part)))
    }

    /// Returns the format of an object of this owner, which its name contains.
    pub(super) fn format(&self, found: &ObjectMeta) -> Format {
        // An object whose name does not parse counts as one of the current format, so the publisher deletes it.
        self.format_and_file(found).map_or(FORMAT, |(format, _)| format)
    }

    /// True if the object is a core, in any format. A core names the other objects of its revision.
    pub(super) fn is_core(&self, found: &ObjectMeta) -> bool {
        self.format_and_file(found).is_some_and(|(_, file)| file == files::CORE)
    }

    /// Returns the file that an object of this owner carries in the current format, by the object's name.
    pub(super) fn file<'a>(&self, found: &'a ObjectMeta) -> Option<&'a str> {
        self.format_and_file(found).filter(|(format, _)| *format == FORMAT).map(|(_, file)| file)
    }

    fn format_and_file<'a>(&self, found: &'a ObjectMeta) -> Option<(Format, &'a str)> {
        self.environment.format_and_file(found.name.as_deref()?)
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

    /// True if the object carries the owner reference exactly as the operator writes it.
    pub(super) fn is_referred_by(&self, found: &ObjectMeta) -> bool {
        found.owner_references.iter().flatten().any(|owner| *owner == self.reference)
    }

    /// Returns the labels of every object of this owner.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        let format = FORMAT.to_string();
        [(label::MANAGED_BY, label::REMORA), (label::ENVIRONMENT, self.environment.as_str()), (label::FORMAT, &format)]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }
}

/// Returns the value of an annotation.
pub(super) fn annotation<'a>(found: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    found.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Returns the number of overrides files that an object states: the core, or one of these files.
pub(super) fn overrides_files(found: &ObjectMeta) -> Option<usize> {
    annotation(found, annotation::OVERRIDES_FILES)?.parse().ok()
}

/// True if the entry records an apply of the operator.
pub(super) fn is_our_apply(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() == Some("Apply")
}
