//! A release that serves listed namespaces only: its self-check succeeds in the release's own namespace, which is not in
//! the list, and pods of other namespaces get no sidecar.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use remora_e2e::harness::{App, Case, Release, SYSTEM, alone_in_namespace, eventually};
use serde_json::json;

/// The API server activates a changed registration or policy within a second or two.
const CAP: Duration = Duration::from_secs(30);

/// Returns true if a pod that asks for flags would get its sidecar in this namespace. The dry run is not the self-check's,
/// because another account sends it.
async fn is_injected(case: &Case, namespace: &str) -> anyhow::Result<bool> {
    let pod = json!({
        "metadata": {"generateName": "asks-", "annotations": {"remora.dev/inject": "storefront"}},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "app", "image": case.cluster.e2e_image()}]},
    });
    let api: Api<Pod> = Api::namespaced(case.cluster.client.clone(), namespace);
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    let created = api.create(&parameters, &serde_json::from_value(pod)?).await?;
    let init = created.spec.and_then(|spec| spec.init_containers).unwrap_or_default();
    Ok(init.iter().any(|container| container.name == "remora"))
}

#[tokio::test]
async fn release_of_listed_namespaces_passes_its_self_check() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let release = Release::of(&case.cluster);
        for by in ["Webhook", "AdmissionPolicy"] {
            let values = json!({"controller": {"namespaces": [case.namespace]}, "injection": {"by": by}});
            // The controller becomes ready with the first dry run that adds a sidecar to a pod, and helm waits for that.
            release.install_with(&values).await?;
            for (namespace, expected) in [(case.namespace.as_str(), true), ("default", false), (SYSTEM, false)] {
                eventually(&format!("{by} in {namespace}: injected is {expected}"), CAP, async || {
                    Ok((is_injected(&case, namespace).await? == expected).then_some(()))
                })
                .await?;
            }
            let name = format!("shop-{}", by.to_lowercase());
            case.pod(&App::new(&name).inject("storefront")).await?.text("/first").await?;
        }
        release.install().await
    })
    .await
}
