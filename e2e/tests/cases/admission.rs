//! Answers of the webhook to pods with invalid requests.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use remora_e2e::harness::{App, Case, with_namespace};
use serde_json::json;

/// Creates a pod that never runs. Returns the pod, or the message of its refusal.
async fn create(case: &Case, annotations: serde_json::Value) -> Result<Pod, String> {
    let pod = json!({
        "metadata": {"generateName": "asks-", "annotations": annotations},
        "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "app", "image": case.cluster.e2e_image()}]},
    });
    let api: Api<Pod> = case.api();
    let pod = serde_json::from_value(pod).map_err(|error| error.to_string())?;
    api.create(&PostParams::default(), &pod).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn bad_annotation_is_refused_with_remedy() -> anyhow::Result<()> {
    with_namespace(async |case| {
        for (annotations, words) in [
            (json!({"remora.dev/inject": "shop/storefront"}), "its own namespace only"),
            (json!({"remora.dev/inject": "Storefront"}), "lower case letters"),
            (json!({"remora.dev/inject": "storefront", "remora.dev/port": "80"}), "a port from 1024 to 65534"),
            (json!({"remora.dev/inject": "storefront", "remora.dev/await": "soon"}), "a duration"),
        ] {
            let refusal = create(&case, annotations.clone()).await.err();
            let refusal = refusal.ok_or_else(|| anyhow::anyhow!("admitted: {annotations}"))?;
            anyhow::ensure!(refusal.contains(words), "{annotations}: {refusal}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pod_of_missing_environment_is_admitted() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let pod = create(&case, json!({"remora.dev/inject": "nowhere"})).await.map_err(anyhow::Error::msg)?;
        let sidecars = pod.spec.unwrap_or_default().init_containers.unwrap_or_default();
        anyhow::ensure!(sidecars.iter().any(|container| container.name == "remora"), "no sidecar in {sidecars:?}");
        Ok(())
    })
    .await
}

/// A namespace that enforces the strictest Pod Security Standard admits the sidecar too.
#[tokio::test]
async fn restricted_namespace_admits_sidecar() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted", "remora.dev/e2e": "case"});
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace, "labels": labels}});
        case.cluster.apply(&namespace).await?;
        case.storefront().await?;
        let app = case.pod(&App::new("restricted").inject("storefront").restricted()).await?;
        app.text("/first").await?;
        Ok(())
    })
    .await
}
