//! Sidecar image that no node can pull: pods with the annotation wait, and the kubelet reports the reason; other pods
//! start.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DeleteParams, ListParams};
use remora_e2e::app::History;
use remora_e2e::harness::{App, Case, Release, alone_in_namespace, eventually, until};
use serde_json::json;

const CAP: Duration = Duration::from_secs(60);

/// Returns the reason why the sidecar does not run yet.
fn waits_for(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let sidecar = status.init_container_statuses.iter().flatten().find(|container| container.name == "remora")?;
    sidecar.state.as_ref()?.waiting.as_ref()?.reason.clone()
}

/// Waits until a pod waits for its sidecar's image and an Event of the kubelet has these words, and checks that the
/// application did not start without its flags.
pub(super) async fn held_back(case: &Case, pod: &str, words: &[&str]) -> anyhow::Result<()> {
    let told = |pod: &Pod| matches!(waits_for(pod).as_deref(), Some("ErrImagePull" | "ImagePullBackOff"));
    let held = until(&case.api(), pod, "the sidecar's image is asked for in vain", CAP, told).await?;
    let containers = held.status.and_then(|status| status.container_statuses).unwrap_or_default();
    let started = containers.iter().any(|container| container.started == Some(true));
    anyhow::ensure!(!started, "the application started without its flags: {containers:?}");
    let events: Api<Event> = case.api();
    let about = ListParams::default().fields(&format!("involvedObject.name={pod},reason=Failed"));
    eventually(&format!("an Event of {pod} says {words:?}"), CAP, async || {
        let found = events.list(&about).await?.items;
        let messages: Vec<String> = found.into_iter().filter_map(|event| event.message).collect();
        let says = |message: &String| words.iter().all(|word| message.contains(word));
        anyhow::ensure!(messages.iter().any(says), "{messages:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn unpullable_image_holds_back_pods_that_ask_for_it_only() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let running = case.pod(&App::new("running").inject("storefront")).await?;
        let release = Release::of(&case.cluster);
        let image = |name: &str, tag: &str| json!({"repository": case.cluster.repository(name), "tag": tag});
        let operator = image("remora-operator", case.cluster.tag());
        let images = json!({"operator": operator, "sidecar": image("remora-sidecar", "nobody-made-this")});
        release.install_with(&json!({"image": images})).await?;

        case.create_pod(&App::new("held").inject("storefront")).await?;
        let plain =
            json!({"name": "plain", "image": case.cluster.e2e_image(), "args": ["upstream", "--name", "plain"]});
        case.apply(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {"containers": [plain]}}),
        )
        .await?;
        case.started("plain", "plain").await?;
        held_back(&case, "held", &["nobody-made-this"]).await?;
        let history: History = running.get("/watch").await?;
        anyhow::ensure!(history.failed == 0 && history.changes.len() == 1, "{history:?}");

        release.install().await?;
        case.api::<Pod>().delete("held", &DeleteParams::default().grace_period(0)).await?;
        case.pod(&App::new("again").inject("storefront")).await?.text("/first").await?;
        Ok(())
    })
    .await
}
