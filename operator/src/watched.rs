//! Objects of a watch, by the environments that they belong to, so that a step about one environment reads no object of
//! another.

use std::{
    collections::{BTreeMap, HashMap},
    future::pending,
    sync::Arc,
};

use kube::{Resource, ResourceExt, runtime::watcher::Event};
use parking_lot::RwLock;
use tokio::sync::watch;

/// Objects of a watch, of each of which a view of the type `V` is kept. Clones share the content.
#[derive(Clone, Debug)]
pub struct Watched<V> {
    content: Arc<RwLock<Content<V>>>,
    filled: watch::Receiver<bool>,
}

/// Views of one object, each with the name of the environment that it is about. The name is empty for no environment.
pub type Views<V> = Vec<(String, V)>;

/// Writes the events of a watch to a [`Watched`].
#[derive(Debug)]
pub struct Feed<K, V> {
    content: Arc<RwLock<Content<V>>>,
    /// Objects of a list that is not complete.
    listed: Content<V>,
    filled: watch::Sender<bool>,
    views: fn(&K) -> Views<V>,
}

#[derive(Debug)]
struct Content<V> {
    /// Views by namespace and environment, then by the object's name.
    by_environment: HashMap<(String, String), BTreeMap<String, V>>,
    /// Environments by namespace and name of the object.
    environments: HashMap<(String, String), Vec<String>>,
}

/// Creates an empty set of objects and its feed. `views` selects what is kept of an object.
pub fn watched<K, V>(views: fn(&K) -> Views<V>) -> (Watched<V>, Feed<K, V>) {
    let content: Arc<RwLock<Content<V>>> = Arc::default();
    let (filled, is_filled) = watch::channel(false);
    let watched = Watched { content: Arc::clone(&content), filled: is_filled };
    (watched, Feed { content, listed: Content::default(), filled, views })
}

impl<V: Clone> Watched<V> {
    /// Waits until the watch has listed all objects. Never returns if the watch ends before.
    pub async fn ready(&self) {
        if self.filled.clone().wait_for(|filled| *filled).await.is_err() {
            // The task that feeds the watch has ended, so the process is about to end. Without the list nothing can be
            // decided.
            pending::<()>().await;
        }
    }

    /// Returns the view of the object with this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<V> {
        let content = self.content.read();
        let environment = content.environments.get(&key(namespace, name))?.first()?;
        content.by_environment.get(&key(namespace, environment))?.get(name).cloned()
    }

    /// Returns the views of the objects of an environment, in the order of their names.
    pub fn of(&self, namespace: &str, environment: &str) -> Vec<V> {
        let content = self.content.read();
        let found = content.by_environment.get(&key(namespace, environment));
        found.map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }
}

impl<K: Resource, V> Feed<K, V> {
    /// Applies an event of the watch. A new list replaces the objects when it is complete.
    pub fn apply_watcher_event(&mut self, event: &Event<K>) {
        match event {
            Event::Init => self.listed = Content::default(),
            Event::InitApply(object) => self.listed.put(place(object), (self.views)(object)),
            Event::InitDone => {
                *self.content.write() = std::mem::take(&mut self.listed);
                self.filled.send_replace(true);
            }
            Event::Apply(object) => self.content.write().put(place(object), (self.views)(object)),
            Event::Delete(object) => self.content.write().remove(&place(object)),
        }
    }
}

impl<V> Content<V> {
    fn put(&mut self, (namespace, name): (String, String), views: Views<V>) {
        let place = (namespace, name);
        self.remove(&place);
        let (namespace, name) = &place;
        let mut environments = Vec::with_capacity(views.len());
        for (environment, view) in views {
            let objects = self.by_environment.entry(key(namespace, &environment)).or_default();
            objects.insert(name.clone(), view);
            environments.push(environment);
        }
        if !environments.is_empty() {
            self.environments.insert(place, environments);
        }
    }

    fn remove(&mut self, place: &(String, String)) {
        let (namespace, name) = place;
        for environment in self.environments.remove(place).unwrap_or_default() {
            let of_environment = key(namespace, &environment);
            let Some(objects) = self.by_environment.get_mut(&of_environment) else { continue };
            objects.remove(name);
            if objects.is_empty() {
                self.by_environment.remove(&of_environment);
            }
        }
    }
}

impl<V> Default for Content<V> {
    fn default() -> Self {
        Self { by_environment: HashMap::new(), environments: HashMap::new() }
    }
}

fn place<K: Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn key(namespace: &str, name: &str) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use tokio::task::JoinSet;

    use super::*;

    type Metadata = kube::core::PartialObjectMeta<ConfigMap>;

    fn object(name: &str, environments: &str) -> Metadata {
        let metadata = json!({"namespace": "shop", "name": name, "labels": {"of": environments}});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn views(object: &Metadata) -> Views<String> {
        let of = object.labels().get("of").cloned().unwrap_or_default();
        of.split(',').map(|environment| (environment.to_owned(), object.name_any())).collect()
    }

    #[test]
    fn object_is_found_by_name_and_by_each_of_its_environments_until_it_changes() {
        let (watched, mut feed) = watched(views);
        for number in 0..100 {
            feed.apply_watcher_event(&Event::Apply(object(&format!("other-{number}"), &format!("e{number}"))));
        }
        feed.apply_watcher_event(&Event::Apply(object("pod", "a,b")));
        feed.apply_watcher_event(&Event::Apply(object("bare", "")));
        assert_eq!((watched.of("shop", "a"), watched.of("shop", "b")), (vec!["pod".into()], vec!["pod".into()]));
        assert_eq!(
            (watched.get("shop", "bare"), watched.get("shop", "pod")),
            (Some("bare".into()), Some("pod".into()))
        );
        assert!(watched.of("other", "a").is_empty() && watched.get("other", "pod").is_none());

        feed.apply_watcher_event(&Event::Apply(object("pod", "b,c")));
        assert!(watched.of("shop", "a").is_empty());
        assert_eq!(watched.of("shop", "c"), ["pod"]);
        feed.apply_watcher_event(&Event::Delete(object("pod", "b,c")));
        assert!(watched.of("shop", "b").is_empty() && watched.get("shop", "pod").is_none());
        let content = watched.content.read();
        assert_eq!((content.environments.len(), content.by_environment.len()), (101, 101), "nothing is left behind");
    }

    #[test]
    fn new_list_replaces_objects_when_it_is_complete() {
        let (watched, mut feed) = watched(views);
        feed.apply_watcher_event(&Event::Apply(object("gone", "a")));
        feed.apply_watcher_event(&Event::Init);
        feed.apply_watcher_event(&Event::InitApply(object("new", "a")));
        assert_eq!(watched.of("shop", "a"), ["gone"]);
        feed.apply_watcher_event(&Event::InitDone);
        assert_eq!(watched.of("shop", "a"), ["new"]);
    }

    /// A controller reconciles all its objects at once when it starts, and each reconciliation waits here.
    #[tokio::test]
    async fn all_waiters_are_woken_when_list_is_complete() {
        let (watched, mut feed) = watched(views);
        // Futures of one task are woken together, so each waiter is a task.
        let mut waiting: JoinSet<()> = (0..6)
            .map(|_| {
                let watched = watched.clone();
                async move { watched.ready().await }
            })
            .collect();
        tokio::task::yield_now().await;
        feed.apply_watcher_event(&Event::Init);
        feed.apply_watcher_event(&Event::InitDone);
        let woken =
            tokio::time::timeout(Duration::from_secs(5), async { while waiting.join_next().await.is_some() {} });
        woken.await.expect("somebody waits for ever");
    }
}
