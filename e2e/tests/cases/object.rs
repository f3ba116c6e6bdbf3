//! A user deletes an object that the operator published.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams};
use remora_e2e::app::History;
use remora_e2e::harness::{App, published, with_namespace};
use serde_json::json;

#[tokio::test]
async fn deleted_config_map_is_written_again_while_pods_are_served() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        let before = case.core("storefront").await?;
        let api: Api<ConfigMap> = case.api();
        api.delete(&published("storefront", "core"), &DeleteParams::default()).await?;
        // The kubelet checks the volume while the object is missing, if it is fast enough, and again later.
        case.poke("app=shop").await?;
        let uid = before.metadata.uid;
        let again = case.core_until("storefront", "another one is there", |core| core.metadata.uid != uid).await?;
        anyhow::ensure!(again.binary_data == before.binary_data, "it came back with other bytes");
        case.poke("app=shop").await?;

        // A change after the restoration also arrives, and no request failed until then.
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "express"})).await?;
        case.poke("app=shop").await?;
        case.answer(&app, "checkout is express", |answer| answer["value"] == "express").await?;
        let history: History = app.get("/watch").await?;
        anyhow::ensure!(history.failed == 0 && history.changes.len() == 2, "{history:?}");
        Ok(())
    })
    .await
}
