//! Runs the reconciliations that changes cause: of FeatureEnvironments, of published objects, and of objects that sources
//! refer to.

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
    Api, Client, Resource,
    runtime::{
        Config, Controller, WatchStreamExt,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use tokio::sync::watch;

use self::{
    environment_object::{EnvironmentObject, environment_bytes, environments},
    first_pass::end_first_pass,
    referrers::{Referrers, SeenVersions, WatchedEnvironment, read_by},
};
use super::{Context, Deps, bounds::Bounds, reconcile, turns::RECONCILIATIONS};
use crate::{
    api::{NamespacedName, Uid, names::label},
    controller::metrics::Metrics,
    publish::{self, ConfigMapMetadata, SURPLUS_GRACE},
    rollout::{self, InjectedPod},
    source::{receiver::FirstPass, trigger::TriggerRequest},
    watched::bounded::bounded,
};

/// Time between two removals of the state of deleted environments.
const SWEEP: Duration = Duration::from_secs(60);
/// Time between two removals of the streams and pod queries of deleted environments.
const TASK_SWEEP: Duration = Duration::from_secs(2);

/// Reconciles in these namespaces, or in all if the list is empty, until `shutdown` is true. Reconciliations under way
/// then run to their end. Each listed namespace has its own watches, so the operator needs no permission outside the
/// list.
pub async fn run(deps: Deps, namespaces: &[String], shutdown: watch::Receiver<bool>) {
    let bounds = Bounds::default();
    let listed: BTreeSet<&str> = namespaces.iter().map(String::as_str).collect();
    let scopes = if listed.is_empty() { vec![None] } else { listed.into_iter().map(Some).collect() };
    // A webhook that arrives before all first passes have begun would be refused for good.
    let passes: Vec<_> = scopes.iter().map(|_| deps.webhook_receiver.first_pass()).collect();
    deps.webhook_receiver.set_leading(true);
    let each = scopes.into_iter().zip(passes);
    join_all(each.map(|(scope, pass)| run_in(deps.clone(), &bounds, scope, pass, shutdown.clone()))).await;
}

async fn run_in(
    deps: Deps,
    bounds: &Bounds,
    namespace: Option<&str>,
    pass: FirstPass,
    mut shutdown: watch::Receiver<bool>,
) {
    let (client, metrics) = (deps.client.clone(), deps.metrics.clone());
    let config_maps = || in_scope::<ConfigMapMetadata>(&bounds.pages.bound(&client), namespace);
    let (objects, mut feed) = publish::objects();
    let ours = watcher(config_maps(), selecting(label::REMORA, "="));
    let ours = bounded(ours, "ConfigMaps with the label of Remora", publish::metadata_bytes)
        .default_backoff()
        .inspect_err(|error| tracing::warn!(%error, "cannot watch the published ConfigMaps: trying again"))
        .flat_map(move |event| stream::iter(event.map(|event| feed.apply_watcher_event(&event)).unwrap_or_default()))
        .filter(|touched| std::future::ready(!touched.name.is_empty()))
        .map(|touched| ObjectRef::new(&touched.name).within(&touched.namespace));
    let (known, writer) = reflector::store();
    let environments = environments(in_scope::<EnvironmentObject>(&bounds.pages.bound(&client), namespace));
    let environments = bounded(environments, "FeatureEnvironments", environment_bytes)
        .default_backoff()
        .inspect_err(|error| tracing::warn!(%error, "cannot watch the FeatureEnvironments: trying again"))
        .reflect(writer)
        .applied_objects()
        // An error would hold up the other triggers, too, because the controller waits before it polls any of them again.
        .filter_map(|found| std::future::ready(found.ok().map(Ok)));
    let controller = Controller::for_stream(environments, known.clone());
    let (pods, pods_feed) = rollout::running_pods();
    let following = rollout::follow(in_scope::<InjectedPod>(&bounds.pages.bound(&client), namespace), pods_feed);
    let context = Arc::new(Context::with_bounds(deps, bounds, objects, pods, SURPLUS_GRACE));

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
    requests.map(move |TriggerRequest { environment, trigger }| {
        let reference = ObjectRef::new(&environment.name).within(&environment.namespace);
        context.states.trigger(environment, trigger);
        reference
    })
}

/// Ends the streams, pod queries and receptions of deleted environments, which are not reconciled any more, and tells the
/// reconciliations under way.
async fn end_tasks_of_deleted(known: &Store<WatchedEnvironment>, context: &Context, scope: Option<&str>) {
    loop {
        tokio::time::sleep(TASK_SWEEP).await;
        let exists = |name: &NamespacedName, uid: &Uid| {
            let environment = known.get(&ObjectRef::new(&name.name).within(&name.namespace));
            environment.is_some_and(|environment| {
                environment.meta().deletion_timestamp.is_none() && Uid::of(environment.as_ref()) == *uid
            })
        };
        context.under_way.mark_deleted(exists);
        context.streams.retain(exists);
        context.observer.retain(exists);
        context.collector.retain(exists);
        context.webhook_receiver.retain(scope, exists);
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

/// Removes the state, the full reads and the metrics of deleted environments, and the failures of namespaces without any.
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
        let uids: HashSet<Uid> = alive.iter().map(|environment| Uid::of(environment.as_ref())).collect();
        let names: HashSet<NamespacedName> =
            alive.iter().map(|environment| NamespacedName::of(environment.as_ref())).collect();
        let exists = |environment: &NamespacedName| names.contains(environment);
        context.states.retain(&uids, exists);
        context.fetcher.read_budget().retain(scope, |uid| uids.contains(uid));
        let namespaces: HashSet<&str> = names.iter().map(|name| name.namespace.as_str()).collect();
        let is_elsewhere = |namespace: &str| scope.is_some_and(|scope| scope != namespace);
        context.fetcher.retain(|namespace| namespaces.contains(namespace) || is_elsewhere(namespace));
        context.publisher.retain(exists);
        metrics.environments.retain(scope, exists);
        let read = alive.iter().flat_map(|environment| read_by(environment)).collect();
        seen.retain(&read);
    }
}
