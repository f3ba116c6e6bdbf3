//! Keeps the published snapshot of each FeatureEnvironment in step with its spec.
//!
//! | step | file | what it does |
//! |---|---|---|
//! | receive | `background/receive` | registers the environment for webhooks |
//! | observe | `observe` | reads which revision the cluster has |
//! | fetch | `read/fetch`, `read/refresh` | decides whether a fetch is due or requested, and fetches the document |
//! | compile | `read/compile` | compiles the document in a child process |
//! | guard | `accept`, `guard` | accepts the snapshot, or holds it back until a person approves it |
//! | recover | `publish/recover` | reads the published snapshot from the cluster if this process needs it and does not have it |
//! | choose | `publish/choose` | selects the newest, the pinned, or the last good snapshot |
//! | fit | `publish/fit` | withholds the selected snapshot while running pods have no room for its core |
//! | apply | `publish/apply` | publishes the selected snapshot, and archives the one that it replaces |
//! | withdraw | `publish/withdraw` | deletes objects that no pod mounts any more |
//! | notify | `publish/notify` | notifies pods of the revision |
//! | observe pods | `background/observe_pods` | starts the task that asks pods which revision they serve, and reads its latest counts |
//! | listen | `background/listen` | starts the task that follows the stream of changes |
//! | collect | `background/collect` | starts the task that sends the uses of flags to the source |
//! | report | `report` | writes the status, and an Event for each change of it |
//!
//! `reconciliation` runs the steps in this order, and collects what they return as the facts of the report. The state
//! between two reconciliations is a value for each step that needs one (`state`). While a source or a compilation is slow,
//! `publish/restore` restores published objects. `watches` makes the streams of objects that cause reconciliations.
//!
//! A failure of any step leaves the published snapshot as it is. The step is retried with a growing back-off. A
//! published object that somebody deletes or alters is restored at once from memory, without the source or the
//! compiler.

mod accept;
mod background;
mod desired;
mod environment;
mod error;
mod guard;
mod memory;
mod namespace_bound;
mod observe;
mod publish;
mod read;
mod reconciliation;
mod report;
mod schedule;
mod shared;
mod state;
mod turns;
mod watches;

use std::{convert::Infallible, sync::Arc, time::Duration};

use kube::{core::DeserializeGuard, runtime::controller::Action};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use self::{
    environment::Environment,
    namespace_bound::NamespaceBound,
    shared::Shared,
    state::{States, Uid},
    turns::Turns,
};
pub use self::{
    error::Error,
    memory::SNAPSHOTS_MAX,
    watches::{Deps, run},
};
use crate::{
    api::FeatureEnvironment,
    compiler::Compiler,
    controller::{metrics::Metrics, report::Reports},
    memory::Memory,
    publish::{Objects, Publisher},
    rollout::{PodLister, RunningPods, nudge::Nudger, observe::Observer},
    source::{
        fetch::Fetcher,
        realtime::Streams,
        receiver::WebhookReceiver,
        trigger::{TriggerRequest, TriggerSender},
    },
    usage::Collector,
};

/// State that all reconciliations share.
pub struct Context {
    fetcher: Arc<Fetcher>,
    compiler: Arc<Compiler>,
    publisher: Publisher,
    /// Memory for the snapshots of all environments.
    memory: Arc<Memory>,
    /// True if the controller may publish Secrets.
    publishes_secrets: bool,
    nudger: Nudger,
    reports: Reports,
    metrics: Metrics,
    states: States,
    /// Documents from the fetch to the compiled snapshot.
    documents: NamespaceBound,
    turns: Turns,
    streams: Streams,
    observer: Observer,
    lister: PodLister,
    collector: Collector,
    webhook_receiver: WebhookReceiver,
    /// Sender of triggers for early reconciliations.
    trigger_sender: TriggerSender,
    /// Receiver of these triggers, until the controller takes it.
    trigger_requests: Mutex<Option<mpsc::Receiver<TriggerRequest>>>,
}

impl Context {
    /// Creates a context from its dependencies. `objects` are the published ConfigMaps, and `pods` the injected pods;
    /// unneeded objects are deleted after `grace`.
    pub fn new(deps: Deps, objects: Objects, pods: RunningPods, grace: Duration) -> Self {
        Self::sharing(deps, &Shared::default(), objects, pods, grace)
    }

    /// Creates a context that has bounds over all environments in common with others.
    fn sharing(deps: Deps, shared: &Shared, objects: Objects, pods: RunningPods, grace: Duration) -> Self {
        let Deps {
            client,
            fetcher,
            compiler,
            sidecars,
            webhook_receiver,
            metrics,
            instance,
            memory,
            publishes_secrets,
        } = deps;
        let (trigger_sender, trigger_requests) = TriggerSender::new();
        let turns = Turns::new(&shared.reconciliations, trigger_sender.clone());
        let nudger = Nudger::new(client.clone(), pods.clone()).sharing(&shared.patches);
        Self {
            collector: Collector::new(
                pods.clone(),
                sidecars.clone(),
                Arc::clone(&fetcher),
                trigger_sender.clone(),
                metrics.usage.clone(),
                &shared.counts,
            ),
            observer: Observer::new(pods, nudger.clone(), sidecars, trigger_sender.clone()),
            streams: Streams::new(
                Arc::clone(&fetcher),
                trigger_sender.clone(),
                metrics.realtime.clone(),
                shared.streams.clone(),
            ),
            lister: PodLister::new(client.clone(), shared.lists.clone()),
            webhook_receiver,
            trigger_sender,
            trigger_requests: Mutex::new(Some(trigger_requests)),
            fetcher,
            compiler,
            publisher: Publisher::new(client.clone(), objects, grace).sharing(&shared.reads).within(&memory),
            memory,
            publishes_secrets,
            nudger,
            reports: Reports::new(client, instance),
            metrics,
            states: States::default(),
            documents: NamespaceBound::new(namespace_bound::DOCUMENTS),
            turns,
        }
    }

    /// Returns the receiver of triggers for early reconciliations. The receiver can be taken once; a second call
    /// returns `None`.
    pub fn trigger_requests(&self) -> Option<mpsc::Receiver<TriggerRequest>> {
        self.trigger_requests.lock().take()
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
    let Some(_turn) = context.turns.begin(&environment.namespace, &environment.name) else {
        // A trigger follows. Should it be lost, the environment asks again.
        return Ok(Action::requeue(schedule::UPKEEP));
    };
    let uid = Uid(environment.uid.clone());
    let mut state = match context.states.take(&uid) {
        Some(state) => state,
        None => reconciliation::first_state(&environment, &context).await,
    };
    let next = reconciliation::run(&environment, &context, &mut state).await;
    context.states.put(uid, state);
    Ok(next)
}
