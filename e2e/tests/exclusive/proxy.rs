//! The controller behind Debian's squid: it has no route to the server, and the proxy wants credentials.

mod squid;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams};
use remora_e2e::harness::{App, Case, Release, SYSTEM, alone_in_namespace, and_restoration, eventually, storefront};
use remora_e2e::upstream::{Options, Upstream};
use serde_json::{Value, json};

use super::given_certificate::CAP;
use super::node::Node;
use squid::{SERVER, Squid, USER};

/// Secret with the proxy's credentials.
const SECRET: &str = "proxy";
/// Server that the controller may contact, and the proxy refuses.
const REFUSED: &str = "https://refused.remora-e2e.test";
/// Server whose origin is allowed, at an address that the controller must not contact.
const METADATA: &str = "https://169.254.169.254";
/// Server that the controller may not contact.
const FOREIGN: &str = "https://foreign.remora-e2e.test";

/// Writes the proxy's credentials.
async fn give(case: &Case, password: &str) -> anyhow::Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": SYSTEM},
        "stringData": {"username": USER, "password": password},
    });
    case.cluster.apply(&secret).await?;
    case.cluster.poke(SYSTEM, "app.kubernetes.io/component=controller").await
}

/// Creates an environment whose source is this server.
async fn environment(case: &Case, name: &str, server: &str) -> anyhow::Result<()> {
    let source = json!({"flagsmith": {
        "apiUrl": format!("{server}/api/v1/"), "environmentKeySecretRef": {"name": "flagsmith"},
        "caBundleRef": {"configMapName": "corp-ca", "key": "ca.crt"},
    }});
    case.environment(name, source).await
}

/// Waits until an environment is not fetched for this reason, with these words in the message.
async fn refused(case: &Case, name: &str, reason: &str, words: &str) -> anyhow::Result<()> {
    eventually(&format!("{name} is not fetched: {reason}, {words}"), CAP, async || {
        let found = case.environments().get(name).await?;
        let conditions = found.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = |condition: &Value| condition["message"].as_str().is_some_and(|message| message.contains(words));
        let is =
            |condition: &&Value| condition["status"] == "False" && condition["reason"] == reason && said(condition);
        Ok(conditions.iter().find(is).map(drop))
    })
    .await
}

/// Refusals of the proxy and of the controller, each with the words of its condition.
async fn refusals(case: &Case, squid: &Squid, direct: &str) -> anyhow::Result<()> {
    let unavailable = "UpstreamUnavailable";
    for (name, server, reason, words) in [
        ("direct", direct, unavailable, "connection refused"),
        ("refused", REFUSED, unavailable, "its proxy refuses the connection; allow the server there"),
        ("metadata", METADATA, "AddressBlocked", ""),
        ("foreign", FOREIGN, "OriginNotAllowed", ""),
    ] {
        environment(case, name, server).await?;
        refused(case, name, reason, words).await?;
    }
    let seen = eventually("the proxy has logged its refusal", CAP, async || {
        Ok(Some(squid.log()?).filter(|log| log.contains("refused.remora-e2e.test")))
    })
    .await?;
    anyhow::ensure!(!seen.contains("169.254.169.254") && !seen.contains("foreign"), "the proxy was asked: {seen}");
    Ok(())
}

async fn fetched_through(case: &Case, squid: &Squid, upstream: &Upstream) -> anyhow::Result<()> {
    let direct = upstream.api_url_tls().trim_end_matches("/api/v1/").to_owned();
    let port = direct.rsplit(':').next().unwrap_or_default();
    let server = format!("https://{SERVER}:{port}");
    give(case, "wrong").await?;
    Release::of(&case.cluster)
        .install_with(&json!({
            "allowedOrigins": [server, direct, REFUSED, METADATA],
            "proxy": {"url": squid.url(), "secretName": SECRET, "origins": [{"origin": direct}]},
        }))
        .await?;
    environment(case, "storefront", &server).await?;
    let words = "its proxy wants other credentials; check the Secret that the chart's proxy values name";
    refused(case, "storefront", "UpstreamUnavailable", words).await?;
    anyhow::ensure!(upstream.store().log(None).is_empty(), "the server was reached with a wrong password");

    give(case, squid.password()).await?;
    case.condition("storefront", "Ready", "True", None).await?;
    case.pod(&App::new("shop").inject("storefront")).await?.text("/first").await?;
    refusals(case, squid, &direct).await
}

/// Installs the release without a proxy, and deletes the proxy's credentials, which the controller read until then.
async fn restore(case: &Case) -> anyhow::Result<()> {
    let installed = Release::of(&case.cluster).install().await;
    let secrets: Api<Secret> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
    let deleted = secrets.delete(SECRET, &DeleteParams::default()).await;
    and_restoration(installed, deleted.map(drop).context("the proxy's credentials stay"))
}

#[tokio::test]
async fn server_is_reached_through_squid_only() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        if Node::local("a proxy").await?.is_none() {
            return Ok(());
        }
        // The server listens on this machine's loopback address: the proxy on this machine reaches it, and pods do not.
        let upstream = Upstream::start(&Options { names: vec![SERVER.to_owned()], ..Options::local() }).await?;
        upstream.store().put(&case.server_key(), &storefront(&case.client_key(), 0).to_string())?;
        let squid = Squid::start().await?;
        case.secret("flagsmith", &case.server_key()).await?;
        let authority = json!({"ca.crt": upstream.ca_pem()});
        case.apply(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "corp-ca"}, "data": authority}),
        )
        .await?;
        let ended = fetched_through(&case, &squid, &upstream).await;
        and_restoration(ended, restore(&case).await)
    })
    .await
}
