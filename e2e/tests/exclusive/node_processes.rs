//! Processes of the node are killed and start again: the container runtime with the kubelet, all of the cluster's
//! processes, and the node as a whole. Pods are served throughout as long as they run, and everything converges.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use remora_e2e::app::History;
use remora_e2e::harness::{
    App, Case, PodPort, Release, alone_in_namespace, and_restoration, eventually, storefront, until,
};
use serde_json::json;

use super::absent::restarts;
use super::kubelet::served;
use super::node::Node;

/// Time in which a node's pods and their network start again on a busy machine.
const CAP: Duration = Duration::from_secs(180);

/// Checks that the application got three answers in turn and no error, and that none of its containers was restarted.
async fn uninterrupted(case: &Case, app: &PodPort) -> anyhow::Result<()> {
    let history: History = app.get("/watch").await?;
    anyhow::ensure!(history.failed == 0 && history.changes.len() == 3, "{history:?}");
    let pod = case.api::<Pod>().get(app.pod()).await?;
    anyhow::ensure!(restarts(&pod, "remora") + restarts(&pod, "app") == 0, "a container was restarted");
    Ok(())
}

#[tokio::test]
async fn restarted_container_runtime_leaves_pods_served_and_manages_them_again() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let Some(node) = Node::local("a restarted container runtime").await? else { return Ok(()) };
        case.storefront().await?;
        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        let pods = case.deployment(&App::new("crashing").inject("storefront").seeing_processes(), 1).await?;
        let crashing = pods.first().context("the Deployment has no pod")?;
        let alone = async {
            node.kill("containerd").await?;
            served(&app).await
        };
        let alone = alone.await.context("without containerd, beside a kubelet that runs");
        and_restoration(alone, node.restore().await)?;
        let without = async {
            node.kill("kubelet").await?;
            node.kill("containerd").await?;
            case.flip("storefront", "checkout", &json!({"enabled": true, "value": "express"})).await?;
            served(&app).await
        };
        let without = without.await.context("without kubelet and containerd");
        and_restoration(without, node.restore().await)?;
        case.answer(&app, "the change of the meantime", |answer| answer["value"] == "express").await?;

        // The new containerd has taken over the shims: it notices the end of a container, and starts it again.
        crashing.text("/kill?process=remora-sidecar").await?;
        let api: Api<Pod> = case.api();
        until(&api, crashing.pod(), "the sidecar was restarted", CAP, |pod| restarts(pod, "remora") == 1).await?;
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "later"})).await?;
        for pod in [&app, crashing] {
            case.answer(pod, "a later change", |answer| answer["value"] == "later").await?;
        }
        uninterrupted(&case, &app).await
    })
    .await
}

#[tokio::test]
async fn killed_processes_of_node_leave_pods_served_and_everything_converges() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let Some(node) = Node::local("killed processes of the node").await? else { return Ok(()) };
        case.storefront().await?;
        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        let (direct, upstream) = (app.without_api_server().await?, case.upstream.without_api_server().await?);
        let without = async {
            node.kill_all().await?;
            let express = json!({"enabled": true, "value": "express"});
            upstream.change(&case.server_key(), "checkout", &express).await?;
            served(&direct).await
        };
        let without = without.await.context("without the processes of the node");
        and_restoration(without, node.restore().await)?;
        case.answer(&app, "the change of the meantime", |answer| answer["value"] == "express").await?;
        case.condition("storefront", "Ready", "True", Some("Published")).await?;

        Release::of(&case.cluster).settled().await?;
        let new = case.pod(&App::new("new").inject("storefront")).await?;
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "later"})).await?;
        for pod in [&app, &new] {
            case.answer(pod, "a later change", |answer| answer["value"] == "later").await?;
        }
        uninterrupted(&case, &app).await
    })
    .await
}

#[tokio::test]
async fn node_that_loses_power_serves_last_revision_before_its_source_answers() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let Some(node) = Node::local("a node that loses power").await? else { return Ok(()) };
        case.storefront().await?;
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "express"})).await?;
        let pods = case.deployment(&App::new("shop").inject("storefront"), 1).await?;
        let app = pods.first().context("the Deployment has no pod")?;
        case.answer(app, "the first change", |answer| answer["value"] == "express").await?;
        let lost = node.lose_power().await;
        and_restoration(lost, node.restore().await)?;

        // The same pod: kubelet starts its containers again. The source has lost the document with its memory.
        let api: Api<Pod> = case.api();
        until(&api, app.pod(), "the containers were restarted", CAP, |pod| {
            restarts(pod, "remora") >= 1 && restarts(pod, "app") >= 1
        })
        .await?;
        let last = eventually("the pod serves its last revision", CAP, async || {
            let history: History = app.get("/watch").await?;
            Ok((!history.changes.is_empty()).then_some(history))
        })
        .await?;
        anyhow::ensure!(last.changes.iter().all(|change| change.answer["value"] == "express"), "{last:?}");

        Release::of(&case.cluster).settled().await?;
        eventually("the source serves a document again", CAP, async || {
            case.upstream.serve(&case.server_key(), &storefront(&case.client_key(), 3)).await.map(Some)
        })
        .await?;
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "later"})).await?;
        case.answer(app, "a later change", |answer| answer["value"] == "later").await?;
        let new = case.pod(&App::new("new").inject("storefront")).await?;
        case.answer(&new, "the same in a new pod", |answer| answer["value"] == "later").await?;
        Ok(())
    })
    .await
}
