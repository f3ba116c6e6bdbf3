//! A process of the controller: the real reconciliation, with watches that a plan can disturb.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, LazyLock},
    time::Duration,
};

use kube::{
    core::DeserializeGuard,
    runtime::{controller::Action, watcher::Event},
};
use remora_operator::{
    api::{FeatureEnvironment, names::label},
    compiler::Compiler,
    controller::{
        metrics::Metrics,
        reconcile::{Context, Deps, reconcile},
    },
    publish::{self, ConfigMapMetadata, ObjectsFeed},
    rollout::{InjectedPod, RunningPodsFeed, running_pods, sidecar::SidecarClient},
    source::{
        fetch::{AllowedOrigins, Fetcher, FetcherOptions, SystemLookup},
        receiver::WebhookReceiver,
    },
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{
    documents,
    life::{Life, Part},
    network::Network,
    plan::Sight,
    replica::Replica,
    server::{Change, Key, Kind},
};

/// Time that unneeded objects stay.
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// Time in which a process notices that it has lost its lease: longer than the time between two renewals.
const RENEWAL: Duration = Duration::from_secs(6);

/// Time in which a process ends whose renewals get no answer: its fence rejects writes 20 s after the last renewal.
const UNANSWERED: Duration = Duration::from_secs(25);

/// No pod of a scenario has an address, so no request is sent. To create a client takes long, so there is one.
static SIDECARS: LazyLock<SidecarClient> = LazyLock::new(|| {
    let _installed_already = rustls::crypto::ring::default_provider().install_default();
    SidecarClient::new().unwrap()
});

/// End of a reconciliation.
pub(super) enum Turn {
    /// The reconciliation wants to be called again after this time.
    Done(Duration),
    /// The process has ended.
    Ended,
    /// The process is stopped.
    Stopped,
    /// The process knows no FeatureEnvironment.
    Idle,
}

pub(super) struct Process {
    network: Network,
    replica: Replica,
    sight: Option<Sight>,
    context: Arc<Context>,
    writer: ObjectsFeed,
    pods: RunningPodsFeed,
    /// Number of changes that are reported, or are in `pending`.
    seen: usize,
    /// Changes that the watches have not reported yet, with their resource versions.
    pending: VecDeque<(usize, Change)>,
    /// True if an event was lost since the last list.
    has_lost: bool,
    random: fastrand::Rng,
    /// Reconciliation of a process that is stopped.
    stopped: Option<JoinHandle<Action>>,
    /// FeatureEnvironment as the watch reported it last.
    environment: Option<Arc<Value>>,
}

impl Process {
    /// Starts the work of a replica that holds the lease: it lists all objects. `seed` is that of its watches.
    pub(super) fn start(network: &Network, replica: Replica, sight: Option<Sight>, seed: u64) -> Self {
        let client = network.fenced_client(&replica.life, &replica.fence);
        let (objects, writer) = publish::objects();
        let allowed = AllowedOrigins::new(&[]).unwrap();
        let receiver = WebhookReceiver::default();
        receiver.set_leading(true);
        let deps = Deps {
            fetcher: Arc::new(Fetcher::new(client.clone(), FetcherOptions::new(allowed), Arc::new(SystemLookup))),
            compiler: Arc::new(Compiler::with_function(Box::new(documents::compile))),
            client,
            sidecars: SIDECARS.clone(),
            webhook_receiver: receiver,
            metrics: Metrics::default(),
            instance: "test".to_owned(),
            memory: remora_operator::memory::Memory::with_reserve(
                remora_operator::controller::reconcile::SNAPSHOTS_MAX,
            ),
            publishes_secrets: true,
        };
        let (running, pods) = running_pods();
        let context = Arc::new(Context::new(deps, objects, running, GRACE));
        let mut process = Self {
            network: network.clone(),
            replica,
            sight,
            context,
            writer,
            pods,
            seen: 0,
            pending: VecDeque::new(),
            has_lost: false,
            random: fastrand::Rng::with_seed(seed),
            stopped: None,
            environment: None,
        };
        process.list(if let Some(Sight::Stale(changes)) = sight { changes } else { 0 });
        process
    }

    /// Lists the published objects, the pods and the environment as they were `old` changes ago.
    fn list(&mut self, old: usize) {
        let log = self.network.with(|state| state.server.log.clone());
        self.seen = log.len().saturating_sub(old);
        self.pending.clear();
        self.has_lost = false;
        let mut objects = std::collections::BTreeMap::new();
        for (key, object) in &log[..self.seen] {
            objects.insert(key.clone(), object.clone());
        }
        self.writer.apply_watcher_event(&Event::Init);
        for object in objects.values().flatten().filter(|object| is_ours(object)) {
            self.writer.apply_watcher_event(&Event::InitApply(metadata(object)));
        }
        self.writer.apply_watcher_event(&Event::InitDone);
        self.pods.apply_watcher_event(&Event::Init);
        for ((_, _), pod) in objects.iter().filter(|((kind, _), _)| *kind == Kind::Pod) {
            pod.iter().for_each(|pod| drop(self.pods.apply_watcher_event(&Event::InitApply(injected(pod)))));
        }
        self.pods.apply_watcher_event(&Event::InitDone);
        let environments = log[..self.seen].iter().rev().find(|((kind, _), _)| *kind == Kind::Environment);
        self.environment = environments.and_then(|(_, object)| object.clone());
    }

    /// Takes the changes since the last call into `pending`.
    fn take_changes(&mut self) {
        if self.replica.life.is_partitioned() {
            return;
        }
        let changes = self.network.with(|state| state.server.log[self.seen..].to_vec());
        for change in changes {
            // Every change has its own version, a deletion as well.
            self.seen += 1;
            self.pending.push_back((self.seen, change));
        }
    }

    /// Reports changes to the process: all of them, unless its watches are disturbed.
    pub(super) fn watch(&mut self) {
        match self.sight {
            Some(Sight::Relists) => self.list(0),
            Some(_) => {}
            None => self.report_all(),
        }
    }

    fn report_all(&mut self) {
        self.take_changes();
        while let Some(change) = self.pending.pop_front() {
            self.report(change);
        }
    }

    /// Reports the next change to a process whose watches are disturbed. Returns false if there is none.
    pub(super) fn watch_next(&mut self) -> bool {
        self.take_changes();
        if self.pending.is_empty() && self.has_lost {
            self.list(0);
            return true;
        }
        match self.sight {
            Some(Sight::Skips) if !self.pending.is_empty() => {
                let pending = std::mem::take(&mut self.pending);
                let later =
                    |place: usize, key: &Key| pending.iter().skip(place + 1).any(|(_, (other, _))| other == key);
                for (place, (version, change)) in pending.iter().enumerate() {
                    if !later(place, &change.0) {
                        self.report((*version, change.clone()));
                    }
                }
                return true;
            }
            Some(Sight::Swaps) if !self.pending.is_empty() => {
                // The first change of an object that is chosen by chance, whatever the number of its changes is.
                let keys: BTreeSet<&Key> = self.pending.iter().map(|(_, (key, _))| key).collect();
                let chosen = self.random.usize(..keys.len());
                let key = keys.into_iter().nth(chosen).unwrap().clone();
                let first = self.pending.iter().position(|(_, (other, _))| *other == key).unwrap();
                let change = self.pending.remove(first).unwrap();
                self.report(change);
                return true;
            }
            _ => {}
        }
        let Some(change) = self.pending.pop_front() else { return false };
        // Secrets are not watched.
        let is_watched = change.1.0.0 != Kind::Secret;
        if self.sight == Some(Sight::Drops) && is_watched && self.random.u8(..3) == 0 {
            self.has_lost = true;
        } else {
            self.report(change);
        }
        true
    }

    fn report(&mut self, (number, (key, object)): (usize, Change)) {
        let version = number.to_string();
        match (key.0, object) {
            (Kind::Environment, object) => self.environment = object,
            (Kind::Pod, Some(object)) => drop(self.pods.apply_watcher_event(&Event::Apply(injected(&object)))),
            (Kind::Pod, None) => {
                let gone = json!({"metadata": {"name": key.1, "namespace": "shop", "resourceVersion": version}});
                self.pods.apply_watcher_event(&Event::Delete(injected(&gone)));
            }
            (Kind::ConfigMap, Some(object)) if is_ours(&object) => {
                self.writer.apply_watcher_event(&Event::Apply(metadata(&object)));
            }
            (Kind::ConfigMap, None) => {
                let gone = json!({"metadata": {"name": key.1, "namespace": "shop", "resourceVersion": version}});
                self.writer.apply_watcher_event(&Event::Delete(metadata(&gone)));
            }
            _ => {}
        }
    }

    /// Reconciles once.
    pub(super) async fn turn(&mut self) -> Turn {
        let Some(environment) = &self.environment else { return Turn::Idle };
        let object: DeserializeGuard<FeatureEnvironment> = serde_json::from_value(Value::clone(environment)).unwrap();
        let context = Arc::clone(&self.context);
        let life = self.life().clone();
        let work = async move { life.run(Part::Work, reconcile(Arc::new(object), context)).await.unwrap() };
        let mut task = tokio::spawn(work);
        let life = self.life().clone();
        tokio::select! {
            biased;
            () = life.ended() => {
                task.abort();
                Turn::Ended
            }
            () = life.stopped() => {
                self.stopped = Some(task);
                Turn::Stopped
            }
            action = &mut task => Turn::Done(wait(&action.unwrap())),
        }
    }

    pub(super) fn life(&self) -> &Life {
        &self.replica.life
    }

    /// Ends the process in good order.
    pub(super) async fn release(self) {
        self.replica.release().await;
    }

    /// Ends the reconciliation of a process that was stopped, then lets it renew its lease. Returns true if the process ends,
    /// as one does that has lost its lease.
    pub(super) async fn finish(mut self) -> bool {
        let Some(mut task) = self.stopped.take() else { return false };
        let life = self.life().clone();
        tokio::select! {
            biased;
            () = life.ended() => {
                task.abort();
                return true;
            }
            _ = &mut task => life.resume(Part::Renewal),
        }
        let limit = if life.is_partitioned() || life.cannot_renew() { UNANSWERED } else { RENEWAL };
        tokio::time::timeout(limit, life.ended()).await.is_ok()
    }
}

fn is_ours(object: &Value) -> bool {
    object["kind"] == "ConfigMap" && object["metadata"]["labels"][label::MANAGED_BY] == label::REMORA
}

fn injected(pod: &Value) -> InjectedPod {
    serde_json::from_value(pod.clone()).unwrap()
}

fn metadata(object: &Value) -> ConfigMapMetadata {
    serde_json::from_value(json!({"metadata": object["metadata"]})).unwrap()
}

/// Returns the requeue time of a reconciliation. `Action` keeps it private, so it is parsed from the debug output.
fn wait(action: &Action) -> Duration {
    let text = format!("{action:?}");
    let Some(number) = text.split(['(', ')']).nth(1) else { return Duration::from_secs(60) };
    let unit = number.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let value: f64 = number.trim_end_matches(unit).parse().unwrap();
    Duration::from_secs_f64(match unit {
        "s" => value,
        "ms" => value / 1e3,
        "µs" => value / 1e6,
        _ => value / 1e9,
    })
}
