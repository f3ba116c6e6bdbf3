//! Caches the annotations of namespaces, which set defaults for all of their pods, and the labels that allow something.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use super::{cache::Cache, look_ups::LookUps};
use crate::{
    api::names::{has_label, label},
    api_call::CallError,
    injection::annotations::{KNOWN, VALUE_MAX},
    watched::{pages::Pages, partial::PartialObject, selection::Selection},
};

/// The cached parts of a namespace: its name, and the annotations and labels that injection reads.
pub(super) type KnownNamespace = PartialObject<Namespace, NamespaceSelection>;

/// Metadata of a namespace that injection reads.
#[derive(Clone, Debug)]
pub(super) struct NamespaceSelection;

impl Selection for NamespaceSelection {
    fn annotation(key: &str) -> usize {
        if KNOWN.contains(&key) { VALUE_MAX } else { 0 }
    }

    fn label(key: &str) -> bool {
        [label::ADMISSION, label::ALLOW_OVERRIDES].contains(&key)
    }
}

/// A cache of the annotations and labels of all namespaces.
#[derive(Clone)]
pub struct Namespaces {
    known: Cache<KnownNamespace>,
    client: Client,
    look_ups: LookUps,
}

impl Namespaces {
    /// Returns the cache and the future that fills it. The caller must poll the future for as long as it uses the
    /// cache.
    pub fn watch(client: Client) -> (Namespaces, impl Future<Output = Infallible> + Send) {
        let (known, watching) = Cache::watch(Api::all(Pages::default().bound(&client)), (), "namespaces");
        (Namespaces { known, client, look_ups: LookUps::default() }, watching)
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
    /// Fails if the API server refuses the request or does not answer within
    /// [`LOOK_UP_TIMEOUT`](super::look_ups::LOOK_UP_TIMEOUT).
    pub(super) async fn look_up(&self, namespace: &str) -> Result<Option<Arc<KnownNamespace>>, CallError> {
        if let Some(known) = self.known.get("", namespace) {
            return Ok(Some(known));
        }
        let api: Api<KnownNamespace> = Api::all(self.client.clone());
        let found = self.look_ups.run(api.get_opt(namespace)).await?;
        Ok(found.map(Arc::new))
    }
}

/// Returns the annotations that a namespace sets for all of its pods.
pub(super) fn defaults(known: &KnownNamespace) -> Option<&BTreeMap<String, String>> {
    known.metadata.annotations.as_ref()
}

/// True if pods of the namespace may override flags.
pub(super) fn allows_overrides(known: &KnownNamespace) -> bool {
    has_label(known.metadata.labels.as_ref(), label::ALLOW_OVERRIDES, "true")
}
