//! Maps ConfigMaps to the environments whose source refers to them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use kube::{
    ResourceExt,
    core::DeserializeGuard,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher::Event,
    },
};
use parking_lot::Mutex;

use crate::{
    api::{FeatureEnvironment, NamespacedName},
    controller::reconcile::Context,
    publish::ConfigMapMetadata,
    source::trigger::Trigger,
};

pub(super) type WatchedEnvironment = DeserializeGuard<FeatureEnvironment>;

/// Resource versions of ConfigMaps that sources refer to, so that a restarted watch triggers no fetch for unchanged
/// objects.
#[derive(Debug, Default)]
pub(super) struct SeenVersions(Mutex<HashMap<NamespacedName, String>>);

impl SeenVersions {
    /// Records a version. Returns false if it is the one that was recorded last.
    fn record(&self, name: NamespacedName, version: &str) -> bool {
        self.0.lock().insert(name, version.to_owned()).as_deref() != Some(version)
    }

    /// Drops the versions of all objects that are not in `read`.
    pub(super) fn retain(&self, read: &HashSet<NamespacedName>) {
        self.0.lock().retain(|name, _| read.contains(name));
    }
}

/// Version of a ConfigMap that does not exist.
const GONE: &str = "";

/// Finds the environments that read a ConfigMap.
pub(super) struct Referrers {
    known: Store<WatchedEnvironment>,
    context: Arc<Context>,
    seen: Arc<SeenVersions>,
    /// ConfigMaps that sources refer to and that the list, which is not complete, has not shown.
    missing: HashSet<NamespacedName>,
}

impl Referrers {
    pub(super) fn new(known: Store<WatchedEnvironment>, context: Arc<Context>, seen: Arc<SeenVersions>) -> Self {
        Self { known, context, seen, missing: HashSet::new() }
    }

    /// Applies an event of the watch. Returns the environments whose source reads a ConfigMap that has changed or is gone,
    /// and triggers a fetch for each. A ConfigMap that was deleted while the watch was broken is in no event: it is missing
    /// in the next list.
    pub(super) fn apply_watcher_event(
        &mut self,
        event: &Event<ConfigMapMetadata>,
    ) -> Vec<ObjectRef<WatchedEnvironment>> {
        match event {
            Event::Init => {
                self.missing = self.known.state().iter().flat_map(|environment| read_by(environment)).collect();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.missing.remove(&NamespacedName::of(object));
                self.trigger(NamespacedName::of(object), &version(object))
            }
            Event::InitDone => {
                let missing = std::mem::take(&mut self.missing);
                missing.into_iter().flat_map(|missing| self.trigger(missing, GONE)).collect()
            }
            Event::Apply(object) => self.trigger(NamespacedName::of(object), &version(object)),
            Event::Delete(object) => self.trigger(NamespacedName::of(object), GONE),
        }
    }

    /// Triggers a fetch for the environments whose source reads this ConfigMap, unless its version is known.
    fn trigger(&self, read: NamespacedName, version: &str) -> Vec<ObjectRef<WatchedEnvironment>> {
        let namespace = read.namespace.clone();
        let referring: Vec<NamespacedName> = self
            .known
            .state()
            .into_iter()
            // The namespaces are compared first, because a cluster may have thousands of environments.
            .filter(|environment| {
                environment.0.as_ref().is_ok_and(|found| found.metadata.namespace.as_deref() == Some(&namespace))
            })
            .filter(|environment| read_by(environment).any(|name| name == read))
            .map(|environment| NamespacedName::of(environment.as_ref()))
            .collect();
        if referring.is_empty() || !self.seen.record(read, version) {
            return Vec::new();
        }
        let trigger = |environment: NamespacedName| {
            let reference = ObjectRef::new(&environment.name).within(&environment.namespace);
            self.context.states.trigger(environment, Trigger::ReferenceChanged);
            reference
        };
        referring.into_iter().map(trigger).collect()
    }
}

fn version(object: &ConfigMapMetadata) -> String {
    object.resource_version().unwrap_or_default()
}

/// Returns the ConfigMaps that the source of an environment reads.
pub(super) fn read_by(environment: &WatchedEnvironment) -> impl Iterator<Item = NamespacedName> {
    let environment = environment.0.as_ref().ok();
    environment.into_iter().flat_map(|environment| {
        let namespace = environment.namespace().unwrap_or_default();
        environment.spec.source.config_maps().map(move |name| NamespacedName::new(&namespace, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_new_once_and_forgotten_if_no_source_reads_object() {
        let seen = SeenVersions::default();
        let name = |name: &str| NamespacedName::new("shop", name);
        assert!(seen.record(name("flags"), "1") && !seen.record(name("flags"), "1") && seen.record(name("flags"), "2"));
        assert!(seen.record(name("gone"), "1"));
        seen.retain(&HashSet::from([name("flags")]));
        assert!(!seen.record(name("flags"), "2") && seen.record(name("gone"), "1"));
    }
}
