//! Pods and requests override flags where the namespace allows it, and nowhere else.

use std::time::Duration;

use http::Method;
use remora_e2e::app::Reply;
use remora_e2e::harness::{App, Case, PodPort, eventually, with_namespace};
use serde_json::{Value, json};

use super::ask::{ask, expect};

const FLAGS: &str = "/api/v1/flags/";
const BULK: &str = "/ofrep/v1/evaluate/flags";
const BANNER: &str = "/ofrep/v1/evaluate/flags/banner";
const OVERRIDES: &str = r#"{"banner": {"value": "tested"}}"#;

/// Sets the label that allows overrides, or removes it.
async fn allow(case: &Case, allowed: bool) -> anyhow::Result<()> {
    let mut labels = json!({"remora.dev/e2e": "case"});
    if allowed {
        labels["remora.dev/allow-overrides"] = json!("true");
    }
    let metadata = json!({"name": case.namespace, "labels": labels});
    case.cluster.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).await?;
    Ok(())
}

/// Creates the pod as soon as the webhook has seen the namespace's label.
async fn admitted(case: &Case, app: &App) -> anyhow::Result<PodPort> {
    let create = async || case.create_pod(app).await.map(Some);
    eventually("the pod is admitted", Duration::from_secs(60), create).await?;
    case.ready(app.name()).await?;
    Ok(case.port(app.name(), 8080))
}

/// Creates pods with the annotation until the webhook refuses one, and checks what it says.
async fn is_refused(case: &Case, key: &str, value: &str) -> anyhow::Result<()> {
    let mut number = 0;
    let refusal = eventually("a pod is refused", Duration::from_secs(60), || {
        number += 1;
        let app = App::new(&format!("refused-{number}")).inject("storefront").annotate(key, value);
        async move { Ok(case.create_pod(&app).await.err()) }
    });
    let refusal = format!("{:#}", refusal.await?);
    let expected = format!("annotation {key} overrides flags, which namespace \"{}\" does not allow", case.namespace);
    anyhow::ensure!(
        refusal.contains(&expected) && refusal.contains("set label remora.dev/allow-overrides"),
        "{refusal}"
    );
    Ok(())
}

/// Returns the value of the flag `banner` in an answer with all flags of Flagsmith's dialect.
fn banner(reply: &Reply) -> anyhow::Result<Value> {
    let flags = reply.json()?;
    let all = flags.as_array().into_iter().flatten();
    let banner = all.into_iter().find(|flag| flag["feature"]["name"] == "banner");
    Ok(banner.map(|flag| flag["feature_state_value"].clone()).unwrap_or_default())
}

/// Checks both dialects: value, author and header of the override of `banner`, or their absence.
async fn answers(case: &Case, app: &PodPort, header: Option<&str>, by: Option<&str>) -> anyhow::Result<()> {
    let key = case.client_key();
    let mut headers = vec![("x-environment-key", key.as_str())];
    headers.extend(header.map(|header| ("x-remora-override", header)));
    let expected = if by.is_some() { "tested" } else { "Welcome" };
    let flags = app.ask_with(Method::GET, FLAGS, &headers, None).await?;
    anyhow::ensure!(banner(&flags)? == expected, "{flags:?}");
    let context = json!({"context": {"targetingKey": "alice"}});
    for path in [BANNER, BULK] {
        let reply = app.ask_with(Method::POST, path, &headers, Some(&context)).await?;
        let mut flag = reply.json()?;
        if let Some(all) = flag["flags"].as_array() {
            flag = all.iter().find(|flag| flag["key"] == "banner").cloned().unwrap_or_default();
        }
        anyhow::ensure!(flag["value"] == expected, "{reply:?}");
        anyhow::ensure!(flag["metadata"].get("overriddenBy").and_then(Value::as_str) == by, "{reply:?}");
        anyhow::ensure!(reply.header("x-remora-overrides") == by.map(|_| "banner"), "{reply:?}");
    }
    anyhow::ensure!(flags.header("x-remora-overrides") == by.map(|_| "banner"), "{flags:?}");
    Ok(())
}

#[tokio::test]
async fn pod_overrides_flags_where_its_namespace_allows_it() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let key = "remora.dev/overrides";
        is_refused(&case, key, OVERRIDES).await?;
        allow(&case, true).await?;
        let tested = admitted(&case, &App::new("tested").inject("storefront").annotate(key, OVERRIDES)).await?;
        let plain = case.pod(&App::new("plain").inject("storefront")).await?;
        answers(&case, &tested, None, Some("pod")).await?;
        answers(&case, &plain, None, None).await?;
        let pods = expect(&case, &["pods", "storefront"], 0, "2 current").await?;
        anyhow::ensure!(pods.contains("\ntested: overrides flags: banner\n"), "{pods}");
        anyhow::ensure!(!pods.contains("plain: "), "{pods}");

        // The label counts when a pod is created.
        allow(&case, false).await?;
        is_refused(&case, key, OVERRIDES).await?;
        answers(&case, &tested, None, Some("pod")).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn signed_header_overrides_flags_where_namespace_allows_it() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let key = "remora.dev/override-key";
        is_refused(&case, key, "tests").await?;
        allow(&case, true).await?;
        let tested = admitted(&case, &App::new("tested").inject("storefront").annotate(key, "tests")).await?;
        let plain = case.pod(&App::new("plain").inject("storefront")).await?;
        let pods = expect(&case, &["pods", "storefront"], 0, "2 current").await?;
        let line = "\ntested: accepts signed overrides in requests, with the key of Secret \"tests\"\n";
        anyhow::ensure!(pods.contains(line) && !pods.contains("plain: "), "{pods}");

        let sign = ["sign", "storefront", OVERRIDES, "--secret", "tests"];
        expect(&case, &sign, 2, "has no Secret \"tests\"").await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tests"},
            "stringData": {"key": "0123456789abcdef0123456789abcdef"},
        });
        case.apply(secret).await?;
        let (code, text) = ask(&case, &sign).await?;
        let header = text.strip_prefix("X-Remora-Override: ").unwrap_or_default().trim_end().to_owned();
        anyhow::ensure!(code == 0 && !header.is_empty(), "{text}");
        // Kubelet writes the key into the running pod.
        case.poke("app=tested").await?;
        let overridden = async || answers(&case, &tested, Some(&header), Some("request")).await.map(Some);
        eventually("the header overrides", Duration::from_secs(120), overridden).await?;
        answers(&case, &tested, None, None).await?;
        answers(&case, &plain, Some(&header), None).await?;

        let client_key = case.client_key();
        let forged = header.replace("tested", "forged");
        let headers = [("x-environment-key", client_key.as_str()), ("x-remora-override", forged.as_str())];
        let refused = tested.ask_with(Method::GET, FLAGS, &headers, None).await?;
        anyhow::ensure!(refused.status == 403 && refused.body.contains("is not signed for environment"), "{refused:?}");
        Ok(())
    })
    .await
}
