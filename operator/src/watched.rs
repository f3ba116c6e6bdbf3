//! Objects of a watch, by the environments that they belong to, so that a step about one environment reads no object of
//! another. The watch may lag, so writes of this process are entered as well, and older events do not undo them.

pub mod bounded;
mod content;
mod large_parts;
pub mod pages;
pub mod partial;
pub mod selection;

use std::{future::pending, sync::Arc};

use kube::{Resource, runtime::watcher::Event};
use parking_lot::RwLock;
use tokio::sync::watch;

use self::content::{Content, OwnWrite, version};
pub use self::content::{Touched, View, Views};
use crate::api::NamespacedName;

/// Objects of a watch, of each of which a view of the type `V` is kept. Clones share the content.
#[derive(Clone, Debug)]
pub struct Watched<V> {
    content: Arc<RwLock<Content<V>>>,
    filled: watch::Receiver<bool>,
}

/// Writes the events of a watch to a [`Watched`].
#[derive(Debug)]
pub struct Feed<K, V> {
    content: Arc<RwLock<Content<V>>>,
    /// Objects of a list that is not complete.
    listed: Content<V>,
    filled: watch::Sender<bool>,
    views: fn(&K) -> Views<V>,
}

/// Creates an empty set of objects and its feed. `views` selects what is kept of an object.
pub fn watched<K, V>(views: fn(&K) -> Views<V>) -> (Watched<V>, Feed<K, V>) {
    let content: Arc<RwLock<Content<V>>> = Arc::default();
    let (filled, is_filled) = watch::channel(false);
    let watched = Watched { content: Arc::clone(&content), filled: is_filled };
    (watched, Feed { content, listed: Content::default(), filled, views })
}

impl<V: Clone + View> Watched<V> {
    /// Waits until the watch has listed all objects. Never returns if the watch ends before.
    pub async fn ready(&self) {
        if self.filled.clone().wait_for(|filled| *filled).await.is_err() {
            // The task that feeds the watch has ended, so the process is about to end. Without the list nothing can be
            // decided.
            pending::<()>().await;
        }
    }

    /// Returns the view of the object with this name.
    pub fn get(&self, object: &NamespacedName) -> Option<V> {
        self.content.read().get(object).cloned()
    }

    /// Returns the views of the objects of an environment, in the order of their names.
    pub fn of(&self, environment: &NamespacedName) -> Vec<V> {
        self.content.read().of(environment).cloned().collect()
    }
}

impl<V: View> Watched<V> {
    /// Enters an object that this process wrote, with its new resource version. Events about earlier versions of it are
    /// ignored from now on.
    pub fn enter_write(&self, object: NamespacedName, version: &str, views: Views<V>) {
        self.content.write().enter(object, OwnWrite::Written(version.to_owned()), views);
    }

    /// Removes an object that this process deleted, with the resource version that it had. Events about this version and
    /// earlier ones are ignored from now on.
    pub fn enter_deletion(&self, object: NamespacedName, version: &str) {
        self.content.write().enter(object, OwnWrite::Deleted(version.to_owned()), Vec::new());
    }
}

impl<K: Resource, V: PartialEq + View> Feed<K, V> {
    /// Applies an event of the watch. A new list replaces the objects when it is complete. Returns the environments whose
    /// objects the event changed: for a new list, those whose views differ from the ones before or are gone.
    pub fn apply_watcher_event(&mut self, event: &Event<K>) -> Touched {
        match event {
            Event::Init => {
                self.listed = Content::default();
                // The list begins after these writes, so it has them.
                self.content.write().forget_own();
                Touched::default()
            }
            Event::InitApply(object) => {
                self.content.write().catch_up(object);
                self.listed.put(NamespacedName::of(object), version(object), (self.views)(object));
                Touched::default()
            }
            Event::InitDone => {
                let mut content = self.content.write();
                let listed = std::mem::take(&mut self.listed);
                let before = std::mem::replace(&mut *content, listed);
                let touched = content.difference(&before);
                content.keep_own(before);
                self.filled.send_replace(true);
                touched
            }
            Event::Apply(object) => {
                // Readers wait for the lock, so that it is taken after the object is read.
                let (name, views) = (NamespacedName::of(object), (self.views)(object));
                let mut content = self.content.write();
                if !content.delivers(object) {
                    return Touched::default();
                }
                let mut touched = content.environments_of(&name);
                touched.extend(views.iter().map(|(environment, _)| name.sibling(environment)));
                content.put(name, version(object), views);
                touched
            }
            Event::Delete(object) => {
                let name = NamespacedName::of(object);
                let mut content = self.content.write();
                if !content.delivers(object) {
                    return Touched::default();
                }
                let touched = content.environments_of(&name);
                content.remove(&name);
                touched
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use serde_json::json;
    use tokio::task::JoinSet;

    use super::*;

    type Metadata = kube::core::PartialObjectMeta<ConfigMap>;

    impl View for String {}

    fn shop(name: &str) -> NamespacedName {
        NamespacedName::new("shop", name)
    }

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
        assert_eq!((watched.of(&shop("a")), watched.of(&shop("b"))), (vec!["pod".into()], vec!["pod".into()]));
        assert_eq!((watched.get(&shop("bare")), watched.get(&shop("pod"))), (Some("bare".into()), Some("pod".into())));
        assert!(
            watched.of(&NamespacedName::new("other", "a")).is_empty()
                && watched.get(&NamespacedName::new("other", "pod")).is_none()
        );

        feed.apply_watcher_event(&Event::Apply(object("pod", "b,c")));
        assert!(watched.of(&shop("a")).is_empty());
        assert_eq!(watched.of(&shop("c")), ["pod"]);
        feed.apply_watcher_event(&Event::Delete(object("pod", "b,c")));
        assert!(watched.of(&shop("b")).is_empty() && watched.get(&shop("pod")).is_none());
        assert_eq!(watched.content.read().sizes(), (101, 101), "nothing is left behind");
    }

    fn at(version: u32, environments: &str) -> Metadata {
        let mut object = object("x", environments);
        object.metadata.resource_version = Some(version.to_string());
        object
    }

    #[test]
    fn event_from_before_own_write_changes_nothing() {
        let (watched, mut feed) = watched(views);
        let write = |version: u32, to: &str| {
            watched.enter_write(shop("x"), &version.to_string(), views(&at(version, to)));
        };
        let is_in = |environment: &str| watched.of(&shop(environment)).len() == 1;
        feed.apply_watcher_event(&Event::Apply(at(3, "first")));
        write(10, "own");
        assert!(is_in("own") && !is_in("first"));
        feed.apply_watcher_event(&Event::Apply(at(9, "late")));
        feed.apply_watcher_event(&Event::Delete(at(9, "late")));
        assert!(is_in("own") && !is_in("late"), "both events are from before the write");
        feed.apply_watcher_event(&Event::Apply(at(11, "other")));
        assert!(is_in("other") && !is_in("own"), "somebody else has written it since");
        write(10, "own");
        assert!(is_in("other"), "the watch was faster than the answer to the write");
        feed.apply_watcher_event(&Event::Delete(at(12, "other")));
        write(12, "own");
        assert!(watched.get(&shop("x")).is_none(), "no event would remove it");
    }

    #[test]
    fn event_from_before_own_deletion_changes_nothing() {
        let (watched, mut feed) = watched(views);
        feed.apply_watcher_event(&Event::Apply(at(9, "before")));
        watched.enter_deletion(shop("x"), "9");
        for event in [Event::Apply(at(8, "before")), Event::Apply(at(9, "before"))] {
            feed.apply_watcher_event(&event);
            assert!(watched.get(&shop("x")).is_none());
        }
        feed.apply_watcher_event(&Event::Delete(at(10, "before")));
        feed.apply_watcher_event(&Event::Apply(at(11, "again")));
        watched.enter_deletion(shop("x"), "9");
        assert!(watched.get(&shop("x")).is_some(), "the object was made again before the answer to the deletion");
    }

    /// A reconciliation deletes and writes objects whenever a user alters them. Without this, the remembered writes
    /// would grow without limit.
    #[test]
    fn own_writes_that_the_watch_has_passed_are_forgotten() {
        let (watched, mut feed) = watched(views);
        feed.apply_watcher_event(&Event::Apply(at(9, "a")));
        feed.apply_watcher_event(&Event::Delete(at(10, "a")));
        watched.enter_deletion(shop("x"), "9");
        watched.enter_write(shop("y"), "10", Views::new());
        assert_eq!(watched.content.read().own_writes(), 0, "the watch was faster than the answers");
        watched.enter_deletion(shop("y"), "12");
        watched.enter_write(shop("z"), "13", Views::new());
        assert_eq!(watched.content.read().own_writes(), 2);
        feed.apply_watcher_event(&Event::Apply(at(13, "a")));
        assert_eq!(watched.content.read().own_writes(), 0, "the watch has passed both");
        watched.enter_write(shop("z"), "15", Views::new());
        feed.apply_watcher_event(&Event::Apply(at(14, "a")));
        assert_eq!(watched.content.read().own_writes(), 1, "an event from before the write may follow");
    }

    #[test]
    fn list_keeps_own_writes_that_it_does_not_have() {
        for (listed, expected) in [(Some(9), Some("own")), (Some(10), Some("listed")), (None, None)] {
            let (watched, mut feed) = watched(views);
            feed.apply_watcher_event(&Event::Apply(at(8, "before")));
            feed.apply_watcher_event(&Event::Init);
            let view = |environment: &str| vec![(environment.to_owned(), environment.to_owned())];
            let list = |feed: &mut Feed<Metadata, String>| {
                if let Some(version) = listed {
                    feed.apply_watcher_event(&Event::InitApply(at(version, "listed")));
                }
            };
            list(&mut feed);
            watched.enter_write(shop("x"), "10", view("own"));
            feed.apply_watcher_event(&Event::InitDone);
            let found = ["own", "listed"].into_iter().find(|environment| !watched.of(&shop(environment)).is_empty());
            assert_eq!(found, expected, "{listed:?}");
            watched.enter_write(shop("x"), "12", view("later"));
            feed.apply_watcher_event(&Event::Init);
            list(&mut feed);
            feed.apply_watcher_event(&Event::InitDone);
            assert!(watched.of(&shop("later")).is_empty(), "the list began after the write");
        }
    }

    #[test]
    fn new_list_replaces_objects_when_it_is_complete() {
        let (watched, mut feed) = watched(views);
        feed.apply_watcher_event(&Event::Apply(object("gone", "a")));
        feed.apply_watcher_event(&Event::Init);
        feed.apply_watcher_event(&Event::InitApply(object("new", "a")));
        assert_eq!(watched.of(&shop("a")), ["gone"]);
        feed.apply_watcher_event(&Event::InitDone);
        assert_eq!(watched.of(&shop("a")), ["new"]);
    }

    /// Reads the content while the views of an object are computed.
    #[test]
    fn views_are_computed_while_content_can_be_read() {
        thread_local! {
            static CONTENT: RefCell<Option<Watched<String>>> = const { RefCell::new(None) };
        }
        fn reading(object: &Metadata) -> Views<String> {
            let is_free = CONTENT.with_borrow(|watched| watched.as_ref().unwrap().content.try_read().is_some());
            vec![(is_free.to_string(), object.name_any())]
        }
        let (watched, mut feed) = watched(reading);
        CONTENT.set(Some(watched.clone()));
        feed.apply_watcher_event(&Event::Apply(object("pod", "")));
        assert_eq!(watched.of(&shop("true")), ["pod"]);
    }

    #[test]
    fn event_touches_environments_whose_views_it_changes() {
        let (_watched, mut feed) = watched(views);
        let touched = |environments: &[&str]| {
            environments.iter().map(|name| NamespacedName::new("shop", name)).collect::<Touched>()
        };
        assert_eq!(feed.apply_watcher_event(&Event::Apply(object("same", "a"))), touched(&["a"]));
        assert_eq!(feed.apply_watcher_event(&Event::Apply(object("moves", "b"))), touched(&["b"]));
        assert_eq!(feed.apply_watcher_event(&Event::Apply(object("moves", "c"))), touched(&["b", "c"]));
        feed.apply_watcher_event(&Event::Apply(object("gone", "d")));
        feed.apply_watcher_event(&Event::Apply(object("deleted", "e")));
        assert_eq!(feed.apply_watcher_event(&Event::Delete(object("deleted", "e"))), touched(&["e"]));

        // A list from a cache that is newer than the broken watch.
        assert_eq!(feed.apply_watcher_event(&Event::Init), touched(&[]));
        for (name, environment) in [("same", "a"), ("moves", "f"), ("new", "g")] {
            assert_eq!(feed.apply_watcher_event(&Event::InitApply(object(name, environment))), touched(&[]));
        }
        assert_eq!(feed.apply_watcher_event(&Event::InitDone), touched(&["c", "d", "f", "g"]));
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
