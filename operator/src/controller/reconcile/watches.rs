//! Triggers of reconciliations: changes of FeatureEnvironments, of published objects, and of objects that sources refer
//! to.

mod environment_object;
mod first_pass;
mod referrers;

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt, TryStreamExt, future::join_all, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        Config, Controller, WatchStreamExt,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use tokio::sync::watch;

use self::{
    environment_object::{EnvironmentObject, environments},
    first_pass::end_first_pass,
    referrers::{Referrers, SeenVersions, WatchedEnvironment, read_by},
};
use super::{Context, reconcile, shared::Shared, state::Uid, turns::RECONCILIATIONS};
use crate::{
    api::{NamespacedName, names::label},
    compiler::Compiler,
    controller::metrics::Metrics,
    memory::Memory,
    publish::{self, ConfigMapMetadata, SURPLUS_GRACE},
    rollout::{self, InjectedPod, sidecar::SidecarClient},
    source::{fetch::Fetcher, receiver::WebhookReceiver, trigger::TriggerRequest},
};

/// Time between two removals of the state of deleted environments.
const SWEEP: Duration = Duration::from_secs(60);
/// Time between two removals of the streams and pod queries of deleted environments.
const TASK_SWEEP: Duration = Duration::from_secs(2);

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
    pub instance: Option<String>,
}

/// Reconciles in these namespaces, or in all if the list is empty, until `shutdown` is true. Reconciliations under way
/// then run to their end. Each listed namespace has its own watches, so the operator needs no permission outside the
/// list.
pub async fn run(deps: Deps, namespaces: &[String], shutdown: watch::Receiver<bool>) {
    let shared = Shared::default();
    if namespaces.is_empty() {
        return run_in(deps, &shared, None, shutdown).await;
    }
    let namespaces: BTreeSet<&String> = namespaces.iter().collect();
    let each = namespaces.into_iter();
    join_all(each.map(|namespace| run_in(deps.clone(), &shared, Some(namespace), shutdown.clone()))).await;
}

async fn run_in(deps: Deps, shared: &Shared, namespace: Option<&str>, mut shutdown: watch::Receiver<bool>) {
    let pass = deps.webhook_receiver.first_pass();
    let (client, metrics) = (deps.client.clone(), deps.metrics.clone());
    let config_maps = || in_scope::<ConfigMapMetadata>(&shared.pages.bound(&client), namespace);
    let (objects, mut feed) = publish::objects();
    let ours = watcher(config_maps(), selecting(label::REMORA, "="))
        .default_backoff()
        .inspect_err(|error| tracing::warn!(%error, "cannot watch the published ConfigMaps: trying again"))
        .flat_map(move |event| stream::iter(event.map(|event| feed.apply_watcher_event(&event)).unwrap_or_default()))
        .filter(|touched| std::future::ready(!touched.name.is_empty()))
        .map(|touched| ObjectRef::new(&touched.name).within(&touched.namespace));
    let (known, writer) = reflector::store();
    let environments = environments(in_scope::<EnvironmentObject>(&shared.pages.bound(&client), namespace))
        .default_backoff()
        .inspect_err(|error| tracing::warn!(%error, "cannot watch the FeatureEnvironments: trying again"))
        .reflect(writer)
        .applied_objects()
        // An error would hold up the other triggers, too, because the controller waits before it polls any of them again.
        .filter_map(|found| std::future::ready(found.ok().map(Ok)));
    let controller = Controller::for_stream(environments, known.clone());
    let (pods, pods_feed) = rollout::running_pods();
    let following = rollout::follow(in_scope::<InjectedPod>(&shared.pages.bound(&client), namespace), pods_feed);
    let context = Arc::new(Context::sharing(deps, shared, objects, pods, SURPLUS_GRACE));

    let seen = Arc::new(SeenVersions::default());
    let mut referrers = Referrers::new(known.clone(), Arc::clone(&context), Arc::clone(&seen));
    let others = watcher(config_maps(), selecting(label::REMORA, "!="))
        .default_backoff()
        .inspect_err(|error| tracing::warn!(%error, "cannot watch the ConfigMaps that sources name: trying again"))
        .flat_map(move |event| {
            stream::iter(event.map(|event| referrers.apply_watcher_event(&event)).unwrap_or_default())
        });
    let stopped = async move {
        let _ = shutdown.wait_for(|stop| *stop).await;
    };
    let reconciling = controller
        .with_config(Config::default().concurrency(RECONCILIATIONS))
        .reconcile_on(ours)
        .reconcile_on(others)
        .reconcile_on(triggered(&context))
        .graceful_shutdown_on(stopped)
        .run(reconcile, |_, never, _| match *never {}, Arc::clone(&context))
        .map_err(|error| tracing::debug!(%error, "reconciliation failed"))
        .for_each(|_| std::future::ready(()));
    tokio::select! {
        () = reconciling => {}
        () = following => {}
        () = sweep(&known, &context, &seen, &metrics, namespace) => {}
        () = end_first_pass(&known, pass) => {}
        () = end_tasks_of_deleted(&known, &context, namespace) => {}
    }
}

/// Streams the environments with a trigger, and stores the trigger for their next reconciliation.
fn triggered(context: &Arc<Context>) -> impl Stream<Item = ObjectRef<WatchedEnvironment>> + Send + 'static {
    let context = Arc::clone(context);
    let requests = stream::iter(context.trigger_requests())
        .flat_map(|mut requests| stream::poll_fn(move |task| requests.poll_recv(task)));
    requests.map(move |TriggerRequest { namespace, name, trigger }| {
        context.states.trigger(&namespace, &name, trigger);
        ObjectRef::new(&name).within(&namespace)
    })
}

/// Ends the streams, pod queries and receptions of deleted environments, which are not reconciled any more.
async fn end_tasks_of_deleted(known: &Store<WatchedEnvironment>, context: &Context, scope: Option<&str>) {
    loop {
        tokio::time::sleep(TASK_SWEEP).await;
        let is_there = |namespace: &str, name: &str, uid: &str| {
            let environment = known.get(&ObjectRef::new(name).within(namespace));
            environment.is_some_and(|environment| environment.uid().as_deref() == Some(uid))
        };
        context.streams.retain(is_there);
        context.observer.retain(is_there);
        context.collector.retain(is_there);
        context.webhook_receiver.retain(scope, is_there);
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

/// Removes the state, the full reads and the metrics of deleted environments.
async fn sweep(
    known: &Store<WatchedEnvironment>,
    context: &Context,
    seen: &SeenVersions,
    metrics: &Metrics,
    scope: Option<&str>,
) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let alive = known.state();
        let uids: HashSet<Uid> = alive.iter().filter_map(|environment| environment.uid()).map(Uid).collect();
        let names: HashSet<NamespacedName> =
            alive.iter().map(|environment| NamespacedName::of(environment.as_ref())).collect();
        let is_there = |namespace: &str, name: &str| names.contains(&NamespacedName::new(namespace, name));
        context.states.retain(&uids, is_there);
        context.fetcher.read_budget().retain(scope, |uid| uids.contains(&Uid(uid.to_owned())));
        context.publisher.retain(is_there);
        metrics.environments.retain(scope, is_there);
        let read = alive.iter().flat_map(|environment| read_by(environment)).collect();
        seen.retain(&read);
    }
}
