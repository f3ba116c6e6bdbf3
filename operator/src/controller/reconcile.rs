//! Keeps the published snapshot of each FeatureEnvironment in step with its spec.
//!
//! | step | file | what it does |
//! |---|---|---|
//! | observe | `observe` | reads which revision the cluster has |
//! | fetch | `fetch`, `refresh` | decides whether a fetch is due or requested, and fetches the document |
//! | compile | `compile` | compiles the document in a child process |
//! | guard | `guard` | accepts the snapshot, or holds it back until a person approves it |
//! | recover | `recover` | reads the published snapshot from the cluster if this process needs it and does not have it |
//! | choose | `choose` | selects the newest, the pinned, or the last good snapshot |
//! | fit | `room` | withholds the selected snapshot while running pods have no room for its core |
//! | apply | `apply`, `obsolete` | publishes the selected snapshot, archives the one that it replaces, and deletes objects that no pod mounts any more |
//! | roll out | `rollout` | notifies pods of the revision, and observes which revision they serve |
//! | collect | `collect` | has the uses of flags collected from pods and sent to the source |
//! | receive | `receive`, `listen` | registers the environment for webhooks, and follows its stream of changes |
//! | report | `report` | writes the status, and an Event for each change of it |
//!
//! `reconciliation` runs the steps in this order. The state between two reconciliations is a value for each step that
//! needs one (`state`). While a source or a compilation is slow, `keep` restores published objects.
//!
//! A failure of any step leaves the published snapshot as it is. The step is retried with a growing back-off. A
//! published object that somebody deletes or alters is restored at once from memory, without the source or the
//! compiler.

mod apply;
mod choose;
mod collect;
mod compile;
mod controller;
mod desired;
mod environment;
mod error;
mod fetch;
mod first_pass;
mod guard;
mod keep;
mod listen;
mod observe;
mod obsolete;
mod receive;
mod reconciliation;
mod recover;
mod referrers;
mod refresh;
mod report;
mod rollout;
mod room;
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
    rollout::{RunningPods, nudge::Nudger, observe::Observer, usage::Collector},
    source::{
        fetch::Fetcher,
        realtime::Streams,
        receiver::Receiver,
        trigger::{TriggerRequest, TriggerSender},
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
    collector: Collector,
    receiver: Receiver,
    /// Sender of triggers for early reconciliations.
    sender: TriggerSender,
    /// Receiver of the triggers for early reconciliations, until the controller takes it.
    triggers: Mutex<Option<mpsc::Receiver<TriggerRequest>>>,
}

impl Context {
    /// Creates a context from its dependencies. `objects` are the published ConfigMaps, and `pods` the injected pods;
    /// unneeded objects are deleted after `grace`.
    pub fn new(deps: Deps, objects: Objects, pods: RunningPods, grace: Duration) -> Self {
        let Deps { client, fetcher, compiler, sidecars, receiver, metrics, instance } = deps;
        let (sender, triggers) = TriggerSender::new();
        let nudger = Nudger::new(client.clone(), pods.clone());
        Self {
            collector: Collector::new(
                pods.clone(),
                sidecars.clone(),
                Arc::clone(&fetcher),
                sender.clone(),
                metrics.usage.clone(),
            ),
            observer: Observer::new(client.clone(), pods, nudger.clone(), sidecars, sender.clone()),
            streams: Streams::new(Arc::clone(&fetcher), sender.clone(), metrics.realtime.clone()),
            receiver,
            sender,
            triggers: Mutex::new(Some(triggers)),
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
    pub fn triggers(&self) -> Option<mpsc::Receiver<TriggerRequest>> {
        self.triggers.lock().take()
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
            tracing::error!(
                namespace,
                name,
                error = invalid.error,
                "cannot read the FeatureEnvironment: correct the field that the error names"
            );
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
