//! Keeps the published snapshot of each FeatureEnvironment in step with its spec: [fetch](crate::source::fetch) →
//! [compile](crate::compiler) → [publish](crate::publish) → [report](crate::controller::report). Between the last two
//! it [notifies](crate::rollout::nudge) the pods that wait for the revision.
//!
//! A failure of any step leaves the published snapshot as it is. The step is retried with a growing back-off. A
//! published object that somebody deletes or alters is restored at once from memory, without the source or the
//! compiler.

mod bring;
mod carry;
mod controller;
mod error;
mod judge;
mod memory;
mod schedule;
mod turn;

use std::{convert::Infallible, sync::Arc, time::Duration};

use kube::{ResourceExt, core::DeserializeGuard, runtime::controller::Action};
use parking_lot::Mutex;
use tokio::sync::mpsc;

pub use self::{
    controller::{Means, run},
    error::Error,
};
use self::{
    memory::{Memories, Uid},
    turn::Turn,
};
use crate::{
    api::FeatureEnvironment,
    compiler::Compiler,
    controller::{metrics::Metrics, report::Reports},
    publish::{Objects, Publisher},
    rollout::{nudge::Nudger, observe::Observer},
    source::{
        fetch::Fetcher,
        realtime::Streams,
        wake::{Call, Wake},
    },
};

/// State that all reconciliations share.
pub struct Context {
    fetcher: Arc<Fetcher>,
    compiler: Arc<Compiler>,
    publisher: Publisher,
    nudger: Nudger,
    reports: Reports,
    metrics: Metrics,
    memories: Memories,
    streams: Streams,
    observer: Observer,
    /// Receiver of the triggers for early reconciliations, until the controller takes it.
    calls: Mutex<Option<mpsc::Receiver<Call>>>,
}

impl Context {
    /// Creates a context from its dependencies. `objects` are the published ConfigMaps; unneeded objects are deleted
    /// after `grace`.
    pub fn new(means: Means, objects: Objects, grace: Duration) -> Self {
        let Means { client, fetcher, compiler, sidecars, metrics, instance } = means;
        let (wake, calls) = Wake::new();
        let nudger = Nudger::new(client.clone());
        Self {
            observer: Observer::new(client.clone(), nudger.clone(), sidecars, wake.clone()),
            streams: Streams::new(Arc::clone(&fetcher), wake, metrics.realtime.clone()),
            calls: Mutex::new(Some(calls)),
            fetcher,
            compiler,
            publisher: Publisher::new(client.clone(), objects, grace),
            nudger,
            reports: Reports::new(client, instance),
            metrics,
            memories: Memories::default(),
        }
    }

    /// Returns the receiver of triggers for early reconciliations. The receiver can be taken once; a second call
    /// returns `None`.
    pub fn calls(&self) -> Option<mpsc::Receiver<Call>> {
        self.calls.lock().take()
    }
}

/// Reconciles one FeatureEnvironment and returns when to reconcile it next. It never fails: each failure sets its own
/// back-off.
pub async fn reconcile(
    object: Arc<DeserializeGuard<FeatureEnvironment>>,
    context: Arc<Context>,
) -> Result<Action, Infallible> {
    let environment = match &object.0 {
        Ok(environment) => environment,
        Err(invalid) => {
            // The schema rejects such objects, so the environment waits for the next edit.
            let (namespace, name) = (invalid.metadata.namespace.as_deref(), invalid.metadata.name.as_deref());
            tracing::error!(namespace, name, error = invalid.error, "not a FeatureEnvironment that this version reads");
            return Ok(Action::await_change());
        }
    };
    if environment.metadata.deletion_timestamp.is_some() {
        // Kubernetes' garbage collector deletes the published objects by their owner reference.
        return Ok(Action::await_change());
    }
    context.publisher.ready().await;
    let turn = Turn::new(&context, environment);
    let uid = Uid(environment.uid().unwrap_or_default());
    let mut memory = match context.memories.take(&uid) {
        Some(memory) => memory,
        None => turn.first_memory(&uid).await,
    };
    let next = turn.run(&mut memory).await;
    context.memories.put(uid, memory);
    Ok(next)
}
