//! The application's first request is answered, in any kind of workload and at any start order.

use remora_e2e::app::First;
use remora_e2e::harness::{App, with_namespace};

/// Fifty programs send one request each at their first line and never retry. No request may fail, and the Job completes
/// although a sidecar runs in its pods.
#[tokio::test]
async fn fifty_pods_of_job_start_with_flags() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        case.job(&App::new("eager").inject("storefront"), 50).await
    })
    .await
}

#[tokio::test]
async fn cron_job_with_sidecar_completes() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        case.cron_job(&App::new("nightly").inject("storefront")).await
    })
    .await
}

#[tokio::test]
async fn bare_pod_starts_with_flags() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let app = case.pod(&App::new("bare").inject("storefront")).await?;
        let first: First = app.get("/first").await?;
        anyhow::ensure!(first.ofrep.json()?["key"] == "checkout", "{first:?}");
        anyhow::ensure!(first.flagsmith.json()?["flags"][1]["feature_state_value"] == "Welcome", "{first:?}");
        Ok(())
    })
    .await
}

/// The pod exists before its environment: the application waits, and its first request is answered.
#[tokio::test]
async fn pod_older_than_its_environment_gets_flags() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let app = App::new("early").inject("storefront").annotate("remora.dev/await", "120s");
        let ready = case.pod(&app);
        let publish = async {
            case.started("early", "remora").await?;
            case.storefront().await?;
            case.poke("app=early").await
        };
        let (app, ()) = tokio::try_join!(ready, publish)?;
        let first: First = app.get("/first").await?;
        anyhow::ensure!(first.ofrep.status == 200, "{first:?}");
        Ok(())
    })
    .await
}
