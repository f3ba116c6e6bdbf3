//! The path of the demo: a document upstream, an environment over it, an annotated Deployment, and a flag that is flipped.

use remora_e2e::app::First;
use remora_e2e::harness::{App, Case, PodPort, say, storefront, with_namespace};
use serde_json::json;

/// Flips the flag that the application asks for, twice, and says after how long it got another answer. Nobody hurries
/// kubelet here; but it looks after a pod that has just become Ready anyhow, so only the second time counts.
async fn flip(case: &Case, pods: &[PodPort], how: &str) -> anyhow::Result<()> {
    for pod in pods {
        let first: First = pod.get("/first").await?;
        let answer = first.ofrep.json()?;
        anyhow::ensure!(answer["key"] == "checkout" && answer["reason"] == "DISABLED", "{answer}");
    }
    for (round, value) in [("first", "express"), ("second", "instant")] {
        let flipped = case.flip("storefront", "checkout", &json!({"enabled": true, "value": value})).await?;
        for pod in pods {
            let seen = case.answer(pod, &format!("checkout is {value}"), |answer| answer["value"] == value).await?;
            let after = seen.duration_since(flipped).as_secs_f64();
            say(&format!("{how}, a {round} flip upstream was seen by an application after {after:.2} s"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_flag_flipped_upstream_arrives() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let pods = case.deployment(&App::new("shop").inject("storefront"), 3).await?;
        flip(&case, &pods, "nudged").await
    })
    .await
}

/// Left alone, kubelet looks after a pod's volumes every 60 to 90 seconds.
#[tokio::test]
async fn a_flag_flipped_upstream_arrives_without_a_nudge() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.upstream.serve(&case.server_key(), &storefront(&case.client_key(), 0)).await?;
        case.secret("flagsmith", &case.server_key()).await?;
        let metadata = json!({"name": "storefront"});
        let spec = json!({"source": case.flagsmith(), "refresh": {"interval": "1s"}, "delivery": {"nudge": false}});
        let kind = json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": metadata, "spec": spec});
        case.apply(kind).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        flip(&case, &[app], "without a nudge").await
    })
    .await
}
