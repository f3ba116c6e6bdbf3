//! One sidecar for two environments: the key selects the environment. With a single environment, no key is needed.

use http::Method;
use remora_e2e::harness::{App, SharedUpstream, storefront, with_namespace};
use serde_json::json;

#[tokio::test]
async fn keys_select_between_two_environments() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let (server_key, client_key) = (format!("{}-2", case.server_key()), format!("{}-2", case.client_key()));
        let mut document = storefront(&client_key, 0);
        document["feature_states"][1]["feature_state_value"] = json!("Welcome back");
        case.upstream.serve(&server_key, &document).await?;
        case.secret("other", &server_key).await?;
        let key = json!({"name": "other"});
        let source = json!({"flagsmith": {"apiUrl": SharedUpstream::api_url(), "environmentKeySecretRef": key}});
        case.environment("backoffice", source).await?;
        case.condition("backoffice", "Ready", "True", None).await?;

        // Without a key, OFREP cannot select one of two environments, so the application sends the key with its first
        // request.
        let app = case.pod(&App::new("shop").inject("storefront,backoffice").asking_with_key()).await?;
        for (key, banner) in [(case.client_key(), "Welcome"), (client_key, "Welcome back")] {
            let reply = app.ask(Method::GET, "/api/v1/flags/", Some(&key), None).await?;
            anyhow::ensure!(reply.json()?[1]["feature_state_value"] == banner, "{reply:?}");
        }
        let unknown = app.ask(Method::GET, "/api/v1/flags/", Some("nobody"), None).await?;
        anyhow::ensure!(unknown.status == 401, "{unknown:?}");
        Ok(())
    })
    .await
}
