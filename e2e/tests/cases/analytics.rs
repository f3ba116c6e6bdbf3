//! Uses of flags reach the upstream: each of them once, also if the upstream refuses them or its answer is lost. A sidecar
//! that ends loses only what was not read yet.

use std::time::Duration;

use remora_e2e::harness::{App, Case, PodPort, eventually, say, storefront, with_namespace};
use serde_json::{Value, json};

/// Port of a sidecar that the controller reads.
const ADMIN: u16 = 4778;
/// The controller reads once a minute, and waits for up to two minutes after a second failure, four after a third.
const CAP: Duration = Duration::from_secs(900);
/// A flag that the application does not use by itself.
const FLAG: &str = "banner";
const ANALYTICS: &str = "/api/v1/analytics/flags/";

/// Returns how often the sidecar's present process counted the flag in a pod.
async fn counted(case: &Case, pod: &PodPort) -> anyhow::Result<u64> {
    let read: Value = case.port(pod.pod(), ADMIN).get("/uses/storefront").await?;
    Ok(read["uses"][FLAG].as_u64().unwrap_or_default())
}

/// Waits until the upstream has received at least this many uses of the flag, and returns their number.
async fn received(case: &Case, least: u64) -> anyhow::Result<u64> {
    let uses = async || {
        let uses = case.upstream.uses(&case.server_key()).await?.get(FLAG).copied().unwrap_or_default();
        Ok(Some(uses).filter(|uses| *uses >= least))
    };
    eventually(&format!("the upstream has {least} uses"), CAP, uses).await
}

#[tokio::test]
async fn uses_reach_upstream_once_whatever_fails() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let key = case.server_key();
        case.upstream.serve(&key, &storefront(&case.client_key(), 3)).await?;
        case.upstream.set(&key, &json!({"usesFault": {"kind": "status", "code": 503}})).await?;
        case.secret("flagsmith", &key).await?;
        let mut source = case.flagsmith();
        source["flagsmith"]["sendAnalytics"] = json!(true);
        case.environment("storefront", source).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        let environment = case.environments().get("storefront").await?;
        anyhow::ensure!(environment.data["status"]["analytics"] == "collecting", "{}", environment.data["status"]);
        let app = case.pod(&App::new("shop").inject("storefront").seeing_processes()).await?;

        // The upstream refuses the uses.
        app.use_flag(FLAG, 10).await?;
        eventually("the upstream refuses uses", CAP, async || {
            let requests = case.upstream.requests(&key).await?;
            Ok(requests.iter().any(|seen| seen.path == ANALYTICS && seen.status == 503).then_some(()))
        })
        .await?;
        anyhow::ensure!(received(&case, 0).await? == 0, "the upstream stored uses that it refused");

        // The upstream stores the uses, and its answer is lost: no use is sent a second time.
        case.upstream.set(&key, &json!({"usesFault": {"kind": "reset", "bytes": 0}})).await?;
        app.use_flag(FLAG, 10).await?;
        let stored = received(&case, 10).await?;
        case.upstream.set(&key, &json!({})).await?;
        app.use_flag(FLAG, 10).await?;
        let made = counted(&case, &app).await?;
        anyhow::ensure!(made == 30, "the sidecar counted {made} uses of 30");
        let sent = received(&case, made).await?;
        anyhow::ensure!(sent == made, "{sent} uses were sent, and {made} were made");

        // The sidecar is killed: its next process counts from zero.
        app.use_flag(FLAG, 10).await?;
        let process = async || {
            let read: Value = case.port(app.pod(), ADMIN).get("/uses/storefront").await?;
            anyhow::Ok(read["process"].clone())
        };
        let killed = process().await?;
        app.text("/kill?process=remora-sidecar").await?;
        eventually("the next process of the sidecar answers", CAP, async || {
            // No process answers for a moment.
            Ok(process().await.ok().filter(|next| *next != killed).map(drop))
        })
        .await?;
        app.use_flag(FLAG, 10).await?;
        let after = counted(&case, &app).await?;
        let kept = received(&case, made + after).await?;
        anyhow::ensure!(kept <= made + 10 + after, "{kept} uses were sent, and {} were made", made + 10 + after);
        say(&format!(
            "{stored} of 20 uses were stored by an upstream that had refused them before and whose answers were lost, {sent} of {made} when it \
             answered; with a sidecar killed after 10 more uses, {kept} of {}",
            made + 10 + after
        ));
        Ok(())
    })
    .await
}
