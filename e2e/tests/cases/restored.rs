//! The operator restores what a user removes from a published object, under the policy that limits the controller.

use std::sync::LazyLock;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use remora_e2e::harness::{published, until, with_namespace};
use serde_json::{Value, json};

static CORE: LazyLock<String> = LazyLock::new(|| published("storefront", "core"));

fn is_whole(map: &ConfigMap) -> bool {
    let labels = map.metadata.labels.clone().unwrap_or_default();
    let owner = map.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "FeatureEnvironment");
    labels.get("app.kubernetes.io/managed-by").map(String::as_str) == Some("remora")
        && labels.contains_key("remora.dev/environment")
        && owner
        && map.binary_data.as_ref().is_some_and(|data| data.contains_key("core"))
}

#[tokio::test]
async fn altered_labels_owners_and_bytes_are_restored() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let api: Api<ConfigMap> = case.api();
        let labels = |value: Value| json!({"app.kubernetes.io/managed-by": value, "remora.dev/environment": value, "remora.dev/format": value});
        for (what, patch) in [
            ("the labels", json!({"metadata": {"labels": labels(Value::Null)}})),
            ("the owner", json!({"metadata": {"ownerReferences": []}})),
            ("labels and owner", json!({"metadata": {"labels": labels(Value::Null), "ownerReferences": []}})),
            ("the bytes", json!({"binaryData": {"core": "AAAA"}})),
            ("everything", json!({"metadata": {"labels": labels(Value::Null), "ownerReferences": []}, "binaryData": null})),
        ] {
            let before = api.get(&CORE).await?;
            anyhow::ensure!(is_whole(&before), "{before:?}");
            api.patch(&CORE, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            let is_back = |map: &ConfigMap| is_whole(map) && map.binary_data == before.binary_data;
            until(&api, &CORE, &format!("{what} came back"), Duration::from_secs(60), is_back).await?;
        }
        case.condition("storefront", "Published", "True", None).await
    })
    .await
}
