//! Keeps the published snapshot of each FeatureEnvironment in step with its spec: [fetch](crate::source::fetch) →
//! [compile](crate::compiler) → [publish](crate::publish) → [report](crate::controller::report). Between the last two
//! it [notifies](crate::rollout::nudge) the pods that wait for the revision.
//!
//! A failure of any step leaves the published snapshot as it is. The step is retried with a growing back-off. A
//! published object that somebody deletes or alters is restored at once from memory, without the source or the
//! compiler.

mod apply;
mod choose;
mod compile;
mod controller;
mod desired;
mod environment;
mod error;
mod fetch;
mod guard;
mod keep;
mod listen;
mod observe;
mod previous;
mod reconciliation;
mod recover;
mod report;
mod rollout;
mod schedule;
mod state;

use std::{convert::Infallible, sync::Arc, time::Duration};

use kube::{core::DeserializeGuard, runtime::controller::Action};
use parking_lot::Mutex;
use tokio::sync::mpsc;

pub use self::{
    controller::{Deps, run},
    error::Error,
};
use self::{
    environment::Environment,
    state::{States, Uid},
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
    states: States,
    streams: Streams,
    observer: Observer,
    /// Receiver of the triggers for early reconciliations, until the controller takes it.
    calls: Mutex<Option<mpsc::Receiver<Call>>>,
}

impl Context {
    /// Creates a context from its dependencies. `objects` are the published ConfigMaps; unneeded objects are deleted
    /// after `grace`.
    pub fn new(deps: Deps, objects: Objects, grace: Duration) -> Self {
        let Deps { client, fetcher, compiler, sidecars, metrics, instance } = deps;
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
            states: States::default(),
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
    let environment = Environment::new(environment);
    let uid = Uid(environment.uid.clone());
    let mut state = match context.states.take(&uid) {
        Some(state) => state,
        None => reconciliation::first_state(&environment, &context).await,
    };
    let next = reconciliation::run(&environment, &context, &mut state).await;
    context.states.put(uid, state);
    Ok(next)
}
