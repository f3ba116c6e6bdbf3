//! Which FeatureEnvironments there are: for a word to the author of a pod that names one which is not there.

use std::{convert::Infallible, future::Future, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Client,
    api::PartialObjectMeta,
    runtime::{WatchStreamExt, reflector, watcher},
};

use crate::{api::FeatureEnvironment, names::EnvironmentName};

/// All that is known of one: that it is there.
type Known = PartialObjectMeta<FeatureEnvironment>;

/// What a look-up that the cache could not answer may take. Pods that name what does not exist are rare, and a pod
/// that was applied together with its environment deserves no false warning.
const BUDGET: Duration = Duration::from_millis(500);

/// The names of all FeatureEnvironments, cached.
#[derive(Clone)]
pub struct Environments {
    known: reflector::Store<Known>,
    client: Client,
}

/// The answer about one environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is there.
    Present,
    /// It is not.
    Missing,
    /// The API server did not say in time.
    Unknown,
}

impl Environments {
    /// The cache, and what fills it: to be driven for as long as it is used.
    pub fn follow(client: Client) -> (Environments, impl Future<Output = Infallible> + Send) {
        let (known, writer) = reflector::store();
        let api: Api<Known> = Api::all(client.clone());
        let following = async move {
            let mut events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer).boxed();
            loop {
                match events.next().await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => tracing::warn!(%error, "FeatureEnvironments cannot be watched"),
                    // A watcher starts over by itself, for ever.
                    None => std::future::pending().await,
                }
            }
        };
        (Environments { known, client }, following)
    }

    /// Returns once the cache holds what the API server had at the start.
    pub async fn filled(&self) {
        // Fails only when nobody fills it any more: then the process is about to end.
        if self.known.wait_until_ready().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Looks up all of them, within one budget.
    pub(super) async fn look_up<'a>(
        &self,
        namespace: &str,
        names: &'a [EnvironmentName],
    ) -> Vec<(&'a EnvironmentName, Presence)> {
        let asked = names.iter().map(|name| async move { (name, self.one(namespace, name).await) });
        futures::future::join_all(asked).await
    }

    async fn one(&self, namespace: &str, name: &EnvironmentName) -> Presence {
        let reference = reflector::ObjectRef::new(name.as_str()).within(namespace);
        if self.known.get(&reference).is_some() {
            return Presence::Present;
        }
        let api: Api<FeatureEnvironment> = Api::namespaced(self.client.clone(), namespace);
        match tokio::time::timeout(BUDGET, api.get_metadata_opt(name.as_str())).await {
            Ok(Ok(Some(_))) => Presence::Present,
            Ok(Ok(None)) => Presence::Missing,
            Ok(Err(error)) => {
                tracing::warn!(%error, %name, namespace, "FeatureEnvironment cannot be looked up");
                Presence::Unknown
            }
            Err(_) => Presence::Unknown,
        }
    }
}
