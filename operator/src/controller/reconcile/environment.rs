//! The FeatureEnvironment of one reconciliation, with the names and the destination that follow from it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};

use super::deletion::Deletion;
use crate::{
    api::{
        FeatureEnvironment, FeatureEnvironmentSpec, FeatureEnvironmentStatus, NamespacedName, ObjectKind, Uid,
        names::{EnvironmentName, InvalidEnvironmentName, annotation},
    },
    publish::{Destination, Owner},
};

/// FeatureEnvironment that is being reconciled.
pub(super) struct Environment<'a> {
    pub(super) object: &'a FeatureEnvironment,
    pub(super) spec: &'a FeatureEnvironmentSpec,
    pub(super) name: NamespacedName,
    pub(super) uid: Uid,
    /// True once the environment is deleted: `object` is from before.
    pub(super) deletion: Deletion,
}

impl<'a> Environment<'a> {
    pub(super) fn new(object: &'a FeatureEnvironment) -> Self {
        Self {
            object,
            spec: &object.spec,
            name: NamespacedName::of(object),
            uid: Uid::of(object),
            deletion: Deletion::default(),
        }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.name.namespace
    }

    pub(super) fn generation(&self) -> Option<i64> {
        self.object.metadata.generation
    }

    /// Returns the revision that the annotation approves.
    pub(super) fn approved_revision(&self) -> Option<&str> {
        self.object.annotations().get(annotation::CONFIRM).map(String::as_str)
    }

    /// Returns the place where the snapshot is published. `status` is the latest status.
    ///
    /// # Errors
    /// If the environment's name cannot be part of object names.
    pub(super) fn destination(
        &self,
        status: Option<&FeatureEnvironmentStatus>,
    ) -> Result<Destination, InvalidEnvironmentName> {
        let environment: EnvironmentName = self.name.name.parse()?;
        let reference = OwnerReference {
            api_version: FeatureEnvironment::api_version(&()).into_owned(),
            kind: FeatureEnvironment::kind(&()).into_owned(),
            name: self.name.name.clone(),
            uid: self.uid.as_str().to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        let object_kind = self.spec.delivery.object_kind;
        let may_have_other_kind = status.is_some_and(|status| may_have_objects(status, object_kind.other()));
        let has_unfinished = status.is_some_and(|status| status.unfinished == Some(object_kind.other()));
        let owner = Owner { namespace: self.name.namespace.clone(), environment, reference };
        Ok(Destination { owner, object_kind, may_have_other_kind, has_unfinished })
    }
}

/// True if objects of this kind may exist, according to the status.
pub(super) fn may_have_objects(status: &FeatureEnvironmentStatus, kind: ObjectKind) -> bool {
    match &status.delivery {
        Some(delivered) => delivered.object_kind == kind || delivered.formerly == Some(kind),
        // A version that knew only ConfigMaps wrote this status.
        None => kind == ObjectKind::ConfigMap && status.revision.is_some(),
    }
}
