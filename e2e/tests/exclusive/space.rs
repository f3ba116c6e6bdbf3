//! etcd's quota is used up: all writes to the cluster fail, and the operator does not add to the load.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use remora_e2e::app::History;
use remora_e2e::harness::{App, Case, PodPort, alone_in_namespace, eventually, say};
use serde_json::json;

use super::node::Node;

const CAP: Duration = Duration::from_secs(60);
/// Shortest interval in seconds: the case's environment has an interval of one second, and jitter reduces it to nine
/// tenths.
const LEAST_INTERVAL: f64 = 0.9;

/// Returns the number of publishing attempts that the API server refused, over all environments.
async fn refused(controller: &PodPort) -> anyhow::Result<f64> {
    let line = r#"remora_controller_steps_total{step="publish",outcome="WriteFailed"} "#;
    let metrics = controller.text("/metrics").await?;
    Ok(metrics.lines().find_map(|candidate| candidate.strip_prefix(line)?.parse().ok()).unwrap_or_default())
}

/// Changes a flag upstream while all writes fail. Returns the number of publishing attempts of the controller, and the
/// time in seconds that they took.
async fn without_space(case: &Case, app: &PodPort, leader: &str) -> anyhow::Result<(f64, f64)> {
    let controller = case.cluster.system_port(leader, 8080);
    let (began, before) = (Instant::now(), refused(&controller).await?);
    case.upstream.change(&case.server_key(), "checkout", &json!({"enabled": true, "value": "express"})).await?;
    let count = eventually("the controller has tried to publish", CAP, async || {
        let count = refused(&controller).await? - before;
        Ok((count >= 3.0).then_some(count))
    })
    .await?;
    let seconds = began.elapsed().as_secs_f64();
    let log = case.cluster.operator_log(leader).await?;
    anyhow::ensure!(log.contains("database space exceeded"), "the log does not say why:\n{log}");
    let history: History = app.get("/watch").await?;
    anyhow::ensure!(history.failed == 0 && history.changes.len() == 1, "{history:?}");
    Ok((count, seconds))
}

#[tokio::test]
async fn cluster_without_space_gets_few_writes_and_recovers() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let Some(node) = Node::local("a cluster without space").await? else { return Ok(()) };
        case.storefront().await?;
        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        let leader = eventually("a replica holds the lease", CAP, async || case.cluster.leader().await).await?;
        let tried = async {
            node.alarm(true).await?;
            without_space(&case, &app, &leader).await
        };
        let tried = tried.await;
        node.alarm(false).await.context("etcd keeps its alarm")?;
        let (count, seconds) = tried?;
        // One attempt follows each fetch with a change, and retries after a failure follow a growing back-off.
        let most = seconds / LEAST_INTERVAL + (5.0 * seconds + 1.0).log2() + 2.0;
        say(&format!("without space, {count} attempts to publish in {seconds:.1} s"));
        anyhow::ensure!(count <= most, "{count} attempts in {seconds:.1} s are more than {most:.1}");

        case.answer(&app, "the change that could not be published", |answer| answer["value"] == "express").await?;
        case.condition("storefront", "Published", "True", Some("Published")).await?;
        case.condition("storefront", "Ready", "True", Some("Published")).await?;
        let history: History = app.get("/watch").await?;
        anyhow::ensure!(history.failed == 0 && history.changes.len() == 2, "{history:?}");
        Ok(())
    })
    .await
}
