//! What namespaces say for all of their pods, from a cache of their annotations.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::PartialObjectMeta,
    runtime::{WatchStreamExt, reflector, watcher},
};

use crate::api::names::GROUP;

/// All that is kept of one: its name, and its annotations that are ours.
type Known = PartialObjectMeta<Namespace>;

/// What a look-up that the cache could not answer may take: a pod may be created right after its namespace.
const BUDGET: Duration = Duration::from_millis(500);

/// The annotations of all namespaces, cached.
#[derive(Clone)]
pub struct Namespaces {
    known: reflector::Store<Known>,
    client: Client,
}

/// A namespace that is not in the cache, and about which the API server says nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unknown {
    #[error(transparent)]
    Get(#[from] kube::Error),
    #[error("no answer within {} ms", BUDGET.as_millis())]
    Silence(#[from] tokio::time::error::Elapsed),
}

impl Namespaces {
    /// The cache, and what fills it: to be driven for as long as it is used.
    pub fn follow(client: Client) -> (Namespaces, impl Future<Output = Infallible> + Send) {
        let (known, writer) = reflector::store();
        let api: Api<Known> = Api::all(client.clone());
        let following = async move {
            let events = watcher(api, watcher::Config::default()).default_backoff().modify(strip);
            let mut events = events.reflect(writer).boxed();
            loop {
                match events.next().await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => tracing::warn!(%error, "namespaces cannot be watched"),
                    // A watcher starts over by itself, for ever.
                    None => std::future::pending().await,
                }
            }
        };
        (Namespaces { known, client }, following)
    }

    /// Returns once the cache holds what the API server had at the start.
    pub async fn filled(&self) {
        // Fails only when nobody fills it any more: then the process is about to end.
        if self.known.wait_until_ready().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The annotations of a namespace that are ours.
    pub(super) async fn look_up(&self, namespace: &str) -> Result<Option<Arc<Known>>, Unknown> {
        if let Some(known) = self.known.get(&reflector::ObjectRef::new(namespace)) {
            return Ok(Some(known));
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = tokio::time::timeout(BUDGET, api.get_metadata_opt(namespace)).await??;
        Ok(found.map(|mut found| {
            strip(&mut found);
            Arc::new(found)
        }))
    }
}

/// What a namespace says for all of its pods.
pub(super) fn defaults(known: &Known) -> Option<&BTreeMap<String, String>> {
    known.metadata.annotations.as_ref()
}

fn strip(namespace: &mut Known) {
    let is_ours = |key: &str| key.split_once('/').is_some_and(|(prefix, _)| prefix == GROUP);
    if let Some(annotations) = &mut namespace.metadata.annotations {
        annotations.retain(|key, _| is_ours(key));
    }
    namespace.metadata.managed_fields = None;
    namespace.metadata.labels = None;
}
