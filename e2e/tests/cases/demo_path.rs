//! The path of the demo: a document upstream, an environment over it, an annotated Deployment, and a flag that is flipped.

use remora_e2e::app::First;
use remora_e2e::harness::{App, say, with_namespace};
use serde_json::json;

/// Nobody hurries kubelet here: this is how long it takes.
#[tokio::test]
async fn a_flag_flipped_upstream_arrives() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let pods = case.deployment(&App::new("shop").inject("storefront"), 2).await?;
        for pod in &pods {
            let first: First = pod.get("/first").await?;
            let answer = first.ofrep.json()?;
            anyhow::ensure!(answer["key"] == "checkout" && answer["reason"] == "DISABLED", "{answer}");
        }
        let flipped = case.flip("storefront", "checkout", &json!({"enabled": true, "value": "express"})).await?;
        for pod in &pods {
            let seen = case.answer(pod, "checkout is express", |answer| answer["value"] == "express").await?;
            say(&format!(
                "a flag flipped upstream was seen by an application after {:.2} s",
                seen.duration_since(flipped).as_secs_f64()
            ));
        }
        Ok(())
    })
    .await
}

/// The same with kubelet told to look at once, which is what the operator's own part of the way costs.
#[tokio::test]
async fn a_flag_flipped_upstream_arrives_at_once_when_the_pod_is_poked() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        let flipped = case.flip("storefront", "checkout", &json!({"enabled": true, "value": "express"})).await?;
        case.poke("app=shop").await?;
        let seen = case.answer(&app, "checkout is express", |answer| answer["value"] == "express").await?;
        say(&format!("… and after {:.2} s when the pod is poked", seen.duration_since(flipped).as_secs_f64()));
        Ok(())
    })
    .await
}
