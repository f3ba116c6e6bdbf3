//! Bounds the memory that the objects of one namespace take in a watch. Whoever may create objects of a watched kind in one
//! namespace would else decide how much memory the operator needs for all namespaces.

use std::collections::HashMap;

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource, ResourceExt,
    runtime::watcher::{self, Event},
};

/// Memory for the objects of one kind in one namespace, in bytes. A list that replaces the objects of a broken watch takes
/// as much again while it is read.
pub const NAMESPACE_BYTES: usize = 24 << 20;

/// Memory of an object whose texts are empty, in bytes: its structures, and its keys in maps.
const OBJECT_BYTES: usize = 2 << 10;

/// Returns the memory that the metadata takes, in bytes.
#[must_use]
pub fn metadata_bytes(metadata: &ObjectMeta) -> usize {
    let texts = [&metadata.name, &metadata.namespace, &metadata.uid].into_iter().flatten().map(String::len);
    let maps = [&metadata.labels, &metadata.annotations].into_iter().flatten().flatten();
    let owners = metadata.owner_references.iter().flatten().map(|owner| owner.name.len());
    texts
        .chain(maps.map(|(key, value)| key.len() + value.len()))
        .chain(owners)
        .fold(OBJECT_BYTES, usize::saturating_add)
}

/// Leaves out the objects of a namespace for which it has no memory left. `bytes` returns the memory that an object takes,
/// and `kind` names the objects in the log. An object that grows beyond the bound appears as deleted. An object that was
/// left out appears with its next change, or with the next list, if other objects of the namespace have left room for it.
pub fn bounded<K: Resource + Send + 'static>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    kind: &'static str,
    bytes: fn(&K) -> usize,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send {
    let mut admitted = Admitted { kind, bytes, namespaces: HashMap::new() };
    events.filter_map(move |event| {
        let event = match event {
            Ok(event) => admitted.admit(event).map(Ok),
            Err(error) => Some(Err(error)),
        };
        std::future::ready(event)
    })
}

/// The objects that were admitted since the last list began.
struct Admitted<K> {
    kind: &'static str,
    bytes: fn(&K) -> usize,
    namespaces: HashMap<String, Namespace>,
}

#[derive(Default)]
struct Namespace {
    /// Memory of each object in bytes, by name.
    objects: HashMap<String, usize>,
    sum: usize,
    is_reported: bool,
}

impl<K: Resource> Admitted<K> {
    fn admit(&mut self, event: Event<K>) -> Option<Event<K>> {
        match event {
            Event::Init => {
                self.namespaces.clear();
                Some(Event::Init)
            }
            Event::InitApply(object) => self.has_room(&object).then_some(Event::InitApply(object)),
            Event::InitDone => Some(Event::InitDone),
            Event::Apply(object) => {
                let was_admitted = self.remove(&object);
                match self.has_room(&object) {
                    true => Some(Event::Apply(object)),
                    false => was_admitted.then_some(Event::Delete(object)),
                }
            }
            Event::Delete(object) => self.remove(&object).then_some(Event::Delete(object)),
        }
    }

    /// Admits the object, if its namespace has the memory.
    fn has_room(&mut self, object: &K) -> bool {
        // Objects without a namespace belong to those who administer the cluster.
        let Some(name) = object.namespace() else { return true };
        let bytes = (self.bytes)(object);
        let namespace = self.namespaces.entry(name).or_default();
        if namespace.sum.saturating_add(bytes) > NAMESPACE_BYTES {
            if !std::mem::replace(&mut namespace.is_reported, true) {
                tracing::warn!(
                    namespace = object.namespace(),
                    objects = namespace.objects.len(),
                    "the namespace has more {} than the operator has memory for ({} MiB a namespace): the others are left out; \
                     delete those that nobody needs, and bound their number by a ResourceQuota",
                    self.kind,
                    NAMESPACE_BYTES >> 20,
                );
            }
            return false;
        }
        namespace.sum += bytes;
        if let Some(before) = namespace.objects.insert(object.name_any(), bytes) {
            namespace.sum -= before; // a page of a list may be delivered twice
        }
        true
    }

    /// Returns true if the object was admitted.
    fn remove(&mut self, object: &K) -> bool {
        let Some(name) = object.namespace() else { return true };
        let Some(namespace) = self.namespaces.get_mut(&name) else { return false };
        let Some(bytes) = namespace.objects.remove(&object.name_any()) else { return false };
        namespace.sum -= bytes;
        if namespace.objects.is_empty() {
            self.namespaces.remove(&name);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    /// Number of the largest objects of the tests that fit into a namespace.
    const FIT: usize = 24;

    fn object(namespace: &str, name: &str, mebibytes: usize) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some(namespace.to_owned());
        object.metadata.name = Some(name.to_owned());
        object.metadata.generation = i64::try_from(mebibytes).ok();
        object
    }

    /// Passes the events, and returns the names of the objects that are there afterwards.
    fn left(events: Vec<Event<ConfigMap>>) -> Vec<String> {
        let of_generation = |object: &ConfigMap| object.metadata.generation.unwrap() as usize * (1 << 20);
        let stream = bounded(futures::stream::iter(events.into_iter().map(Ok)), "ConfigMaps", of_generation);
        let mut store: Vec<(String, String)> = Vec::new();
        let key = |object: &ConfigMap| (object.namespace().unwrap(), object.name_any());
        for event in stream.collect::<Vec<_>>().now_or_never().unwrap() {
            match event.unwrap() {
                Event::Init => store.clear(),
                Event::InitDone => {}
                Event::InitApply(object) => store.push(key(&object)),
                Event::Apply(object) => {
                    store.retain(|other| *other != key(&object));
                    store.push(key(&object));
                }
                Event::Delete(object) => {
                    assert!(store.contains(&key(&object)), "{} is not there", object.name_any());
                    store.retain(|other| *other != key(&object));
                }
            }
        }
        store.into_iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect()
    }

    fn flood(of: impl Fn(ConfigMap) -> Event<ConfigMap>) -> Vec<Event<ConfigMap>> {
        (0..FIT * 3).map(|number| of(object("noisy", &format!("{number:03}"), 1))).collect()
    }

    #[test]
    fn objects_beyond_the_bound_of_a_namespace_are_left_out_of_lists_and_changes() {
        let mut listed = vec![Event::Init];
        listed.extend(flood(Event::InitApply));
        listed.extend([Event::InitApply(object("shop", "core", 1)), Event::InitDone]);
        let found = left(listed.clone());
        assert_eq!((found.len(), found.last().unwrap().as_str()), (FIT + 1, "shop/core"));
        listed.extend(flood(Event::Apply));
        assert_eq!(left(listed).len(), FIT + 1);
        assert_eq!(left(flood(Event::Apply)).len(), FIT);
    }

    #[test]
    fn deleted_object_and_new_list_leave_room() {
        let mut events = flood(Event::Apply);
        events.push(Event::Delete(object("noisy", "000", 1)));
        events.push(Event::Delete(object("noisy", "070", 1))); // was left out
        events.push(Event::Apply(object("noisy", "071", 1)));
        let found = left(events.clone());
        assert!(found.len() == FIT && found.contains(&"noisy/071".to_owned()), "{found:?}");
        events.extend([Event::Init, Event::InitApply(object("noisy", "070", 1)), Event::InitDone]);
        assert_eq!(left(events), ["noisy/070"]);
    }

    #[test]
    fn object_that_grows_beyond_the_bound_appears_as_deleted() {
        let mut events = flood(Event::Apply);
        events.push(Event::Apply(object("noisy", "001", 2)));
        let found = left(events.clone());
        assert!(found.len() == FIT - 1 && !found.contains(&"noisy/001".to_owned()), "{found:?}");
        events.push(Event::Apply(object("noisy", "001", 1)));
        assert_eq!(left(events).len(), FIT, "it is small again");
    }

    #[test]
    fn objects_without_a_namespace_are_not_bounded() {
        let mut events = flood(Event::Apply);
        for event in &mut events {
            let Event::Apply(object) = event else { unreachable!() };
            object.metadata.namespace = None;
        }
        let stream = bounded(futures::stream::iter(events.into_iter().map(Ok)), "Namespaces", |_: &ConfigMap| 1 << 20);
        assert_eq!(stream.count().now_or_never(), Some(FIT * 3));
    }

    #[test]
    fn memory_of_metadata_counts_its_texts() {
        let mut metadata = ObjectMeta { name: Some("n".repeat(100)), ..ObjectMeta::default() };
        metadata.labels = Some([("k".repeat(10), "v".repeat(20))].into());
        assert_eq!(metadata_bytes(&metadata), OBJECT_BYTES + 130);
    }
}
