//! Upgrade and uninstallation of Remora while pods run.

use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams};
use remora_e2e::app::History;
use remora_e2e::harness::{App, Case, PodPort, Release, alone_in_namespace, eventually, until};
use serde_json::{Value, json};

use super::absent::restarts;

const CAP: Duration = Duration::from_secs(120);

/// Returns the identity of each pod, with the restart count of each container.
async fn identities(case: &Case) -> anyhow::Result<Vec<String>> {
    let api: Api<Pod> = case.api();
    let mut identities = Vec::new();
    for pod in api.list(&ListParams::default()).await? {
        let status = pod.status.unwrap_or_default();
        let restarts: i32 = status
            .init_container_statuses
            .into_iter()
            .flatten()
            .chain(status.container_statuses.into_iter().flatten())
            .map(|c| c.restart_count)
            .sum();
        identities.push(format!("{} restarted {restarts} times", pod.metadata.uid.unwrap_or_default()));
    }
    identities.sort();
    Ok(identities)
}

#[tokio::test]
async fn upgrade_changes_nothing_for_running_pods() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let pods = case.deployment(&App::new("shop").inject("storefront"), 3).await?;
        let before = identities(&case).await?;
        let release = Release::of(&case.cluster);
        release.install_with(&json!({"logLevel": "debug"})).await?;

        anyhow::ensure!(identities(&case).await? == before, "pods were touched: {before:?}");
        // The new operator continues with the objects of the old one.
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "express"})).await?;
        case.poke("app=shop").await?;
        for pod in &pods {
            case.answer(pod, "checkout is express", |answer| answer["value"] == "express").await?;
            let history: History = pod.get("/watch").await?;
            anyhow::ensure!(history.failed == 0 && history.changes.len() == 2, "{history:?}");
        }
        case.pod(&App::new("after").inject("storefront")).await?;
        Ok(())
    })
    .await
}

/// Upgrades from the chart and the images of the previous version, which published in another format. Running pods keep
/// what they mount until they are recreated, also after a restart of their sidecar; new pods follow changes.
#[tokio::test]
async fn upgrade_from_previous_version_takes_over_its_objects() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let release = Release::of(&case.cluster);
        release.uninstall().await?;
        release.install_previous().await?;
        case.storefront().await?;
        let shop = App::new("shop").inject("storefront").seeing_processes();
        let pods = case.deployment(&shop, 3).await?;
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "express"})).await?;
        case.poke("app=shop").await?;
        for pod in &pods {
            case.answer(pod, "checkout is express", |answer| answer["value"] == "express").await?;
        }
        let (before, left) = (identities(&case).await?, objects(&case).await?);
        anyhow::ensure!(!left.is_empty(), "the previous version published nothing");

        release.install().await?;
        let core = case.core_until("storefront", "it is published in today's format", |_| true).await?;
        anyhow::ensure!(!left.iter().any(|(name, _)| Some(name) == core.metadata.name.as_ref()), "{left:?}");
        case.condition("storefront", "Ready", "True", None).await?;
        let after = case.pod(&App::new("after").inject("storefront")).await?;
        let classic = |answer: &Value| answer["value"] == "classic";
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "classic"})).await?;
        case.answer(&after, "checkout is classic", classic).await?;
        let images = sidecars(&case).await?;
        let (old, new) = (std::env::var("REMORA_PREVIOUS_TAG")?, case.cluster.tag());
        let of = |tag: &str| images.iter().filter(|image| image.ends_with(&format!(":{tag}"))).count();
        anyhow::ensure!((of(&old), of(new)) == (3, 1), "{images:?}");

        // Existing pods are not disturbed, and the status names them.
        case.poke("app=shop").await?;
        let names: Vec<&str> = pods.iter().map(PodPort::pod).collect();
        told(&case, "which pods have to be restarted", |problem| {
            problem.contains("the volume names objects of format v1") && names.iter().all(|name| problem.contains(name))
        })
        .await?;
        for pod in &pods {
            let history: History = pod.get("/watch").await?;
            anyhow::ensure!(history.failed == 0 && history.changes.len() == 2, "{history:?}");
        }
        let now = identities(&case).await?;
        anyhow::ensure!(before.iter().all(|pod| now.contains(pod)), "pods were touched: {before:?} became {now:?}");
        anyhow::ensure!(still(&case, &left).await?, "what was there is not as it was: {left:?}");

        // An old sidecar that restarts finds objects that it can read.
        let pod = pods.first().context("the Deployment has no pod")?;
        pod.text("/kill?process=remora-sidecar").await?;
        let api: Api<Pod> = case.api();
        until(&api, pod.pod(), "the sidecar was restarted", CAP, |pod| restarts(pod, "remora") == 1).await?;
        eventually("the restarted sidecar answers as before", CAP, async || {
            let reply = pod.ask(Method::GET, "/api/v1/flags/", Some(&case.client_key()), None).await?;
            Ok((reply.status == 200 && reply.body.contains("express")).then_some(()))
        })
        .await?;

        // After they are recreated, all pods follow.
        let pods = case.restart(&shop).await?;
        for pod in &pods {
            case.answer(pod, "checkout is classic", classic).await?;
        }
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "both"})).await?;
        for pod in pods.iter().chain([&after]) {
            case.answer(pod, "checkout is both", |answer| answer["value"] == "both").await?;
        }
        told(&case, "that nobody is left behind", str::is_empty).await?;
        anyhow::ensure!(still(&case, &left).await?, "what was there went too early: {left:?}");
        Ok(())
    })
    .await
}

/// Pods that the previous version injected follow it again; pods that this version injected keep what they have.
#[tokio::test]
async fn rollback_to_previous_version_lets_its_pods_follow_again() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let release = Release::of(&case.cluster);
        release.uninstall().await?;
        release.install_previous().await?;
        case.storefront().await?;
        let before = case.pod(&App::new("before").inject("storefront")).await?;
        release.install().await?;
        case.core_until("storefront", "it is published in today's format", |_| true).await?;
        let between = case.pod(&App::new("between").inject("storefront")).await?;

        release.roll_back().await?;
        let after = case.pod(&App::new("after").inject("storefront")).await?;
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "express"})).await?;
        case.poke("app").await?;
        for pod in [&before, &after] {
            case.answer(pod, "checkout is express", |answer| answer["value"] == "express").await?;
        }
        let history: History = between.get("/watch").await?;
        anyhow::ensure!(history.failed == 0 && history.changes.len() == 1, "{history:?}");
        release.install().await
    })
    .await
}

/// Returns the published ConfigMaps, by name and resource version.
async fn objects(case: &Case) -> anyhow::Result<Vec<(String, String)>> {
    let api: Api<ConfigMap> = case.api();
    let published = api.list_metadata(&ListParams::default().labels("app.kubernetes.io/managed-by=remora")).await?;
    let versions = published.into_iter().map(|object| object.metadata);
    Ok(versions.map(|found| (found.name.unwrap_or_default(), found.resource_version.unwrap_or_default())).collect())
}

/// True if these objects still exist and none of them was written.
async fn still(case: &Case, left: &[(String, String)]) -> anyhow::Result<bool> {
    let now = objects(case).await?;
    Ok(left.iter().all(|object| now.contains(object)))
}

/// Waits until the environment's status says this about its pods.
async fn told(case: &Case, what: &str, is_said: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let what = format!("it is said {what}");
    until(&case.environments(), "storefront", &what, CAP, |environment| {
        let pods = &environment.data["status"]["pods"];
        pods["revision"] == environment.data["status"]["revision"]
            && is_said(pods["problem"].as_str().unwrap_or_default())
    })
    .await?;
    Ok(())
}

/// Returns the sidecar images of all pods.
async fn sidecars(case: &Case) -> anyhow::Result<Vec<String>> {
    let api: Api<Pod> = case.api();
    let pods = api.list(&ListParams::default()).await?;
    let init = pods.into_iter().flat_map(|pod| pod.spec.unwrap_or_default().init_containers.unwrap_or_default());
    Ok(init.filter(|container| container.name == "remora").filter_map(|container| container.image).collect())
}

#[tokio::test]
async fn uninstall_leaves_running_pods_served_and_new_pods_without_sidecar() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        let before = identities(&case).await?;
        let release = Release::of(&case.cluster);
        release.uninstall().await?;

        case.poke("app=shop").await?;
        anyhow::ensure!(identities(&case).await? == before, "pods were touched: {before:?}");
        let history: History = app.get("/watch").await?;
        anyhow::ensure!(history.failed == 0 && history.changes.len() == 1, "{history:?}");
        // No leftover configuration refuses pods: an annotated pod is admitted without a change.
        let left = App::new("later").inject("storefront");
        case.create_pod(&left).await?;
        let api: Api<Pod> = case.api();
        let later = api.get("later").await?;
        anyhow::ensure!(later.spec.unwrap_or_default().init_containers.is_none(), "injected by nobody");

        release.install().await?;
        case.condition("storefront", "Ready", "True", None).await
    })
    .await
}
