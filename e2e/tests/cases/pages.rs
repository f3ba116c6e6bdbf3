//! A document in pages: the overrides of the last page are served like those of the first, by flag requests and in the
//! document for SDKs.

use http::Method;
use remora_e2e::harness::{App, storefront, with_namespace};
use serde_json::json;

#[tokio::test]
async fn pages_are_followed_to_last() -> anyhow::Result<()> {
    const OVERRIDES: usize = 23;
    with_namespace(async |case| {
        let key = case.server_key();
        case.upstream.serve(&key, &storefront(&case.client_key(), OVERRIDES)).await?;
        case.upstream.set(&key, &json!({"pageSize": 5})).await?;
        case.secret("flagsmith", &key).await?;
        let refresh = json!({"interval": "1s", "timeout": "5s"});
        let spec = json!({"source": case.flagsmith(), "refresh": refresh, "serve": {"environmentDocument": true}});
        case.apply(json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": {"name": "storefront"}, "spec": spec})).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        let pages =
            case.upstream.requests(&key).await?.iter().filter(|request| request.query.contains("page_id")).count();
        anyhow::ensure!(pages >= 4, "{pages} further pages were asked for");

        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        for n in [0, OVERRIDES - 1] {
            let body = json!({"context": {"targetingKey": format!("user-{n}")}});
            let reply = app.ask(Method::POST, "/ofrep/v1/evaluate/flags/banner", None, Some(&body)).await?;
            anyhow::ensure!(reply.json()?["reason"] == "DISABLED", "user-{n}: {reply:?}");
            let reply = app
                .ask(Method::GET, &format!("/api/v1/identities/?identifier=user-{n}"), Some(&case.client_key()), None)
                .await?;
            anyhow::ensure!(
                reply.json()?["flags"][1]["feature_state_value"] == format!("for {n}"),
                "user-{n}: {reply:?}"
            );
        }

        // SDKs in local evaluation also get all overrides, from a volume that a kubelet wrote.
        let document = "/api/v1/environment-document/";
        let refused = app.ask(Method::GET, document, Some(&case.client_key()), None).await?;
        anyhow::ensure!(refused.status == 403, "{refused:?}");
        let served = app.ask(Method::GET, document, Some(&key), None).await?.json()?;
        let identities = served["identity_overrides"].as_array().map(Vec::len);
        anyhow::ensure!(identities == Some(OVERRIDES), "{identities:?} identities in {served}");
        anyhow::ensure!(served["identity_overrides"][OVERRIDES - 1]["identifier"] == format!("user-{}", OVERRIDES - 1));
        Ok(())
    })
    .await
}
