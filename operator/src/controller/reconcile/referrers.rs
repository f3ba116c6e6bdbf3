//! Maps ConfigMaps to the environments whose source refers to them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    core::{DeserializeGuard, PartialObjectMeta},
    runtime::reflector::{ObjectRef, Store},
};
use parking_lot::Mutex;

use super::Context;
use crate::{api::FeatureEnvironment, source::trigger::Trigger};

pub(super) type Environment = DeserializeGuard<FeatureEnvironment>;
pub(super) type Metadata = PartialObjectMeta<ConfigMap>;

/// Namespace and name of a ConfigMap.
pub(super) type Name = (String, String);

/// Resource versions of ConfigMaps that sources refer to, so that a restarted watch triggers no fetch for unchanged
/// objects.
#[derive(Debug, Default)]
pub(super) struct SeenVersions(Mutex<HashMap<Name, String>>);

impl SeenVersions {
    /// Records a version. Returns false if it is the one that was recorded last.
    fn record(&self, name: Name, version: &str) -> bool {
        self.0.lock().insert(name, version.to_owned()).as_deref() != Some(version)
    }

    /// Drops the versions of all objects that are not in `read`.
    pub(super) fn retain(&self, read: &HashSet<Name>) {
        self.0.lock().retain(|name, _| read.contains(name));
    }
}

/// Finds the environments that read a ConfigMap.
pub(super) struct Referrers {
    known: Store<Environment>,
    context: Arc<Context>,
    seen: Arc<SeenVersions>,
}

impl Referrers {
    pub(super) fn new(known: Store<Environment>, context: Arc<Context>, seen: Arc<SeenVersions>) -> Self {
        Self { known, context, seen }
    }

    /// Returns the environments whose source reads this ConfigMap, and triggers a fetch for each if the ConfigMap has
    /// changed.
    pub(super) fn of(&self, object: &Metadata) -> Vec<ObjectRef<Environment>> {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let referring: Vec<ObjectRef<Environment>> = self
            .known
            .state()
            .into_iter()
            .filter(|environment| read_by(environment).any(|read| read.0 == namespace && read.1 == name))
            .map(|environment| ObjectRef::new(&environment.name_any()).within(&namespace))
            .collect();
        let version = object.resource_version().unwrap_or_default();
        if referring.is_empty() || !self.seen.record((namespace.clone(), name), &version) {
            return Vec::new();
        }
        for environment in &referring {
            self.context.states.trigger(&namespace, &environment.name, Trigger::ReferenceChanged);
        }
        referring
    }
}

/// Returns the ConfigMaps that the source of an environment reads.
pub(super) fn read_by(environment: &Environment) -> impl Iterator<Item = Name> {
    let environment = environment.0.as_ref().ok();
    environment.into_iter().flat_map(|environment| {
        let namespace = environment.namespace().unwrap_or_default();
        environment.spec.source.config_maps().map(move |name| (namespace.clone(), name.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_new_once_and_forgotten_if_no_source_reads_object() {
        let seen = SeenVersions::default();
        let name = |name: &str| ("shop".to_owned(), name.to_owned());
        assert!(seen.record(name("flags"), "1") && !seen.record(name("flags"), "1") && seen.record(name("flags"), "2"));
        assert!(seen.record(name("gone"), "1"));
        seen.retain(&HashSet::from([name("flags")]));
        assert!(!seen.record(name("flags"), "2") && seen.record(name("gone"), "1"));
    }
}
