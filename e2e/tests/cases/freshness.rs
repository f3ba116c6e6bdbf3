//! Changes that do not move the document's `updated_at` reach a pod within a minute, at the default interval.

use std::time::{Duration, Instant};

use kube::api::DynamicObject;
use remora_e2e::harness::{App, say, storefront, until, with_namespace};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the storefront document with two variants of `banner`, one of which the identity `user-0` has.
fn document(client_key: &str) -> Value {
    let variants = |red: f64, blue: f64| {
        json!([
            {"id": 11, "percentage_allocation": red, "mv_fs_value_uuid": "00000000-0000-4000-8000-000000000011",
             "multivariate_feature_option": {"id": 11, "key": "red", "value": "red"}},
            {"id": 12, "percentage_allocation": blue, "mv_fs_value_uuid": "00000000-0000-4000-8000-000000000012",
             "multivariate_feature_option": {"id": 12, "key": "blue", "value": "blue"}},
        ])
    };
    let mut document = storefront(client_key, 3);
    document["feature_states"][1]["multivariate_feature_state_values"] = variants(0.0, 100.0);
    document["identity_overrides"][0]["identity_features"][0]["multivariate_feature_state_values"] =
        variants(100.0, 0.0);
    // The document is old, so that its second request is conditional.
    document["updated_at"] = json!("2026-11-01T08:00:00.000000+00:00");
    document
}

#[tokio::test]
async fn changes_that_do_not_move_updated_at_reach_pod_within_a_minute() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.upstream.serve(&case.server_key(), &document(&case.client_key())).await?;
        case.secret("flagsmith", &case.server_key()).await?;
        let spec = json!({"source": case.flagsmith()});
        let metadata = json!({"name": "storefront"});
        let environment = json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": metadata, "spec": spec});
        case.apply(environment).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        let pod = case.pod(&App::new("shop").inject("storefront").flag("checkout")).await?;
        for change in [
            json!({"kind": "variantValue", "feature": "banner", "option": 12, "value": "green"}),
            json!({"kind": "overrideVariant", "identifier": "user-0", "feature": "banner", "option": 12}),
            json!({"kind": "identityDeleted", "identifier": "user-0"}),
            json!({"kind": "hideDisabledFlags", "hide": true}),
            json!({"kind": "versionLive", "feature": "checkout", "change": {"enabled": true, "value": "live"}}),
        ] {
            let revision = |environment: &DynamicObject| environment.data.pointer("/status/revision").cloned();
            let before = revision(&case.environments().get("storefront").await?);
            let at = Instant::now();
            case.upstream.change_silently(&case.server_key(), &change).await?;
            until(&case.environments(), "storefront", "the change is published", MINUTE, |environment| {
                revision(environment) != before
            })
            .await?;
            let published = at.elapsed();
            anyhow::ensure!(published <= MINUTE, "{change}: after {published:?}");
            until(&case.environments(), "storefront", "the pod serves the change", MINUTE, |environment| {
                let pods = &environment.data["status"]["pods"];
                pods["revision"] == environment.data["status"]["revision"] && pods["current"] == 1
            })
            .await?;
            say(&format!("{change}: published after {published:.1?}, in the pod after {:.1?}", at.elapsed()));
            if change["kind"] == "versionLive" {
                case.answer(&pod, "the value of the new version", |answer| answer["value"] == "live").await?;
            }
        }
        Ok(())
    })
    .await
}
