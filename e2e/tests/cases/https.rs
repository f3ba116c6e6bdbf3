//! An upstream with a certificate of a company's own CA.

use remora_e2e::harness::{App, SharedUpstream, storefront, with_namespace};
use serde_json::json;

#[tokio::test]
async fn source_is_trusted_with_its_ca_bundle_only() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.upstream.serve(&case.server_key(), &storefront(&case.client_key(), 0)).await?;
        case.secret("flagsmith", &case.server_key()).await?;
        let mut source = json!({"flagsmith": {
            "apiUrl": SharedUpstream::api_url_tls(), "environmentKeySecretRef": {"name": "flagsmith"},
        }});
        case.environment("storefront", source.clone()).await?;
        case.condition("storefront", "Fetched", "False", Some("TLSFailure")).await?;

        let authority = case.upstream.authority().await?;
        case.apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "corp-ca"}, "data": {"ca.crt": authority}})).await?;
        source["flagsmith"]["caBundleRef"] = json!({"configMapName": "corp-ca", "key": "ca.crt"});
        case.environment("storefront", source).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        let requests = case.upstream.requests(&case.server_key()).await?;
        anyhow::ensure!(!requests.is_empty() && requests.iter().all(|request| request.tls), "{requests:?}");
        case.pod(&App::new("shop").inject("storefront")).await?;
        Ok(())
    })
    .await
}
