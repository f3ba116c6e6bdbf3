//! A document in the cluster needs no server.

use remora_e2e::harness::{App, Case, storefront, with_namespace};
use serde_json::{Value, json};

/// Serves the document from an object and follows changes of the object.
async fn follow(case: Case, source: Value, object: impl Fn(&Value) -> Value) -> anyhow::Result<()> {
    let mut document = storefront(&case.client_key(), 1);
    case.apply(object(&document)).await?;
    case.environment("storefront", source).await?;
    case.condition("storefront", "Ready", "True", None).await?;
    let app = case.pod(&App::new("shop").inject("storefront").flag("banner")).await?;
    case.answer(&app, "banner is Welcome", |answer| answer["value"] == "Welcome").await?;

    document["feature_states"][1]["feature_state_value"] = json!("Sale");
    let before = case.core("storefront").await?.binary_data;
    case.apply(object(&document)).await?;
    case.core_until("storefront", "it carries another document", |core| core.binary_data != before).await?;
    case.poke("app=shop").await?;
    case.answer(&app, "banner is Sale", |answer| answer["value"] == "Sale").await?;
    Ok(())
}

#[tokio::test]
async fn document_from_config_map_is_served() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let source = json!({"document": {"configMapKeyRef": {"name": "flags", "key": "environment.json"}}});
        let object = |document: &Value| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flags"}, "data": {"environment.json": document.to_string()}})
        };
        follow(case, source, object).await
    })
    .await
}

#[tokio::test]
async fn document_from_secret_is_served() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let source = json!({"document": {"secretKeyRef": {"name": "flags", "key": "environment.json"}}});
        let metadata = json!({"name": "flags", "labels": {"remora.dev/environment-key": "true"}});
        let object = |document: &Value| {
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"environment.json": document.to_string()}})
        };
        follow(case, source, object).await
    })
    .await
}
