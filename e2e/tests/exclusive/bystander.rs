//! Pods without the annotation: Remora must not change them.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use remora_e2e::harness::{Case, Release, alone_in_namespace};
use serde_json::{Value, json};

/// Returns a pod that never runs, with fields that a webhook could change.
fn bystander(image: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "bystander", "labels": {"app": "bystander"}, "annotations": {"example.com/inject": "storefront"}},
        "spec": {
            "nodeSelector": {"no": "node"}, "automountServiceAccountToken": false,
            "initContainers": [{"name": "first", "image": image, "args": ["--version"], "env": [{"name": "OFREP_ENDPOINT", "value": ""}]}],
            "containers": [{"name": "app", "image": image, "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    })
}

/// Creates the pod from untyped bytes, and returns the API server's result without the fields that differ between
/// creations.
async fn created(case: &Case) -> anyhow::Result<String> {
    let path = format!("/api/v1/namespaces/{}/pods", case.namespace);
    let body = bystander(&case.cluster.e2e_image()).to_string().into_bytes();
    let request = http::Request::post(&path).header("content-type", "application/json").body(body)?;
    let text = case.cluster.client.request_text(request).await.context("a pod that asks for nothing was refused")?;
    let mut pod: Value = serde_json::from_str(&text)?;
    for member in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        pod["metadata"].as_object_mut().context("metadata")?.remove(member);
    }
    let api: Api<Pod> = case.api();
    api.delete("bystander", &kube::api::DeleteParams::default().grace_period(0)).await?;
    kube::runtime::wait::await_condition(api, "bystander", |pod: Option<&Pod>| pod.is_none()).await?;
    Ok(pod.to_string())
}

/// The three states are: no Remora, Remora installed, and Remora with its webhook down.
#[tokio::test]
async fn pods_without_the_annotation_are_byte_identical() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let release = Release::of(&case.cluster);
        release.uninstall().await?;
        let without = created(&case).await?;
        release.install().await?;
        let with = created(&case).await?;
        anyhow::ensure!(with == without, "with Remora: {with}\nwithout: {without}");
        release.stop().await?;
        let down = created(&case).await?;
        anyhow::ensure!(down == without, "with Remora down: {down}\nwithout: {without}");
        release.install().await
    })
    .await
}

/// A pod that requests flags does not start without them: the API server refuses it and names the webhook.
#[tokio::test]
async fn annotated_pods_are_refused_while_the_webhook_is_down() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let release = Release::of(&case.cluster);
        release.stop().await?;
        let mut pod = bystander(&case.cluster.e2e_image());
        pod["metadata"]["annotations"] = json!({"remora.dev/inject": "storefront"});
        let api: Api<Pod> = case.api();
        let refusal = api.create(&PostParams::default(), &serde_json::from_value(pod.clone())?).await;
        let refusal = refusal.err().context("admitted without its sidecar")?.to_string();
        anyhow::ensure!(refusal.contains("failed calling webhook") && refusal.contains("remora.dev"), "{refusal}");
        release.install().await?;
        api.create(&PostParams::default(), &serde_json::from_value(pod)?)
            .await
            .context("refused though the webhook is back")?;
        Ok(())
    })
    .await
}
