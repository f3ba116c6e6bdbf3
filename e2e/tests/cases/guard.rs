//! The guard holds back a probable upstream mistake from pods until someone confirms it.

use kube::api::{Patch, PatchParams};
use remora_e2e::harness::{App, storefront, with_namespace};
use serde_json::json;

#[tokio::test]
async fn emptied_environment_waits_for_confirmation() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let app = case.pod(&App::new("shop").inject("storefront").flag("banner")).await?;
        let published = case.core("storefront").await?;
        let mut emptied = storefront(&case.client_key(), 0);
        emptied["feature_states"] = json!([]);
        emptied["project"]["segments"] = json!([]);
        case.upstream.serve(&case.server_key(), &emptied).await?;
        case.condition("storefront", "Published", "False", Some("SuspiciousShrink")).await?;
        case.condition("storefront", "Ready", "True", Some("LastGood")).await?;
        let still = case.core("storefront").await?;
        anyhow::ensure!(still.metadata.resource_version == published.metadata.resource_version, "it was written");
        case.answer(&app, "banner is Welcome", |answer| answer["value"] == "Welcome").await?;

        let environment = case.environments().get("storefront").await?;
        let held = environment.data.pointer("/status/heldRevision").cloned().unwrap_or_default();
        let patch = json!({"metadata": {"annotations": {"remora.dev/confirm": held}}});
        case.environments().patch("storefront", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        case.condition("storefront", "Published", "True", Some("Published")).await?;
        let environment = case.environments().get("storefront").await?;
        anyhow::ensure!(environment.data.pointer("/status/revision") == Some(&held), "another one was published");
        Ok(())
    })
    .await
}
