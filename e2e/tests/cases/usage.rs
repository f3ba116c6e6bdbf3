//! Uses of flags reach the upstream: no more than were made, and all that were made before the last reading.

use std::collections::BTreeMap;
use std::time::Duration;

use remora_e2e::harness::{App, Case, eventually, say, storefront, with_namespace};
use serde_json::{Value, json};

/// Port of a sidecar that the controller reads.
const ADMIN: u16 = 4778;
/// The controller reads once a minute.
const CAP: Duration = Duration::from_secs(200);
const FLAG: &str = "checkout";

/// Returns how often the sidecar of a pod counted the flag.
async fn made(case: &Case, pod: &str) -> anyhow::Result<u64> {
    let read: Value = case.port(pod, ADMIN).get("/uses/storefront").await?;
    Ok(read["uses"][FLAG].as_u64().unwrap_or_default())
}

/// Returns how often the flag was used according to the upstream.
async fn sent(case: &Case) -> anyhow::Result<u64> {
    let uses: BTreeMap<String, u64> = case.upstream.uses(&case.server_key()).await?;
    Ok(uses.get(FLAG).copied().unwrap_or_default())
}

#[tokio::test]
async fn uses_of_flags_reach_the_upstream() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.upstream.serve(&case.server_key(), &storefront(&case.client_key(), 3)).await?;
        case.secret("flagsmith", &case.server_key()).await?;
        let mut source = case.flagsmith();
        source["flagsmith"]["sendAnalytics"] = json!(true);
        case.environment("storefront", source).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        let environment = case.environments().get("storefront").await?;
        anyhow::ensure!(environment.data["status"]["analytics"] == "collecting", "{}", environment.data["status"]);

        // The application asks for its flag by OFREP all the time.
        case.pod(&App::new("first").inject("storefront").flag(FLAG)).await?;
        let counted = eventually("the sidecar counts", CAP, async || {
            Ok(Some(made(&case, "first").await?).filter(|made| *made > 0))
        })
        .await?;
        let seen = eventually("the upstream has the counts", CAP, async || {
            Ok(Some(sent(&case).await?).filter(|sent| *sent >= counted))
        })
        .await?;
        let now = made(&case, "first").await?;
        anyhow::ensure!(seen <= now, "{seen} uses were sent, and {now} were made");

        // A second pod adds its counts.
        case.pod(&App::new("second").inject("storefront").flag(FLAG)).await?;
        let counted = made(&case, "first").await? + made(&case, "second").await?;
        let seen = eventually("the upstream has the counts of both pods", CAP, async || {
            Ok(Some(sent(&case).await?).filter(|sent| *sent >= counted))
        })
        .await?;
        let now = made(&case, "first").await? + made(&case, "second").await?;
        anyhow::ensure!(seen <= now, "{seen} uses were sent, and {now} were made");
        say(&format!("{seen} uses were sent when {now} were made"));
        Ok(())
    })
    .await
}
