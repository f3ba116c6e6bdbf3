//! A namespace is deleted while its flags are published: the operator does not write against the deletion.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use remora_e2e::harness::{Case, eventually, until, with_namespace};
use remora_operator::api_call::CallError;
use serde_json::{Value, json};

const CAP: Duration = Duration::from_secs(180);
/// Maximum number of lines in the operator's log about one namespace, from its creation to its deletion.
const LINES: usize = 12;

/// Sets or clears a finalizer, which keeps an object while its namespace is deleted.
async fn hold(case: &Case, holds: bool) -> anyhow::Result<()> {
    let finalizers = if holds { json!(["e2e.remora.dev/hold"]) } else { Value::Null };
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    case.environments().patch_metadata("storefront", &PatchParams::default(), &patch).await?;
    Ok(())
}

#[tokio::test]
async fn deleted_namespace_causes_few_log_lines() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let leader = eventually("a replica holds the lease", CAP, async || case.cluster.leader().await).await?;
        hold(&case, true).await?;
        let namespaces: Api<Namespace> = Api::all(case.cluster.client.clone());
        let going = async {
            namespaces.delete(&case.namespace, &DeleteParams::background()).await?;
            let config_maps: Api<ConfigMap> = case.api();
            eventually("what was published is gone", CAP, async || {
                let ours = ListParams::default().labels("remora.dev/environment=storefront");
                Ok(config_maps.list_metadata(&ours).await?.items.is_empty().then_some(()))
            })
            .await?;
            until(&case.environments(), "storefront", "the FeatureEnvironment is held", CAP, |held| {
                held.metadata.deletion_timestamp.is_some()
            })
            .await?;
            // The operator recognizes the API server's own message.
            let map = json!({"metadata": {"name": "late"}, "data": {}});
            let refused = config_maps.create(&PostParams::default(), &serde_json::from_value(map)?).await;
            let Err(refused) = refused else { anyhow::bail!("created in a namespace that is going") };
            let refused = CallError::from(refused);
            anyhow::ensure!(refused.is_terminating(), "{refused:?}");
            anyhow::Ok(())
        };
        let going = going.await;
        hold(&case, false).await?;
        going?;
        eventually("the namespace is gone", CAP, async || {
            Ok(namespaces.get_opt(&case.namespace).await?.is_none().then_some(()))
        })
        .await?;
        let log = case.cluster.operator_log(&leader).await.context("the leader has changed")?;
        let about: Vec<&str> = log.lines().filter(|line| line.contains(&case.namespace)).collect();
        anyhow::ensure!(about.len() <= LINES, "{} lines about one namespace:\n{}", about.len(), about.join("\n"));
        anyhow::ensure!(!about.iter().any(|line| line.contains("ERROR")), "{}", about.join("\n"));
        Ok(())
    })
    .await
}
