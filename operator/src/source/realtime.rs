//! Follows the streams on which Flagsmith sends change events, one stream for each environment that asks for it.
//!
//! An event that is newer than the cached document triggers an unconditional fetch. Each stream that opens triggers a
//! conditional fetch, because events sent before it opened are lost. Nothing depends on a stream: polling continues
//! beside it.

pub(crate) mod metrics;
mod permits;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;

use self::metrics::RealtimeMetrics;
pub use self::permits::StreamPermits;
use self::stream::{Shared, follow};
use crate::{
    api::{Flagsmith, Realtime},
    source::{
        fetch::Fetcher,
        trigger::{Trigger, TriggerSender},
    },
    tasks::Tasks,
};

/// The stream that an environment needs. A change to any field opens the stream anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamTarget {
    /// UID of the FeatureEnvironment. A name alone may be reused.
    pub uid: String,
    /// Flagsmith source of the environment, for the reference to its CA bundle.
    pub flagsmith: Flagsmith,
    /// Settings of the stream.
    pub realtime: Realtime,
    /// Client-side key, from the cached document.
    pub client_key: String,
}

/// The streams of all environments.
pub struct Streams {
    fetcher: Arc<Fetcher>,
    triggers: TriggerSender,
    metrics: RealtimeMetrics,
    permits: StreamPermits,
    followed: Tasks<StreamTarget, Arc<Shared>>,
}

impl Streams {
    /// Creates an empty set of streams. Streams are opened with `fetcher`, in `permits`, and trigger reconciliations through
    /// `triggers`.
    pub fn new(
        fetcher: Arc<Fetcher>,
        triggers: TriggerSender,
        metrics: RealtimeMetrics,
        permits: StreamPermits,
    ) -> Self {
        Self { fetcher, triggers, metrics, permits, followed: Tasks::default() }
    }

    /// Follows `target` for this environment, or ends its stream if `target` is `None`. `document_time` is the time of the last
    /// change in the cached document. Returns the state of the stream as text for the status.
    pub fn ensure(
        &self,
        namespace: &str,
        name: &str,
        target: Option<StreamTarget>,
        document_time: Option<Timestamp>,
    ) -> Option<String> {
        let Some(target) = target else {
            self.followed.remove(namespace, name);
            return None;
        };
        // A stream that is replaced ends soon, which returns its task's permit.
        let shared = self.followed.ensure(namespace, name, target, |target| self.start(namespace, name, target));
        shared.set_document_time(document_time);
        Some(shared.state_text())
    }

    /// Ends the streams of environments for which `is_there` (namespace, name, UID) returns false.
    pub fn retain(&self, is_there: impl Fn(&str, &str, &str) -> bool) {
        self.followed.retain(|namespace, name, target| is_there(namespace, name, &target.uid));
    }

    fn start(
        &self,
        namespace: &str,
        name: &str,
        target: &StreamTarget,
    ) -> (Arc<Shared>, impl Future<Output = ()> + Send + use<>) {
        let shared = Arc::new(Shared::default());
        let (fetcher, triggers, metrics) = (Arc::clone(&self.fetcher), self.triggers.clone(), self.metrics.clone());
        let (permits, for_task, target) = (self.permits.clone(), Arc::clone(&shared), target.clone());
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let following = async move {
            loop {
                let mut permit = match permits.request(&namespace) {
                    Ok(permit) => permit,
                    Err(turn) => {
                        for_task.set_state_text("polled only: too many streams are followed already".to_owned());
                        tracing::warn!(namespace, environment = name, "too many streams: polled only");
                        triggers.send(&namespace, &name, Trigger::Report).await;
                        turn.permit().await
                    }
                };
                tokio::select! {
                    () = follow(&namespace, &name, &target, &fetcher, &triggers, &metrics, &for_task) => return,
                    // The stream ends here, and waits for another permit.
                    () = permit.revoked() => {}
                }
            }
        };
        (shared, following)
    }
}
