//! Upgrading and uninstalling Remora under running pods.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use remora_e2e::app::History;
use remora_e2e::harness::{App, Case, Release, alone_in_namespace};
use serde_json::json;

/// The pods as they are known to everybody: which, and how often each container was restarted.
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
async fn an_upgrade_changes_nothing_for_running_pods() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let pods = case.deployment(&App::new("shop").inject("storefront"), 3).await?;
        let before = identities(&case).await?;
        let release = Release::of(&case.cluster);
        release.install_with(&json!({"logLevel": "debug"})).await?;

        anyhow::ensure!(identities(&case).await? == before, "pods were touched: {before:?}");
        // The new operator works on what the old one left.
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

#[tokio::test]
async fn after_uninstalling_running_pods_are_served_and_new_ones_start_without() -> anyhow::Result<()> {
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
        // Nothing that refuses pods is left behind: an annotated one is admitted, as it came.
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
