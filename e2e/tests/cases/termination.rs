//! The sidecar runs longer than the application.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use remora_e2e::harness::{App, until, with_namespace};

/// After the termination signal, the application sends requests for two more seconds. It exits with 1 if a request
/// failed.
#[tokio::test]
async fn terminating_pod_answers_requests_until_its_end() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        case.pod(&App::new("leaving").inject("storefront").linger(2000)).await?;
        let api: Api<Pod> = case.api();
        api.delete("leaving", &DeleteParams::default()).await?;
        let ended = |pod: &Pod| {
            let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
            status.state.as_ref()?.terminated.clone()
        };
        let cap = Duration::from_secs(180);
        let pod =
            until(&api, "leaving", "the application's end is in the status", cap, |pod| ended(pod).is_some()).await?;
        let ended = ended(&pod).unwrap_or_default();
        anyhow::ensure!(ended.exit_code == 0, "the application ended with {ended:?}");
        anyhow::ensure!(ended.message.unwrap_or_default().contains(r#""failed":0"#), "it left no last words");
        Ok(())
    })
    .await
}
