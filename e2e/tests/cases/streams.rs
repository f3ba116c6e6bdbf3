//! Clients with an event stream receive a changed flag in both APIs.

use std::time::Duration;

use anyhow::Context as _;
use remora_e2e::harness::{App, eventually, with_namespace};
use serde_json::json;

#[tokio::test]
async fn stream_announces_changed_flag() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        let flagsmith = format!("/hear?path=/sse/environments/{}/stream", case.client_key());
        let hear = async |path: &str| app.text(path).await;
        // A new client receives the current state first, and the test continues from that event.
        let current = hear(&flagsmith).await?;
        let id = current.lines().find_map(|line| line.strip_prefix("id: ")).context("an event has an identifier")?;
        let flagsmith = format!("{flagsmith}&last={id}");
        let flip = async || {
            // Both clients must be connected before the change.
            let sidecar = case.port(app.pod(), 4778);
            let both =
                async || Ok(sidecar.text("/metrics").await?.contains("\nremora_sidecar_streams 2\n").then_some(()));
            eventually("both listen", Duration::from_secs(60), both).await?;
            case.flip("storefront", "checkout", &json!({"enabled": true})).await
        };
        let (ofrep, flagsmith, flipped) = tokio::join!(hear("/hear?path=/ofrep/v1/stream"), hear(&flagsmith), flip());
        flipped?;
        let (ofrep, flagsmith) = (ofrep?, flagsmith?);
        anyhow::ensure!(ofrep.contains("\"type\":\"refetchEvaluation\""), "{ofrep}");
        anyhow::ensure!(flagsmith.contains("event: environment_updated"), "{flagsmith}");
        Ok(())
    })
    .await
}
