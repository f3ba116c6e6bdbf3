//! Namespaces that limit the resources or users of their pods, and pods with special requirements: the sidecar causes
//! neither a refusal nor a degradation.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::Api;
use remora_e2e::harness::{App, Case, until, with_namespace};
use serde_json::{Value, json};

/// Runs the application and waits until its first request is answered.
async fn answers(case: &Case, app: App) -> anyhow::Result<Pod> {
    case.storefront().await?;
    let running = case.pod(&app.inject("storefront")).await?;
    running.text("/first").await?;
    let api: Api<Pod> = case.api();
    Ok(api.get(running.pod()).await?)
}

fn sidecar(pod: &Pod) -> anyhow::Result<Value> {
    let pod = serde_json::to_value(pod)?;
    let init = pod["spec"]["initContainers"].as_array().into_iter().flatten();
    let found = init.into_iter().find(|container| container["name"] == "remora").cloned();
    found.ok_or_else(|| anyhow::anyhow!("no sidecar in {pod}"))
}

async fn label(case: &Case, labels: Value, annotations: Value) -> anyhow::Result<()> {
    let metadata = json!({"name": case.namespace, "labels": labels, "annotations": annotations});
    case.cluster.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).await?;
    Ok(())
}

/// The LimitRange requires limits and a minimum for every container. The sidecar's default requests are below the
/// minimum, and an annotation of the namespace sets higher ones for all of its pods.
#[tokio::test]
async fn limit_range_admits_sidecar() -> anyhow::Result<()> {
    with_namespace(async |case| {
        label(&case, json!({"remora.dev/e2e": "case"}), json!({"remora.dev/memory-request": "16Mi"})).await?;
        let amounts = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
        let limits = json!([{
            "type": "Container", "min": amounts("1m", "16Mi"), "max": amounts("500m", "128Mi"),
            "default": amounts("100m", "64Mi"), "defaultRequest": amounts("10m", "32Mi"),
        }]);
        case.apply(json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "bounds"}, "spec": {"limits": limits}}))
            .await?;
        let pod = answers(&case, App::new("bounded").resources(json!({}))).await?;
        let resources = sidecar(&pod)?["resources"].clone();
        anyhow::ensure!(resources["requests"]["memory"] == "16Mi", "{resources}");
        // The LimitRange sets the limits of all other containers before the API server calls the webhook, so the
        // sidecar states its own.
        anyhow::ensure!(resources["limits"]["cpu"] == "250m", "{resources}");
        Ok(())
    })
    .await
}

/// A ResourceQuota that counts limits refuses every container without limits.
#[tokio::test]
async fn quota_on_limits_admits_sidecar() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let hard = json!({
            "requests.cpu": "100m", "requests.memory": "64Mi", "limits.cpu": "1", "limits.memory": "128Mi", "pods": "1",
        });
        case.apply(
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all"}, "spec": {"hard": hard}}),
        )
        .await?;
        let quotas = case.api::<ResourceQuota>();
        until(
            &quotas,
            "all",
            "the quota is counted, so that pods are not refused",
            Duration::from_secs(180),
            |quota| quota.status.as_ref().is_some_and(|status| status.hard.is_some() && status.used.is_some()),
        )
        .await?;
        let own = json!({"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"cpu": "200m", "memory": "32Mi"}});
        answers(&case, App::new("counted").resources(own)).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn guaranteed_pod_stays_guaranteed() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let same = json!({"cpu": "50m", "memory": "32Mi"});
        let pod = answers(&case, App::new("guaranteed").resources(json!({"requests": same, "limits": same}))).await?;
        let class = pod.status.and_then(|status| status.qos_class);
        anyhow::ensure!(class.as_deref() == Some("Guaranteed"), "{class:?}");
        Ok(())
    })
    .await
}

/// Some platforms assign each namespace its own user IDs: neither the image nor the sidecar knows the user in advance.
#[tokio::test]
async fn assigned_user_in_restricted_namespace_runs_sidecar() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let restricted = json!({"pod-security.kubernetes.io/enforce": "restricted", "remora.dev/e2e": "case"});
        label(&case, restricted, json!({})).await?;
        let pod = answers(&case, App::new("assigned").as_user(1_000_680_000)).await?;
        let context = sidecar(&pod)?["securityContext"].clone();
        anyhow::ensure!(context.get("runAsUser").is_none(), "the sidecar insists on a user: {context}");
        Ok(())
    })
    .await
}

/// The refusal of a pod names the namespace if the mistake is in the namespace's annotation.
#[tokio::test]
async fn bad_default_of_namespace_is_reported_with_its_name() -> anyhow::Result<()> {
    with_namespace(async |case| {
        label(&case, json!({"remora.dev/e2e": "case"}), json!({"remora.dev/port": "80"})).await?;
        let said = format!("annotation remora.dev/port of namespace {} is \"80\"", case.namespace);
        // The webhook sees the change of a namespace shortly after the API server.
        remora_e2e::harness::eventually("the pod is refused", std::time::Duration::from_secs(60), async || {
            let refused = case.create_pod(&App::new("refused").inject("storefront")).await.err();
            match refused {
                Some(error) => Ok(format!("{error:#}").contains(&said).then_some(())),
                None => {
                    let api: Api<Pod> = case.api();
                    api.delete("refused", &kube::api::DeleteParams::default().grace_period(0)).await?;
                    Ok(None)
                }
            }
        })
        .await
    })
    .await
}
