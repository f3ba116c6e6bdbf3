//! Content of a set of watched objects, with the writes of this process that the watch has not reported.

use std::collections::{BTreeMap, HashMap, HashSet};

use kube::{Resource, ResourceExt};

use super::large_parts::LargeParts;
use crate::api::{NamespacedName, resource_version::is_older};

/// Views of one object, each with the name of the environment that it is about. The name is empty for no environment.
pub type Views<V> = Vec<(String, V)>;

/// Environments whose objects an event changed.
pub type Touched = HashSet<NamespacedName>;

/// View of a watched object. It may have a large part, whose size the author of the object decides.
pub trait View: Sized {
    /// Largest size of the large parts of all views of a namespace, in bytes. Beyond it, the environments with the largest
    /// ones lose some of theirs: those views are kept without the large part.
    const LARGE_PARTS_MAX: usize = 0;

    /// Returns the size of the large part in bytes.
    fn large_part(&self) -> usize {
        0
    }

    /// Returns the view without its large part.
    #[must_use]
    fn without_large_part(self) -> Self {
        self
    }
}

#[derive(Debug)]
pub(super) struct Content<V> {
    /// Views by environment, then by the object's name.
    by_environment: HashMap<NamespacedName, BTreeMap<String, V>>,
    /// Objects with views.
    objects: HashMap<NamespacedName, Object>,
    /// Large parts of all views, by namespace.
    large_parts: HashMap<String, LargeParts>,
    /// Writes of this process that the watch has not reported, by the object.
    own: HashMap<NamespacedName, OwnWrite>,
    /// Highest resource version in an event, apart from lists. The watch has reported everything up to it.
    delivered: Option<String>,
}

#[derive(Debug)]
struct Object {
    /// Resource version. Empty if it is not known.
    version: String,
    /// Environments with a view of the object.
    environments: Vec<String>,
}

/// A write of this process.
#[derive(Debug)]
pub(super) enum OwnWrite {
    /// The object has this resource version since.
    Written(String),
    /// The object had this resource version when it was deleted.
    Deleted(String),
}

impl OwnWrite {
    /// True if an event about an object of this version is from before the write.
    fn is_after(&self, version: &str) -> bool {
        match self {
            Self::Written(own) => is_older(version, own),
            Self::Deleted(own) => version == own || is_older(version, own),
        }
    }
}

impl<V: View> Content<V> {
    /// Returns the view of the object with this name.
    pub(super) fn get(&self, object: &NamespacedName) -> Option<&V> {
        let environment = self.objects.get(object)?.environments.first()?;
        self.by_environment.get(&object.sibling(environment))?.get(&object.name)
    }

    /// Returns the views of the objects of an environment, in the order of their names.
    pub(super) fn of(&self, environment: &NamespacedName) -> impl Iterator<Item = &V> {
        self.by_environment.get(environment).into_iter().flat_map(BTreeMap::values)
    }

    /// Enters a write of this process, with the views of a written object, unless the watch has reported it already. An
    /// object that the watch does not show stays unknown: it may be deleted by now, and then no event would remove it.
    pub(super) fn enter(&mut self, object: NamespacedName, own: OwnWrite, views: Views<V>) {
        match (self.objects.get(&object), &own) {
            (Some(known), own) if !own.is_after(&known.version) => return,
            (Some(_), OwnWrite::Written(version)) => self.put(object.clone(), version.clone(), views),
            (Some(_), OwnWrite::Deleted(_)) => self.remove(&object),
            (None, _) => {}
        }
        if self.delivered.as_ref().is_none_or(|delivered| own.is_after(delivered)) {
            self.own.insert(object, own);
        }
    }

    /// Forgets the writes of this process: a list that begins now has them.
    pub(super) fn forget_own(&mut self) {
        self.own.clear();
    }

    /// Ends the wait for a write of this process that an event about the object has caught up with. Returns false if the
    /// event is from before that write.
    pub(super) fn catch_up(&mut self, object: &impl Resource) -> bool {
        let name = NamespacedName::of(object);
        if self.own.get(&name).is_some_and(|own| own.is_after(&version(object))) {
            return false;
        }
        self.own.remove(&name);
        true
    }

    /// Records that an event about the object has arrived, apart from a list, and forgets the writes that no later event can
    /// precede. Returns false if the event is from before a write of this process.
    pub(super) fn delivers(&mut self, object: &impl Resource) -> bool {
        let (is_news, version) = (self.catch_up(object), version(object));
        if self.delivered.as_ref().is_none_or(|delivered| is_older(delivered, &version)) {
            self.own.retain(|_, own| own.is_after(&version));
            self.delivered = Some(version);
        }
        is_news
    }

    /// Takes over what this process wrote while the list was read, from the content before the list.
    pub(super) fn keep_own(&mut self, mut before: Self) {
        for (object, own) in std::mem::take(&mut before.own) {
            let views = before.take(&object);
            self.enter(object, own, views);
        }
    }

    /// Returns the environments with a view of the object.
    pub(super) fn environments_of(&self, object: &NamespacedName) -> Touched {
        let environments = self.objects.get(object).into_iter().flat_map(|known| &known.environments);
        environments.map(|environment| object.sibling(environment)).collect()
    }

    pub(super) fn put(&mut self, object: NamespacedName, version: String, views: Views<V>) {
        self.remove(&object);
        let mut environments = Vec::with_capacity(views.len());
        for (environment, view) in views {
            let of_environment = object.sibling(&environment);
            let view = self.with_room(&of_environment, view);
            let objects = self.by_environment.entry(of_environment).or_default();
            objects.insert(object.name.clone(), view);
            environments.push(environment);
        }
        if !environments.is_empty() {
            self.objects.insert(object, Object { version, environments });
        }
    }

    pub(super) fn remove(&mut self, object: &NamespacedName) {
        self.take(object);
    }

    /// Removes the object, and returns its views.
    fn take(&mut self, object: &NamespacedName) -> Views<V> {
        let mut views = Vec::new();
        for environment in self.objects.remove(object).map(|known| known.environments).unwrap_or_default() {
            let of_environment = object.sibling(&environment);
            let Some(objects) = self.by_environment.get_mut(&of_environment) else { continue };
            let view = objects.remove(&object.name);
            if objects.is_empty() {
                self.by_environment.remove(&of_environment);
            }
            if let Some(view) = view {
                self.release(&of_environment, view.large_part());
                views.push((environment, view));
            }
        }
        views
    }

    /// Returns the view of an environment, without its large part if the namespace has no room for it. An environment with
    /// larger ones makes room.
    fn with_room(&mut self, environment: &NamespacedName, view: V) -> V {
        let bytes = view.large_part();
        if bytes == 0 {
            return view;
        }
        loop {
            let parts = self.large_parts.entry(environment.namespace.clone()).or_default();
            if parts.sum().saturating_add(bytes) <= V::LARGE_PARTS_MAX {
                parts.add(&environment.name, bytes);
                return view;
            }
            let would_have = parts.of(&environment.name).saturating_add(bytes);
            let larger = parts.largest().filter(|(_, size)| *size > would_have);
            let Some(larger) = larger.map(|(larger, _)| environment.sibling(larger)) else {
                return view.without_large_part();
            };
            if !self.strip(&larger) {
                return view.without_large_part();
            }
        }
    }

    /// Removes the largest large part of an environment. Returns false if it has none.
    fn strip(&mut self, environment: &NamespacedName) -> bool {
        let Some(objects) = self.by_environment.get_mut(environment) else { return false };
        let largest = objects.iter().max_by_key(|(_, view)| view.large_part()).map(|(name, _)| name.clone());
        let Some((name, view)) = largest.and_then(|name| objects.remove_entry(&name)) else { return false };
        let bytes = view.large_part();
        objects.insert(name, view.without_large_part());
        self.release(environment, bytes);
        bytes > 0
    }

    /// Gives back the room of a large part.
    fn release(&mut self, environment: &NamespacedName, bytes: usize) {
        let Some(parts) = self.large_parts.get_mut(&environment.namespace) else { return };
        parts.release(&environment.name, bytes);
        if parts.sum() == 0 {
            self.large_parts.remove(&environment.namespace);
        }
    }
}

impl<V: PartialEq> Content<V> {
    /// Returns the environments that have other views in `before`.
    pub(super) fn difference(&self, before: &Self) -> Touched {
        let all = self.by_environment.keys().chain(before.by_environment.keys());
        let differs = |key: &&NamespacedName| self.by_environment.get(*key) != before.by_environment.get(*key);
        all.filter(differs).cloned().collect()
    }
}

#[cfg(test)]
impl<V> Content<V> {
    /// Returns the number of objects, and of environments with objects.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.objects.len(), self.by_environment.len())
    }

    /// Returns the number of writes that the watch has not reported.
    pub(super) fn own_writes(&self) -> usize {
        self.own.len()
    }
}

impl<V> Default for Content<V> {
    fn default() -> Self {
        Self {
            by_environment: HashMap::new(),
            objects: HashMap::new(),
            large_parts: HashMap::new(),
            own: HashMap::new(),
            delivered: None,
        }
    }
}

pub(super) fn version<K: Resource>(object: &K) -> String {
    object.resource_version().unwrap_or_default()
}
