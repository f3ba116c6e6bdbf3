//! Rollback to an earlier revision by one patch, and forward again: pods converge each time.

use kube::api::{Patch, PatchParams};
use remora_e2e::harness::{App, Case, with_namespace};
use serde_json::{Value, json};

/// Sets the pin, as `kubectl patch fenv storefront --type merge --patch …` does.
async fn pin(case: &Case, revision: &str) -> anyhow::Result<()> {
    let patch = json!({"spec": {"pin": revision}});
    case.environments().patch("storefront", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

async fn status(case: &Case, member: &str) -> anyhow::Result<Value> {
    let environment = case.environments().get("storefront").await?;
    Ok(environment.data.pointer(&format!("/status/{member}")).cloned().unwrap_or_default())
}

#[tokio::test]
async fn pods_follow_pin_and_its_removal() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let app = case.pod(&App::new("shop").inject("storefront").flag("banner")).await?;
        let first = status(&case, "revision").await?;
        case.flip("storefront", "banner", &json!({"value": "Sale"})).await?;
        case.answer(&app, "banner is Sale", |answer| answer["value"] == "Sale").await?;
        let listed = status(&case, "history").await?;
        anyhow::ensure!(listed[0]["revision"] == first, "{listed}");

        pin(&case, first.as_str().unwrap_or_default()).await?;
        case.answer(&app, "banner is Welcome", |answer| answer["value"] == "Welcome").await?;
        case.condition("storefront", "Published", "True", Some("Pinned")).await?;
        anyhow::ensure!(status(&case, "revision").await? == first);

        pin(&case, "").await?;
        case.answer(&app, "banner is Sale again", |answer| answer["value"] == "Sale").await?;
        case.condition("storefront", "Published", "True", Some("Published")).await
    })
    .await
}
