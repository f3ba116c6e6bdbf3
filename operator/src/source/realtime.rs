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
use self::stream::{Stream, StreamState, follow};
use crate::{
    api::{Flagsmith, NamespacedName, Realtime, Uid},
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
    pub uid: Uid,
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
    followed: Tasks<StreamTarget, Arc<Stream>>,
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
        environment: &NamespacedName,
        target: Option<StreamTarget>,
        document_time: Option<Timestamp>,
    ) -> Option<String> {
        let Some(target) = target else {
            self.followed.remove(environment);
            return None;
        };
        // A stream that is replaced ends soon, which returns its task's permit.
        let stream = self.followed.ensure(environment, target, |target| self.start(environment, target));
        stream.set_document_time(document_time);
        Some(stream.state().to_string())
    }

    /// Ends the streams of environments for which `exists` returns false.
    pub fn retain(&self, exists: impl Fn(&NamespacedName, &Uid) -> bool) {
        self.followed.retain(|environment, target| exists(environment, &target.uid));
    }

    fn start(
        &self,
        environment: &NamespacedName,
        target: &StreamTarget,
    ) -> (Arc<Stream>, impl Future<Output = ()> + Send + use<>) {
        let stream = Arc::new(Stream::default());
        let (fetcher, triggers, metrics) = (Arc::clone(&self.fetcher), self.triggers.clone(), self.metrics.clone());
        let (permits, for_task, target) = (self.permits.clone(), Arc::clone(&stream), target.clone());
        let environment = environment.clone();
        let following = async move {
            loop {
                let mut permit = match permits.request(&environment.namespace) {
                    Ok(permit) => permit,
                    Err(turn) => {
                        let most = permits::STREAMS_MAX;
                        for_task.set_state(StreamState::PolledOnly(format!(
                            "the operator follows {most} streams already, its maximum; the stream opens when another one ends"
                        )));
                        let NamespacedName { namespace, name } = &environment;
                        tracing::warn!(
                            namespace,
                            environment = name,
                            "the operator follows too many streams: the source is only polled until one of them ends"
                        );
                        triggers.send(&environment, Trigger::Report).await;
                        turn.permit().await
                    }
                };
                tokio::select! {
                    () = follow(&environment, &target, &fetcher, &triggers, &metrics, &for_task) => return,
                    // The stream ends here, and waits for another permit.
                    () = permit.revoked() => {}
                }
            }
        };
        (stream, following)
    }
}
