//! Cache of all objects of one kind, which a watch fills.

use std::{convert::Infallible, fmt::Debug, future::pending, hash::Hash, sync::Arc};

use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, reflector, watcher},
};
use serde::de::DeserializeOwned;

use crate::watched::bounded::{bounded, metadata_bytes};

/// Cache of all objects of the kind `K`.
#[derive(Clone)]
pub(super) struct Cache<K: Resource<DynamicType: Eq + Hash> + 'static> {
    known: reflector::Store<K>,
    kind: K::DynamicType,
}

impl<K> Cache<K>
where
    K: Resource<DynamicType: Clone + Eq + Hash + Send + Sync> + Clone + Debug + DeserializeOwned + Send + Sync,
{
    /// Returns the cache and the future that fills it. The caller must poll the future for as long as it uses the cache.
    /// `name` names the kind in the log.
    pub(super) fn watch(
        api: Api<K>,
        kind: K::DynamicType,
        name: &'static str,
    ) -> (Self, impl Future<Output = Infallible> + Send) {
        let writer = reflector::store::Writer::new(kind.clone());
        let known = writer.as_reader();
        let watching = async move {
            let events =
                bounded(watcher(api, watcher::Config::default()), name, |object| metadata_bytes(object.meta()));
            let mut events = events.default_backoff().reflect(writer).boxed();
            loop {
                match events.next().await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => tracing::warn!(%error, "cannot watch {name}; trying again"),
                    // Never taken: a watcher restarts by itself.
                    None => pending().await,
                }
            }
        };
        (Self { known, kind }, watching)
    }

    /// Waits until the cache holds the first complete list.
    pub(super) async fn wait_until_filled(&self) {
        // Fails only if the future that fills the cache was dropped, which happens only when the process ends.
        if self.known.wait_until_ready().await.is_err() {
            pending::<()>().await;
        }
    }

    /// Returns the object with this name, or `None` if the cache does not have it. Objects without a namespace are found
    /// in any.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.known.get(&reflector::ObjectRef::new_with(name, self.kind.clone()).within(namespace))
    }
}
