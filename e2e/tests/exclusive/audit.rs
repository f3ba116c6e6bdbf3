//! Pods that were admitted without their sidecar: the controller finds and reports them, and replaces them if the
//! administrator allows it.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use remora_e2e::harness::{App, Case, PodPort, Release, alone_in_namespace, eventually};
use serde_json::json;

/// Time for two scans of the auditor, with a margin.
const CAP: Duration = Duration::from_secs(150);

/// Waits for a line in the controller's metrics.
async fn metric(case: &Case, line: &str) -> anyhow::Result<()> {
    eventually(&format!("the controller says {line}"), CAP, async || {
        let text = controller(case).await?.text("/metrics").await?;
        Ok(text.lines().any(|candidate| candidate == line).then_some(()))
    })
    .await
}

async fn controller(case: &Case) -> anyhow::Result<PodPort> {
    let selector = "app.kubernetes.io/component=controller";
    let pods = case.cluster.pods(remora_e2e::harness::SYSTEM, selector).await?;
    Ok(case.cluster.system_port(pods.first().context("no controller")?, 8080))
}

fn has_sidecar(pod: &Pod) -> bool {
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    init.into_iter().any(|container| container.name == "remora")
}

async fn pods(case: &Case, app: &str) -> anyhow::Result<Vec<Pod>> {
    let api: Api<Pod> = case.api();
    let pods = api.list(&ListParams::default().labels(&format!("app={app}"))).await?.items;
    Ok(pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
}

#[tokio::test]
async fn pods_without_sidecar_are_reported_and_replaced_on_request_only() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let release = Release::of(&case.cluster);
        let lenient = json!({"webhook": {"failurePolicy": "Ignore"}});
        release.install_with(&lenient).await?;
        release.stop().await?;
        case.create_deployment(&App::new("shop").inject("storefront"), 1).await?;
        // The pod must still exist at the scan: without flags the application would exit at once.
        let spec =
            json!({"nodeSelector": {"no": "node"}, "containers": [{"name": "app", "image": case.cluster.e2e_image()}]});
        let metadata =
            json!({"name": "bare", "labels": {"app": "bare"}, "annotations": {"remora.dev/inject": "storefront"}});
        case.apply(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).await?;
        case.create_pod(&App::new("never").inject("false")).await?;
        let before = eventually("the Deployment has a pod", CAP, async || Ok(pods(&case, "shop").await?.pop())).await?;
        anyhow::ensure!(!has_sidecar(&before), "injected by nobody");

        release.install_with(&lenient).await?;
        let namespace = &case.namespace;
        metric(&case, &format!("remora_injection_missing_pods{{namespace=\"{namespace}\"}} 2")).await?;
        let name = before.metadata.name.clone().unwrap_or_default();
        let api: Api<Event> = case.api();
        for kind in ["Pod", "ReplicaSet"] {
            eventually(&format!("an Event on the {kind}"), CAP, async || {
                let events = api.list(&ListParams::default()).await?.items;
                let found = events.into_iter().any(|event| {
                    event.reason.as_deref() == Some("NotInjected")
                        && event.regarding.and_then(|about| about.kind).as_deref() == Some(kind)
                        && event.note.is_some_and(|note| note.contains(&name))
                });
                Ok(found.then_some(()))
            })
            .await?;
        }
        anyhow::ensure!(pods(&case, "shop").await?.len() == 1, "something was made anew");
        let still = pods(&case, "shop").await?.pop().context("the pod is gone")?;
        anyhow::ensure!(still.metadata.uid == before.metadata.uid, "evicted, though nobody said so");

        let mut evicting = lenient.clone();
        evicting["auditor"] = json!({"evict": true});
        release.install_with(&evicting).await?;
        eventually("the pod is replaced by one with its sidecar", CAP, async || {
            let now = pods(&case, "shop").await?;
            Ok((now.len() == 1 && now.iter().all(has_sidecar)).then_some(()))
        })
        .await?;
        // No controller would recreate a bare pod.
        metric(&case, &format!("remora_injection_missing_pods{{namespace=\"{namespace}\"}} 1")).await?;
        anyhow::ensure!(pods(&case, "bare").await?.len() == 1, "the bare pod was taken away");
        release.install().await
    })
    .await
}

/// A whole cluster starts at once: workloads exist before the webhook does, and wait for it.
#[tokio::test]
async fn every_pod_has_its_sidecar_after_cold_start() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let release = Release::of(&case.cluster);
        release.stop().await?;
        case.create_deployment(&App::new("shop").inject("storefront"), 5).await?;
        let waiting = async || -> anyhow::Result<Option<()>> {
            let api: Api<Event> = case.api();
            let events = api.list(&ListParams::default()).await?.items;
            Ok(events.iter().any(|event| event.reason.as_deref() == Some("FailedCreate")).then_some(()))
        };
        eventually("its controller is told that the webhook is not there", CAP, waiting).await?;
        anyhow::ensure!(pods(&case, "shop").await?.is_empty(), "a pod was admitted without the webhook");

        release.install().await?;
        eventually("all pods are there", CAP, async || Ok((pods(&case, "shop").await?.len() == 5).then_some(())))
            .await?;
        let now = pods(&case, "shop").await?;
        anyhow::ensure!(now.iter().all(has_sidecar), "a pod has no sidecar");
        for pod in now {
            case.ready(&pod.metadata.name.unwrap_or_default()).await?;
        }
        Ok(())
    })
    .await
}
