//! A condition's reason says why an environment cannot be published; correcting the cause is sufficient.

use remora_e2e::harness::{Case, SharedUpstream, storefront, with_namespace};
use serde_json::{Value, json};

/// Returns the storefront's source with another server.
fn at(url: &str) -> Value {
    json!({"flagsmith": {"apiUrl": url, "environmentKeySecretRef": {"name": "flagsmith"}}})
}

/// Serves a document upstream that no environment uses yet.
async fn serve(case: &Case) -> anyhow::Result<()> {
    case.upstream.serve(&case.server_key(), &storefront(&case.client_key(), 0)).await
}

async fn is_refused(case: &Case, kind: &str, reason: &str) -> anyhow::Result<()> {
    case.condition("storefront", kind, "False", Some(reason)).await?;
    case.condition("storefront", "Ready", "False", None).await
}

#[tokio::test]
async fn wrong_key_is_reported() -> anyhow::Result<()> {
    with_namespace(async |case| {
        serve(&case).await?;
        case.secret("flagsmith", "ser.nobody").await?;
        case.environment("storefront", case.flagsmith()).await?;
        is_refused(&case, "Fetched", "AuthenticationFailed").await?;
        case.secret("flagsmith", &case.server_key()).await?;
        case.condition("storefront", "Ready", "True", None).await
    })
    .await
}

/// The controller keeps the specs of all environments in memory.
#[tokio::test]
async fn globs_beyond_their_sum_are_refused_by_schema() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let environment = |globs: usize| {
            let include = vec!["x".repeat(128); globs];
            json!({
                "apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": {"name": "globs"},
                "spec": {"source": case.flagsmith(), "prune": {"features": {"include": include}}},
            })
        };
        case.apply(environment(32)).await?;
        let refused = case.apply(environment(33)).await;
        let message = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
        anyhow::ensure!(message.contains("more than 4,096 characters together"), "{message}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn missing_secret_is_reported() -> anyhow::Result<()> {
    with_namespace(async |case| {
        serve(&case).await?;
        case.environment("storefront", case.flagsmith()).await?;
        is_refused(&case, "Accepted", "SecretNotFound").await?;
        case.secret("flagsmith", &case.server_key()).await?;
        case.condition("storefront", "Ready", "True", None).await
    })
    .await
}

/// A Secret without the owner's consent label is not read, and its content appears nowhere.
#[tokio::test]
async fn secret_without_consent_is_refused() -> anyhow::Result<()> {
    with_namespace(async |case| {
        serve(&case).await?;
        let secret = |labels: Value| {
            let data = json!({"environment-key": case.server_key()});
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "flagsmith", "labels": labels}, "stringData": data})
        };
        case.apply(secret(json!({}))).await?;
        case.environment("storefront", case.flagsmith()).await?;
        is_refused(&case, "Accepted", "SecretNotConsented").await?;
        anyhow::ensure!(case.upstream.requests(&case.server_key()).await?.is_empty(), "the key was used");
        let told = serde_json::to_string(&case.environments().get("storefront").await?)?;
        anyhow::ensure!(!told.contains(&case.server_key()), "the key is in the object: {told}");
        case.apply(secret(json!({"remora.dev/environment-key": "true"}))).await?;
        case.condition("storefront", "Ready", "True", None).await
    })
    .await
}

#[tokio::test]
async fn unreachable_upstream_is_reported() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.secret("flagsmith", &case.server_key()).await?;
        case.environment("storefront", at(&SharedUpstream::api_url_nobody())).await?;
        is_refused(&case, "Fetched", "UpstreamUnavailable").await
    })
    .await
}

#[tokio::test]
async fn origin_without_permission_is_refused() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.secret("flagsmith", &case.server_key()).await?;
        case.environment("storefront", at("http://flags.example.com/api/v1/")).await?;
        is_refused(&case, "Accepted", "OriginNotAllowed").await
    })
    .await
}

#[tokio::test]
async fn broken_document_is_reported() -> anyhow::Result<()> {
    with_namespace(async |case| {
        serve(&case).await?;
        case.upstream.fail(&case.server_key(), &json!([{"fault": {"kind": "brokenJson"}}])).await?;
        case.secret("flagsmith", &case.server_key()).await?;
        case.environment("storefront", case.flagsmith()).await?;
        is_refused(&case, "Fetched", "ParseError").await?;
        case.upstream.fail(&case.server_key(), &json!([])).await?;
        case.condition("storefront", "Ready", "True", None).await
    })
    .await
}

/// The API server refuses what the schema can check, with a message that says what to write instead.
#[tokio::test]
async fn impossible_spec_is_refused() -> anyhow::Result<()> {
    with_namespace(async |case| {
        for (source, words) in [
            (json!({}), "exactly one of source.flagsmith and source.document"),
            (at("ftp://flags.example.com/"), "write the API's base URL"),
            (at("http://user@flags.example.com/"), "without user"),
        ] {
            let refusal = case.environment("storefront", source.clone()).await.err();
            let refusal = refusal.ok_or_else(|| anyhow::anyhow!("accepted: {source}"))?;
            anyhow::ensure!(format!("{refusal:#}").contains(words), "{source}: {refusal:#}");
        }
        Ok(())
    })
    .await
}
