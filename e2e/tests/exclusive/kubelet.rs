//! The kubelet crashes and restarts: pods are served throughout, and changes made during the outage arrive.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use remora_e2e::app::History;
use remora_e2e::harness::{App, PodPort, alone_in_namespace, and_restoration, eventually};
use serde_json::json;

use super::absent::restarts;
use super::node::Node;

const CAP: Duration = Duration::from_secs(60);
/// Number of answers that the application must get without a kubelet.
const ANSWERS: u64 = 40;

/// Waits until the application got its answers, and checks that none failed and none changed since its start.
pub(super) async fn served(app: &PodPort) -> anyhow::Result<()> {
    let before: History = app.get("/watch").await?;
    let served = eventually("the application goes on asking", CAP, async || {
        let history: History = app.get("/watch").await?;
        Ok((history.asked > before.asked + ANSWERS).then_some(history))
    })
    .await?;
    anyhow::ensure!(served.failed == 0 && served.changes.len() == 1, "{served:?}");
    Ok(())
}

#[tokio::test]
async fn restarted_kubelet_leaves_pods_served_and_delivers_missed_changes() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let Some(node) = Node::local("a restarted kubelet").await? else { return Ok(()) };
        case.storefront().await?;
        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        let express = json!({"enabled": true, "value": "express"});
        let without = async {
            node.kill("kubelet").await?;
            case.flip("storefront", "checkout", &express).await?;
            served(&app).await
        };
        let without = without.await.context("without a kubelet");
        and_restoration(without, node.restore().await)?;
        case.answer(&app, "the change of the meantime", |answer| answer["value"] == "express").await?;
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "later"})).await?;
        case.answer(&app, "a later change", |answer| answer["value"] == "later").await?;

        let history: History = app.get("/watch").await?;
        anyhow::ensure!(history.failed == 0 && history.changes.len() == 3, "{history:?}");
        let api: Api<Pod> = case.api();
        let pod = api.get(app.pod()).await?;
        anyhow::ensure!(restarts(&pod, "remora") + restarts(&pod, "app") == 0, "a container was restarted");
        Ok(())
    })
    .await
}
