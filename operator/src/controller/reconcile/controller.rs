//! Triggers of reconciliations: changes of FeatureEnvironments, of published objects, and of objects that sources refer
//! to.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt, TryStreamExt, future::join_all, stream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::{DeserializeGuard, PartialObjectMeta},
    runtime::{
        Config, Controller, WatchStreamExt,
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Context, reconcile, state::Uid};
use crate::{
    api::{FeatureEnvironment, names::label},
    compiler::Compiler,
    controller::metrics::Metrics,
    publish::{self, SURPLUS_GRACE},
    rollout::{self, observe::SidecarClient},
    source::{
        fetch::Fetcher,
        receiver::Receiver,
        trigger::{Trigger, TriggerRequest},
    },
};

/// Number of reconciliations at one time; most of them wait for a server. One namespace may use a quarter of them for
/// work on documents.
const CONCURRENCY: u16 = 128;
/// Time between two removals of the state of deleted environments.
const SWEEP: Duration = Duration::from_secs(60);
/// Time between two removals of the streams and pod queries of deleted environments.
const TASK_SWEEP: Duration = Duration::from_secs(2);

type Environment = DeserializeGuard<FeatureEnvironment>;
type Metadata = PartialObjectMeta<ConfigMap>;

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
    pub receiver: Receiver,
    /// Metrics of the controller.
    pub metrics: Metrics,
    /// Name of this replica in Events.
    pub instance: Option<String>,
}

/// Reconciles in these namespaces, or in all if the list is empty, until `shutdown` is true. Reconciliations under way
/// then run to their end. Each listed namespace has its own watches, so the operator needs no permission outside the
/// list.
pub async fn run(deps: Deps, namespaces: &[String], shutdown: watch::Receiver<bool>) {
    if namespaces.is_empty() {
        return run_in(deps, None, shutdown).await;
    }
    let namespaces: BTreeSet<&String> = namespaces.iter().collect();
    join_all(namespaces.into_iter().map(|namespace| run_in(deps.clone(), Some(namespace), shutdown.clone()))).await;
}

async fn run_in(deps: Deps, namespace: Option<&str>, mut shutdown: watch::Receiver<bool>) {
    let (client, metrics) = (deps.client.clone(), deps.metrics.clone());
    let config_maps = || in_scope::<Metadata>(&client, namespace);
    let (objects, mut feed) = publish::objects();
    let ours = watcher(config_maps(), selecting(label::REMORA, "="))
        .default_backoff()
        .inspect_ok(move |event| feed.apply_watcher_event(event))
        .touched_objects();
    let others = watcher(config_maps(), selecting(label::REMORA, "!=")).default_backoff().touched_objects();

    let environments = in_scope::<Environment>(&client, namespace);
    let controller = Controller::new(environments, watcher::Config::default());
    let known = controller.store();
    let (pods, pods_feed) = rollout::running_pods();
    let following = rollout::follow(in_scope::<Pod>(&client, namespace), pods_feed);
    let context = Arc::new(Context::new(deps, objects, pods, SURPLUS_GRACE));

    let referrers = Referrers { known: known.clone(), context: Arc::clone(&context), seen: Mutex::default() };
    let stopped = async move {
        let _ = shutdown.wait_for(|stop| *stop).await;
    };
    let reconciling = controller
        .with_config(Config::default().concurrency(CONCURRENCY))
        .watches_stream(ours, |object| of_environment(&object))
        .watches_stream(others, move |object| referrers.of(&object))
        .reconcile_on(triggered(&context))
        .graceful_shutdown_on(stopped)
        .run(reconcile, |_, never, _| match *never {}, Arc::clone(&context))
        .map_err(|error| tracing::debug!(%error, "reconciliation failed"))
        .for_each(|_| std::future::ready(()));
    tokio::select! {
        () = reconciling => {}
        () = following => {}
        () = sweep(&known, &context, &metrics) => {}
        () = end_tasks_of_deleted(&known, &context, namespace) => {}
    }
}

/// Streams the environments with a trigger, and stores the trigger for their next reconciliation.
fn triggered(context: &Arc<Context>) -> impl Stream<Item = ObjectRef<Environment>> + Send + 'static {
    let context = Arc::clone(context);
    let requests =
        stream::iter(context.triggers()).flat_map(|mut requests| stream::poll_fn(move |task| requests.poll_recv(task)));
    requests.map(move |TriggerRequest { namespace, name, trigger }| {
        context.states.trigger(&namespace, &name, trigger);
        ObjectRef::new(&name).within(&namespace)
    })
}

/// Ends the streams, pod queries and receptions of deleted environments, which are not reconciled any more.
async fn end_tasks_of_deleted(known: &Store<Environment>, context: &Context, scope: Option<&str>) {
    loop {
        tokio::time::sleep(TASK_SWEEP).await;
        let is_there = |namespace: &str, name: &str, uid: &str| {
            let environment = known.get(&ObjectRef::new(name).within(namespace));
            environment.is_some_and(|environment| environment.uid().as_deref() == Some(uid))
        };
        context.streams.retain(is_there);
        context.observer.retain(is_there);
        context.collector.retain(is_there);
        context.receiver.retain(scope, is_there);
    }
}

fn in_scope<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn selecting(manager: &str, operator: &str) -> watcher::Config {
    watcher::Config::default().labels(&format!("{}{operator}{manager}", label::MANAGED_BY))
}

/// Maps a published object to its environment by the label. Somebody may have removed the owner reference.
fn of_environment(object: &Metadata) -> Option<ObjectRef<Environment>> {
    let name = object.labels().get(label::ENVIRONMENT)?;
    Some(ObjectRef::new(name).within(&object.namespace()?))
}

/// Maps ConfigMaps to the environments whose source refers to them.
struct Referrers {
    known: Store<Environment>,
    context: Arc<Context>,
    /// Resource versions by namespace and name, so that a restarted watch triggers no fetch for unchanged objects.
    seen: Mutex<HashMap<(String, String), String>>,
}

impl Referrers {
    /// Returns the environments whose source reads this ConfigMap, and triggers a fetch for each if the ConfigMap has
    /// changed.
    fn of(&self, object: &Metadata) -> Vec<ObjectRef<Environment>> {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let referring: Vec<ObjectRef<Environment>> = self
            .known
            .state()
            .into_iter()
            .filter_map(|environment| {
                let environment = environment.0.as_ref().ok()?;
                let reads = environment.namespace().as_deref() == Some(&namespace)
                    && environment.spec.source.config_maps().any(|read| read == name);
                reads.then(|| ObjectRef::new(&environment.name_any()).within(&namespace))
            })
            .collect();
        if referring.is_empty() {
            return referring;
        }
        let version = object.resource_version().unwrap_or_default();
        let mut seen = self.seen.lock();
        if seen.insert((namespace.clone(), name), version.clone()).as_ref() == Some(&version) {
            return Vec::new();
        }
        for environment in &referring {
            self.context.states.trigger(&namespace, &environment.name, Trigger::ReferenceChanged);
        }
        referring
    }
}

/// Removes the state and the metrics of deleted environments.
async fn sweep(known: &Store<Environment>, context: &Context, metrics: &Metrics) {
    let mut before: HashSet<(String, String)> = HashSet::new();
    loop {
        tokio::time::sleep(SWEEP).await;
        let alive = known.state();
        let uids = alive.iter().filter_map(|environment| environment.uid()).map(Uid).collect();
        context.states.retain(&uids);
        let names: HashSet<(String, String)> = alive
            .iter()
            .map(|environment| (environment.namespace().unwrap_or_default(), environment.name_any()))
            .collect();
        let is_there = |namespace: &str, name: &str| names.contains(&(namespace.to_owned(), name.to_owned()));
        context.publisher.retain(is_there);
        for (namespace, name) in before.difference(&names) {
            metrics.environments.forget(namespace, name);
        }
        before = names;
    }
}
