//! The path of the demo: a document upstream, an environment for it, an annotated Deployment, and a flag that is
//! flipped.

use k8s_openapi::api::core::v1::Pod;
use remora_e2e::app::First;
use remora_e2e::harness::{App, Case, PodPort, say, storefront, with_namespace};
use serde_json::json;

/// Flips the application's flag three times and prints the delay until the application receives a different answer. No
/// pod notification triggers the kubelet here. The kubelet also checks a pod that became Ready a moment ago, so the
/// last delays are the most meaningful.
async fn flip(case: &Case, pods: &[PodPort], how: &str) -> anyhow::Result<()> {
    for pod in pods {
        let first: First = pod.get("/first").await?;
        let answer = first.ofrep.json()?;
        anyhow::ensure!(answer["key"] == "checkout" && answer["reason"] == "DISABLED", "{answer}");
    }
    for value in ["express", "instant", "classic"] {
        let flipped = case.flip("storefront", "checkout", &json!({"enabled": true, "value": value})).await?;
        for pod in pods {
            let seen = case.answer(pod, &format!("checkout is {value}"), |answer| answer["value"] == value).await?;
            let after = seen.duration_since(flipped).as_secs_f64();
            say(&format!("{how}, a flag flipped upstream was seen by an application after {after:.2} s"));
        }
    }
    Ok(())
}

/// Returns the revision in the pod notification of a pod.
async fn told(case: &Case, pod: &PodPort) -> anyhow::Result<Option<String>> {
    let pod = case.api::<Pod>().get(pod.pod()).await?;
    Ok(pod.metadata.annotations.and_then(|annotations| annotations.get("remora.dev/revision.storefront").cloned()))
}

#[tokio::test]
async fn flag_flipped_upstream_arrives() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let pods = case.deployment(&App::new("shop").inject("storefront"), 3).await?;
        flip(&case, &pods, "nudged").await?;
        let environment = case.environments().get("storefront").await?;
        let revision = environment.data["status"]["revision"].as_str().unwrap_or_default().to_owned();
        for pod in &pods {
            let told = told(&case, pod).await?.unwrap_or_default();
            // A number follows the revision where a slow pod was notified again.
            anyhow::ensure!(
                told.split(' ').next() == Some(&*revision),
                "{} was told of {told}, not of {revision}",
                pod.pod()
            );
        }
        Ok(())
    })
    .await
}

/// Without a pod notification, the kubelet checks a pod's volumes every 60 to 90 seconds.
#[tokio::test]
async fn flag_flipped_upstream_arrives_without_nudge() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.upstream.serve(&case.server_key(), &storefront(&case.client_key(), 0)).await?;
        case.secret("flagsmith", &case.server_key()).await?;
        let metadata = json!({"name": "storefront"});
        let spec = json!({"source": case.flagsmith(), "refresh": {"interval": "1s"}, "delivery": {"nudge": false}});
        let kind = json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": metadata, "spec": spec});
        case.apply(kind).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        flip(&case, std::slice::from_ref(&app), "without a nudge").await?;
        let told = told(&case, &app).await?;
        anyhow::ensure!(told.is_none(), "nudged though nobody asked for it: {told:?}");
        Ok(())
    })
    .await
}
