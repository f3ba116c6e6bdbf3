//! State that all reconciliations share.

use std::{sync::Arc, time::Duration};

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{
    bounds::Bounds, deletion::UnderWay, read::Reader, report::StatusWriter, state::States, turns::ReconciliationTurns,
};
use crate::{
    compiler::Compiler,
    controller::metrics::Metrics,
    memory::Memory,
    publish::{Objects, Publisher},
    rollout::{PodLister, RunningPods, nudge::Nudger, observe::Observer, sidecar::SidecarClient},
    source::{
        fetch::Fetcher,
        realtime::Streams,
        receiver::WebhookReceiver,
        trigger::{TriggerRequest, TriggerSender},
    },
    usage::Collector,
};

/// Dependencies of a reconciliation.
#[derive(Clone)]
pub struct Deps {
    /// Client that reads and writes the cluster.
    pub client: Client,
    /// Fetcher that reads sources.
    pub fetcher: Arc<Fetcher>,
    /// Compiler that compiles one document at a time, each in a child process.
    pub compiler: Arc<Compiler>,
    /// HTTP client that asks pods which revision they serve.
    pub sidecars: SidecarClient,
    /// Receiver of webhooks.
    pub webhook_receiver: WebhookReceiver,
    /// Metrics of the controller.
    pub metrics: Metrics,
    /// Memory for the snapshots of all environments.
    pub memory: Arc<Memory>,
    /// True if the controller may publish Secrets. Otherwise environments with `spec.delivery.as: Secret` are not accepted.
    pub publishes_secrets: bool,
    /// Name of this replica in Events.
    pub instance: String,
}

/// State that all reconciliations share.
pub struct Context {
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) reader: Reader,
    pub(super) publisher: Publisher,
    /// Memory for the snapshots of all environments.
    pub(super) memory: Arc<Memory>,
    /// True if the controller may publish Secrets.
    pub(super) publishes_secrets: bool,
    pub(super) nudger: Nudger,
    pub(super) status_writer: StatusWriter,
    pub(super) metrics: Metrics,
    pub(super) states: States,
    pub(super) turns: ReconciliationTurns,
    pub(super) under_way: UnderWay,
    pub(super) streams: Streams,
    pub(super) observer: Observer,
    pub(super) lister: PodLister,
    pub(super) collector: Collector,
    pub(super) webhook_receiver: WebhookReceiver,
    /// Sender of triggers for early reconciliations.
    pub(super) trigger_sender: TriggerSender,
    /// Receiver of these triggers, until the controller takes it.
    trigger_requests: Mutex<Option<mpsc::Receiver<TriggerRequest>>>,
}

impl Context {
    /// Creates a context from its dependencies. `objects` are the published ConfigMaps, and `pods` the injected pods;
    /// unneeded objects are deleted after `grace`.
    pub fn new(deps: Deps, objects: Objects, pods: RunningPods, grace: Duration) -> Self {
        Self::with_bounds(deps, &Bounds::default(), objects, pods, grace)
    }

    /// Creates a context that has bounds over all environments in common with others.
    pub(super) fn with_bounds(
        deps: Deps,
        bounds: &Bounds,
        objects: Objects,
        pods: RunningPods,
        grace: Duration,
    ) -> Self {
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
        let turns = ReconciliationTurns::new(&bounds.reconciliations, trigger_sender.clone());
        let nudger = Nudger::new(client.clone(), pods.clone(), bounds.patches.clone());
        Self {
            collector: Collector::new(
                pods.clone(),
                sidecars.clone(),
                Arc::clone(&fetcher),
                trigger_sender.clone(),
                metrics.usage.clone(),
                &bounds.counts,
            ),
            observer: Observer::new(pods, nudger.clone(), sidecars, trigger_sender.clone()),
            streams: Streams::new(
                Arc::clone(&fetcher),
                trigger_sender.clone(),
                metrics.realtime.clone(),
                bounds.streams.clone(),
            ),
            lister: PodLister::new(client.clone(), bounds.lists.clone()),
            webhook_receiver,
            trigger_sender,
            trigger_requests: Mutex::new(Some(trigger_requests)),
            reader: Reader::new(Arc::clone(&fetcher), compiler, metrics.clone()),
            fetcher,
            publisher: Publisher::new(client.clone(), objects, grace, bounds.objects.clone(), Arc::clone(&memory)),
            memory,
            publishes_secrets,
            nudger,
            status_writer: StatusWriter::new(client, instance),
            metrics,
            states: States::default(),
            turns,
            under_way: UnderWay::default(),
        }
    }

    /// Returns the receiver of triggers for early reconciliations. The receiver can be taken once; a second call
    /// returns `None`.
    pub fn trigger_requests(&self) -> Option<mpsc::Receiver<TriggerRequest>> {
        self.trigger_requests.lock().take()
    }
}
