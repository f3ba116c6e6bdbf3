//! The upstream fails in every way that the stub supports; running pods and new pods get the published flags.

use remora_e2e::app::History;
use remora_e2e::harness::{App, Case, eventually, with_namespace};
use serde_json::json;
use std::time::Duration;

/// Waits until the operator received the last scripted fault.
async fn met(case: &Case) -> anyhow::Result<()> {
    let key = case.server_key();
    let before = case.upstream.requests(&key).await?.len();
    eventually("the operator asks again", Duration::from_secs(60), async || {
        Ok(case.upstream.requests(&key).await?.iter().skip(before).any(|seen| seen.faulty).then_some(()))
    })
    .await
}

#[tokio::test]
async fn outage_leaves_everything_served() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let app = case.pod(&App::new("before").inject("storefront")).await?;
        let published = case.core("storefront").await?;

        let key = case.server_key();
        for fault in [
            json!({"kind": "reset", "bytes": 0}),
            json!({"kind": "status", "code": 500, "body": "sorry"}),
            json!({"kind": "truncate", "bytes": 100}),
            json!({"kind": "body", "text": "{}"}),
        ] {
            case.upstream.fail(&key, &json!([{"fault": fault}])).await?;
            met(&case).await?;
        }
        case.condition("storefront", "Fetched", "False", None).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        let after = case.core("storefront").await?;
        anyhow::ensure!(
            after.metadata.resource_version == published.metadata.resource_version,
            "the ConfigMap was written"
        );
        case.pod(&App::new("during").inject("storefront")).await?;
        let history: History = app.get("/watch").await?;
        anyhow::ensure!(history.failed == 0 && history.changes.len() == 1, "{history:?}");

        case.upstream.fail(&key, &json!([])).await?;
        case.condition("storefront", "Fetched", "True", None).await
    })
    .await
}
