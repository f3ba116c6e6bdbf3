//! Caches the annotations of namespaces, which set defaults for all of their pods, and the labels that allow something.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::PartialObjectMeta};

use super::cache::{Cache, LOOK_UP_TIMEOUT};
use crate::api::names::{GROUP, has_label, label};

/// The cached parts of a namespace: its name, and its annotations and labels under Remora's prefix.
type Known = PartialObjectMeta<Namespace>;

/// A cache of the annotations and labels of all namespaces.
#[derive(Clone)]
pub struct Namespaces {
    known: Cache<Known>,
    client: Client,
}

/// Error: a namespace is not in the cache and cannot be read from the API server.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unknown {
    #[error(transparent)]
    Get(#[from] kube::Error),
    #[error("the API server did not answer within {} ms", LOOK_UP_TIMEOUT.as_millis())]
    Timeout(#[from] tokio::time::error::Elapsed),
}

impl Namespaces {
    /// Returns the cache and the future that fills it. The caller must poll the future for as long as it uses the
    /// cache.
    pub fn watch(client: Client) -> (Namespaces, impl Future<Output = Infallible> + Send) {
        let (known, watching) = Cache::watch(Api::all(client.clone()), (), "namespaces", strip);
        (Namespaces { known, client }, watching)
    }

    /// Waits until the cache holds the first complete list.
    pub async fn wait_until_filled(&self) {
        self.known.wait_until_filled().await;
    }

    /// Returns the cached parts of a namespace. Asks the API server if the cache does not have it; `None` if it does
    /// not exist.
    ///
    /// # Errors
    ///
    /// Fails if the API server refuses the request or does not answer within [`LOOK_UP_TIMEOUT`].
    pub(super) async fn look_up(&self, namespace: &str) -> Result<Option<Arc<Known>>, Unknown> {
        if let Some(known) = self.known.get("", namespace) {
            return Ok(Some(known));
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = tokio::time::timeout(LOOK_UP_TIMEOUT, api.get_metadata_opt(namespace)).await??;
        Ok(found.map(|mut found| {
            strip(&mut found);
            Arc::new(found)
        }))
    }
}

/// Returns the annotations that a namespace sets for all of its pods.
pub(super) fn defaults(known: &Known) -> Option<&BTreeMap<String, String>> {
    known.metadata.annotations.as_ref()
}

/// True if pods of the namespace may override flags.
pub(super) fn allows_overrides(known: &Known) -> bool {
    has_label(known.metadata.labels.as_ref(), label::ALLOW_OVERRIDES, "true")
}

fn strip(namespace: &mut Known) {
    let is_ours = |key: &str| key.split_once('/').is_some_and(|(prefix, _)| prefix == GROUP);
    if let Some(annotations) = &mut namespace.metadata.annotations {
        annotations.retain(|key, _| is_ours(key));
    }
    namespace.metadata.managed_fields = None;
    if let Some(labels) = &mut namespace.metadata.labels {
        labels.retain(|key, _| is_ours(key));
    }
}
