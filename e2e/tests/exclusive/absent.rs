//! The operator and its webhook are absent: running pods continue, and containers that restart in place recover.

use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use remora_e2e::app::History;
use remora_e2e::harness::{App, Release, alone_in_namespace, eventually, until};

/// Returns the restart count of a container.
pub(super) fn restarts(pod: &Pod, container: &str) -> i32 {
    let status = pod.status.clone().unwrap_or_default();
    let all =
        status.init_container_statuses.into_iter().flatten().chain(status.container_statuses.into_iter().flatten());
    all.filter(|status| status.name == container).map(|status| status.restart_count).sum()
}

#[tokio::test]
async fn absent_operator_leaves_everything_served_also_after_restart() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let untouched = case.pod(&App::new("untouched").inject("storefront")).await?;
        let pods = case.deployment(&App::new("crashing").inject("storefront").seeing_processes(), 1).await?;
        let app = pods.first().context("the Deployment has no pod")?;
        let release = Release::of(&case.cluster);
        release.stop().await?;

        // The pod is not recreated, so no webhook is needed: the volume exists, and the sidecar starts from it.
        app.text("/kill?process=remora-sidecar").await?;
        let (api, cap): (Api<Pod>, _) = (case.api(), Duration::from_secs(60));
        until(&api, app.pod(), "the sidecar was restarted", cap, |pod| restarts(pod, "remora") == 1).await?;
        eventually("the restarted sidecar answers", cap, async || {
            let reply = app.ask(Method::GET, "/api/v1/flags/", Some(&case.client_key()), None).await?;
            Ok((reply.status == 200).then_some(()))
        })
        .await?;

        // An application that restarts sends its first request again, once.
        app.text("/kill?process=remora-e2e").await.ok();
        until(&api, app.pod(), "the application was restarted", cap, |pod| restarts(pod, "app") == 1).await?;
        case.ready(app.pod()).await?;
        app.text("/first").await?;

        let history: History = untouched.get("/watch").await?;
        anyhow::ensure!(history.failed == 0 && history.changes.len() == 1, "{history:?}");
        release.install().await
    })
    .await
}
