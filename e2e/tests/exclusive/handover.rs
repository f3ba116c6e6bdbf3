//! Two replicas of the controller, one of them active; the active one is killed during a change of a flag.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use remora_e2e::app::History;
use remora_e2e::harness::{App, Case, Release, SYSTEM, alone_in_namespace, eventually, published, say};
use serde_json::json;

/// Time limit: the lease lasts half a minute, and a busy machine needs more time.
pub(super) const CAP: Duration = Duration::from_secs(90);

/// Records every version of the core's ConfigMap that the watch receives, with its revision, until the future is
/// dropped.
pub(super) async fn versions(case: &Case, seen: &tokio::sync::Mutex<BTreeMap<String, String>>) -> anyhow::Result<()> {
    let config = watcher::Config::default().fields(&format!("metadata.name={}", published("storefront", "core")));
    let mut objects = watcher(case.api::<ConfigMap>(), config).default_backoff().applied_objects().boxed();
    while let Some(object) = objects.try_next().await? {
        let revision = object.metadata.annotations.and_then(|all| all.get("remora.dev/revision").cloned());
        let version = object.metadata.resource_version.context("an object without version")?;
        seen.lock().await.insert(version, revision.unwrap_or_default());
    }
    Ok(())
}

/// Requests a sidecar from the webhook repeatedly; every request must succeed.
pub(super) async fn admissions(case: &Case, count: &AtomicUsize, ended: &AtomicBool) -> anyhow::Result<()> {
    let api: Api<Pod> = case.api();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    while !ended.load(Ordering::Relaxed) {
        let pod = json!({
            "metadata": {"generateName": "dry-", "annotations": {"remora.dev/inject": "storefront"}},
            "spec": {"containers": [{"name": "app", "image": "app:1"}]},
        });
        let made = api.create(&dry, &serde_json::from_value(pod)?).await.context("a pod was refused")?;
        anyhow::ensure!(made.spec.is_some_and(|spec| spec.init_containers.is_some()), "a pod was not injected");
        count.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Kills the leader at the moment of a change, and waits until the change has arrived and the other replica leads.
async fn hand_over(case: &Case) -> anyhow::Result<Duration> {
    let app = case.pod(&App::new("shop").inject("storefront")).await?;
    let leader = eventually("a replica holds the lease", CAP, async || case.cluster.leader().await).await?;
    let began = Instant::now();
    let pods: Api<Pod> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
    let killed = DeleteParams::default().grace_period(0);
    let key = case.server_key();
    let change = json!({"enabled": true, "value": "express"});
    tokio::try_join!(
        async { Ok(pods.delete(&leader, &killed).await?) },
        case.upstream.change(&key, "checkout", &change)
    )?;
    case.answer(&app, "checkout is express", |answer| answer["value"] == "express").await?;
    let took = began.elapsed();
    // The old leader may have published the change and released the lease just before it died.
    eventually("the other replica holds the lease", CAP, async || {
        Ok(case.cluster.leader().await?.filter(|next| *next != leader))
    })
    .await?;
    // At this point, the new leader has had the opportunity to write a second time.
    let asked = case.upstream.requests(&key).await?.len();
    eventually("the new leader polls", CAP, async || {
        Ok((case.upstream.requests(&key).await?.len() >= asked + 3).then_some(()))
    })
    .await?;
    let history: History = app.get("/watch").await?;
    anyhow::ensure!(history.failed == 0 && history.changes.len() == 2, "{history:?}");
    Ok(took)
}

#[tokio::test]
async fn change_during_handover_arrives_once() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let release = Release::of(&case.cluster);
        release.install_with(&json!({"controller": {"replicas": 2}})).await?;
        case.storefront().await?;
        let (seen, count, ended) = (tokio::sync::Mutex::default(), AtomicUsize::new(0), AtomicBool::new(false));
        let handing_over = async {
            let took = hand_over(&case).await;
            ended.store(true, Ordering::Relaxed);
            took
        };
        let watched = async {
            tokio::select! {
                failed = versions(&case, &seen) => { failed?; anyhow::bail!("the watch ended") }
                done = async { tokio::try_join!(handing_over, admissions(&case, &count, &ended)) } => done,
            }
        };
        let (took, ()) = watched.await?;
        let (seen, count) = (seen.into_inner(), count.into_inner());
        say(&format!(
            "with the leader killed, a change arrived after {:.1} s; the webhook answered {count} times meanwhile",
            took.as_secs_f64()
        ));
        anyhow::ensure!(seen.len() == 2, "the core was written more than once for one change: {seen:?}");
        anyhow::ensure!(count > 10, "the webhook was asked {count} times only");
        release.install().await
    })
    .await
}
