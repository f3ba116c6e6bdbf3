//! Cost of a change for the API server: bytes sent to kubelets, counted by watchers that send the same requests as
//! kubelets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::client::Body;
use remora_e2e::harness::{Case, eventually, published, say, storefront, with_namespace};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Number of watchers of each object.
const WATCHERS: u64 = 60;
/// Number of pods that the printed figure is scaled to.
const PODS: u64 = 5_000;
/// Number of identities with values of 18 kB each, which take a few objects.
const IDENTITIES: usize = 100;
/// Maximum number of bytes of an event beside the object's data: metadata, with managed fields.
const METADATA: u64 = 8 << 10;
const CAP: Duration = Duration::from_secs(60);

/// Returns the storefront document with a value for each of many identities; `first` is the value of the first
/// identity.
fn laden(case: &Case, first: &str) -> Value {
    let mut document = storefront(&case.client_key(), IDENTITIES);
    for (number, identity) in document["identity_overrides"].as_array_mut().into_iter().flatten().enumerate() {
        let own = if number == 0 { first.to_owned() } else { format!("{number:06}") };
        identity["identity_features"][0]["feature_state_value"] = json!(own.repeat(3_000));
    }
    document
}

/// Data that one watcher received.
#[derive(Default)]
struct Received {
    bytes: AtomicU64,
    events: AtomicU64,
}

/// Object, and its watchers.
struct Watched {
    name: String,
    carries: u64,
    received: Vec<Arc<Received>>,
}

impl Watched {
    fn events(&self) -> u64 {
        self.received.iter().map(|received| received.events.load(Ordering::Relaxed)).sum()
    }

    /// Resets the counters and returns the number of bytes that each watcher received.
    fn take(&self) -> Vec<u64> {
        let take = |received: &Arc<Received>| {
            received.events.store(0, Ordering::Relaxed);
            received.bytes.swap(0, Ordering::Relaxed)
        };
        self.received.iter().map(take).collect()
    }
}

/// Watches one object by its name, as a kubelet does for each object of each pod's namespace.
async fn watch(case: Case, name: String, version: String, received: Arc<Received>) -> anyhow::Result<()> {
    let path = format!(
        "/api/v1/namespaces/{}/configmaps?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={version}",
        case.namespace
    );
    let response = case.cluster.client.send(http::Request::get(path).body(Body::empty())?).await?;
    anyhow::ensure!(response.status().is_success(), "{}", response.status());
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let data = frame?.into_data().unwrap_or_default();
        received.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        // Each event ends with a line feed.
        received.events.fetch_add(data.iter().filter(|byte| **byte == b'\n').count() as u64, Ordering::Relaxed);
    }
    anyhow::bail!("the watch of {name} ended")
}

/// Returns the published objects that pods mount, without earlier revisions.
async fn objects(case: &Case) -> anyhow::Result<Vec<ConfigMap>> {
    let api: Api<ConfigMap> = case.api();
    let all = api.list(&ListParams::default().labels("remora.dev/environment=storefront")).await?.items;
    let mounted = |name: &str| {
        name == published("storefront", "core") || name.starts_with(&published("storefront", "overrides-"))
    };
    Ok(all.into_iter().filter(|map| map.metadata.name.as_deref().is_some_and(mounted)).collect())
}

async fn watched(case: &Case, tasks: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<Vec<Watched>> {
    let mut all = Vec::new();
    for object in objects(case).await? {
        let name = object.metadata.name.context("an object without a name")?;
        let version = object.metadata.resource_version.context("an object without a version")?;
        let carries = object.binary_data.iter().flatten().map(|(_, bytes)| bytes.0.len() as u64).sum();
        let received: Vec<Arc<Received>> = (0..WATCHERS).map(|_| Arc::default()).collect();
        for each in &received {
            tasks.spawn(watch(case.clone(), name.clone(), version.clone(), Arc::clone(each)));
        }
        all.push(Watched { name, carries, received });
    }
    Ok(all)
}

/// Waits until every watcher of the changed objects has its event, and returns the sum of the received bytes. Fails
/// unless all watchers of an object received the same number of bytes, and watchers of other objects none.
async fn cost(all: &[Watched], changed: impl Fn(&str) -> bool) -> anyhow::Result<u64> {
    eventually("everybody who watches what changed has heard of it", CAP, async || {
        let missing = all.iter().find(|watched| changed(&watched.name) && watched.events() < WATCHERS);
        missing.map_or(Ok(Some(())), |missing| {
            anyhow::bail!("{} of {WATCHERS} have heard of {}", missing.events(), missing.name)
        })
    })
    .await?;
    let mut sum = 0;
    for watched in all {
        let (events, bytes) = (watched.events(), watched.take());
        let expected = if changed(&watched.name) { WATCHERS } else { 0 };
        anyhow::ensure!(events == expected, "{}: {events} events instead of {expected}", watched.name);
        let each = bytes.first().copied().unwrap_or_default();
        anyhow::ensure!(bytes.iter().all(|bytes| *bytes == each), "{}: {bytes:?}", watched.name);
        sum += each * WATCHERS;
    }
    Ok(sum)
}

#[tokio::test]
async fn change_costs_the_bytes_of_changed_objects_for_each_watcher() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.upstream.serve(&case.server_key(), &laden(&case, "before")).await?;
        case.secret("flagsmith", &case.server_key()).await?;
        case.environment("storefront", case.flagsmith()).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        let mut tasks = JoinSet::new();
        let all = watched(&case, &mut tasks).await?;
        let core = published("storefront", "core");
        let shards: Vec<&Watched> = all.iter().filter(|watched| watched.name != core).collect();
        anyhow::ensure!(shards.len() > 1, "there are only {} objects", all.len());
        let measuring = async {
            // A change of the environment's own flag writes the core and no other object.
            case.flip("storefront", "checkout", &json!({"enabled": true, "value": "express"})).await?;
            let flag = cost(&all, |name| name == core).await?;
            let carried = all.iter().filter(|watched| watched.name == core).map(|watched| watched.carries).sum::<u64>();
            let encoded = carried.div_ceil(3) * 4 * WATCHERS;
            anyhow::ensure!(
                (encoded..=encoded * 2 + METADATA * WATCHERS).contains(&flag),
                "{flag} bytes came for {carried} bytes to {WATCHERS}"
            );

            // A change of an identity's own value writes one overrides object, and the core, which names the revision.
            let before = objects(&case).await?;
            case.upstream.serve(&case.server_key(), &laden(&case, "after")).await?;
            let changed = eventually("the changed value is published", CAP, async || {
                let now = objects(&case).await?;
                let changed: Vec<String> = now
                    .iter()
                    .filter(|map| !before.iter().any(|old| old.metadata.resource_version == map.metadata.resource_version))
                    .filter_map(|map| map.metadata.name.clone())
                    .collect();
                Ok(changed.contains(&core).then_some(changed))
            })
            .await?;
            anyhow::ensure!(changed.len() == 2, "one identity changed, and with it {changed:?}");
            let identity = cost(&all, |name| changed.iter().any(|changed| changed == name)).await?;
            anyhow::Ok((flag, identity))
        };
        let (flag, identity) = tokio::select! {
            measured = measuring => measured?,
            Some(ended) = tasks.join_next() => { ended??; anyhow::bail!("a watch ended") }
        };
        let mega = |bytes: u64| (bytes / WATCHERS * PODS) as f64 / 1e6;
        say(&format!(
            "of {} objects, a flag costs each watcher {} bytes and an identity's value {}: {:.0} MB and {:.0} MB for {PODS} kubelets",
            all.len(), flag / WATCHERS, identity / WATCHERS, mega(flag), mega(identity)
        ));
        Ok(())
    })
    .await
}
