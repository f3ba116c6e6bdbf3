//! Uses of flags when the controller is killed together with a pod: only uses that were not sent before are lost, and
//! none is sent twice.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use remora_e2e::harness::{App, Case, SYSTEM, alone_in_namespace, eventually, say, storefront};
use serde_json::json;

use super::handover::CAP;

/// The controller reads once a minute. A busy sidecar may miss a round, and a request that failed is repeated a minute or
/// two later.
const ROUNDS: Duration = Duration::from_secs(600);
/// A flag that the application does not use by itself.
const FLAG: &str = "banner";
/// Line of the metrics that counts the sidecars that were read.
const READ: &str = "remora_usage_readings_total{result=\"Read\"} ";

/// Waits until the leader has read a sidecar.
async fn read_by_leader(case: &Case) -> anyhow::Result<()> {
    eventually("the leader reads a sidecar", ROUNDS, async || {
        let Some(leader) = case.cluster.leader().await? else { return Ok(None) };
        let ports = case.cluster.operator("controller").await?;
        let Some(port) = ports.iter().find(|port| port.pod() == leader) else { return Ok(None) };
        // A controller that was killed a moment ago does not answer.
        let Ok(metrics) = port.text("/metrics").await else { return Ok(None) };
        let read = metrics.lines().find_map(|line| line.strip_prefix(READ));
        Ok(read.filter(|count| *count != "0").map(drop))
    })
    .await
}

#[tokio::test]
async fn killed_controller_sends_no_use_twice() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let key = case.server_key();
        case.upstream.serve(&key, &storefront(&case.client_key(), 3)).await?;
        case.secret("flagsmith", &key).await?;
        let mut source = case.flagsmith();
        source["flagsmith"]["sendAnalytics"] = json!(true);
        case.environment("storefront", source).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        let stays = case.pod(&App::new("stays").inject("storefront")).await?;
        let ends = case.pod(&App::new("ends").inject("storefront")).await?;
        stays.use_flag(FLAG, 10).await?;
        ends.use_flag(FLAG, 10).await?;
        let sent = async || anyhow::Ok(case.upstream.uses(&key).await?.get(FLAG).copied().unwrap_or_default());
        eventually("the upstream has the uses", ROUNDS, async || Ok((sent().await? == 20).then_some(()))).await?;
        // These are lost, unless the controller reads them in the moment before it is killed.
        ends.use_flag(FLAG, 3).await?;

        let leader = eventually("a replica holds the lease", CAP, async || case.cluster.leader().await).await?;
        let killed = DeleteParams::default().grace_period(0);
        let controllers: Api<Pod> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
        controllers.delete(&leader, &killed).await?;
        case.api::<Pod>().delete(ends.pod(), &killed).await?;
        eventually("another controller leads", CAP, async || {
            Ok(case.cluster.leader().await?.filter(|next| *next != leader))
        })
        .await?;
        read_by_leader(&case).await?;

        // From here on no use is lost: a pod that the new controller has read, and one that started after it.
        let started = case.pod(&App::new("started").inject("storefront")).await?;
        stays.use_flag(FLAG, 5).await?;
        started.use_flag(FLAG, 7).await?;
        // A controller that counted the pod that stays from zero would have sent its ten uses a second time by now.
        let sent = eventually("the upstream has the uses since then", ROUNDS, async || {
            Ok(Some(sent().await?).filter(|sent| *sent >= 32))
        })
        .await?;
        anyhow::ensure!(sent <= 35, "{sent} uses were sent, and 35 were made");
        say(&format!(
            "with the controller and a pod killed after 3 uses that were not read, {sent} of 35 uses were sent"
        ));
        Ok(())
    })
    .await
}
