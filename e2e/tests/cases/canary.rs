//! No output repeats an upstream's response or a Secret's content: both contain a canary, and the test searches every
//! output for it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, ListParams};
use remora_e2e::harness::{Case, eventually, storefront, with_namespace};
use serde_json::{Value, json};

const CANARY: &str = "canary-5e0b";

/// Returns faulty answers with the canary in body and header.
fn faults() -> Vec<Value> {
    let key_like = format!("ser.{CANARY}");
    vec![
        json!({"kind": "status", "code": 500, "body": CANARY, "retryAfter": CANARY}),
        json!({"kind": "status", "code": 418, "body": format!("<html>{CANARY}</html>")}),
        json!({"kind": "status", "code": 404, "body": json!({"detail": CANARY}).to_string()}),
        json!({"kind": "redirect", "to": format!("http://{CANARY}.example.org/{CANARY}")}),
        json!({"kind": "body", "text": CANARY}),
        json!({"kind": "body", "text": json!({"id": CANARY, "api_key": {"x": CANARY}}).to_string()}),
        json!({"kind": "body", "text": json!({"id": 1, "api_key": key_like, "project": CANARY}).to_string()}),
        json!({"kind": "body", "text": json!({"id": 1, "api_key": "c", "feature_states": [{"enabled": CANARY}]}).to_string()}),
        json!({"kind": "status", "code": 403, "body": CANARY}),
    ]
}

/// Makes the operator receive a fault once.
async fn meet(case: &Case, key: &str, fault: &Value) -> anyhow::Result<()> {
    let before = case.upstream.requests(key).await?.len();
    case.upstream.fail(key, &json!([{"fault": fault}])).await?;
    eventually(&format!("the operator meets {fault}"), Duration::from_secs(60), async || {
        Ok(case.upstream.requests(key).await?.iter().skip(before).any(|seen| seen.faulty).then_some(()))
    })
    .await
}

/// Waits until an Event has this reason. The controller records Events after it has written the status.
async fn recorded(case: &Case, reason: &str) -> anyhow::Result<()> {
    let api: Api<Event> = case.api();
    eventually(&format!("an Event has the reason {reason}"), Duration::from_secs(60), async || {
        let events = api.list(&ListParams::default()).await?.items;
        Ok(events.iter().any(|event| event.reason.as_deref() == Some(reason)).then_some(()))
    })
    .await
}

/// Returns everything that users other than the Secret's owner can read, by name.
async fn everything(case: &Case) -> anyhow::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    let environment = case.environments().get("storefront").await?;
    all.push(("the FeatureEnvironment".to_owned(), serde_json::to_string(&environment)?));
    let events: Api<Event> = case.api();
    all.push(("the Events".to_owned(), serde_json::to_string(&events.list(&ListParams::default()).await?.items)?));
    let maps: Api<ConfigMap> = case.api();
    for map in maps.list(&ListParams::default()).await? {
        let name = map.metadata.name.clone().unwrap_or_default();
        for (file, bytes) in map.binary_data.iter().flatten() {
            all.push((format!("{name} {file}"), String::from_utf8_lossy(&bytes.0).into_owned()));
        }
        all.push((name, serde_json::to_string(&map.metadata)?));
    }
    for part in ["controller", "webhook"] {
        for pod in case.cluster.operator(part).await? {
            all.push((format!("the metrics of {}", pod.pod()), pod.text("/metrics").await?));
            all.push((format!("the log of {}", pod.pod()), case.cluster.operator_log(pod.pod()).await?));
        }
    }
    Ok(all)
}

#[tokio::test]
async fn secret_canary_is_found_nowhere() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let key = format!("ser.{CANARY}-{}", case.namespace);
        case.upstream.serve(&key, &storefront(&case.client_key(), 3)).await?;
        case.secret("flagsmith", &key).await?;
        case.environment("storefront", case.flagsmith()).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        for fault in faults() {
            // Each fault starts from a good state. Otherwise the operator's back-off would grow with each fault.
            case.upstream.fail(&key, &json!([])).await?;
            case.condition("storefront", "Fetched", "True", None).await?;
            meet(&case, &key, &fault).await?;
        }
        case.condition("storefront", "Fetched", "False", Some("AuthenticationFailed")).await?;
        recorded(&case, "AuthenticationFailed").await?;

        let all = everything(&case).await?;
        for (what, text) in &all {
            anyhow::ensure!(!text.contains(CANARY), "{CANARY} is in {what}: {text}");
        }
        // Each searched place contains a trace of the fault, so the search covers the right places.
        for (what, sign) in [
            ("the FeatureEnvironment", "AuthenticationFailed"),
            ("the Events", "AuthenticationFailed"),
            ("the metrics of remora-controller", case.namespace.as_str()),
            ("the log of remora-controller", case.namespace.as_str()),
        ] {
            let found = all.iter().any(|(name, text)| name.starts_with(what) && text.contains(sign));
            anyhow::ensure!(found, "{sign} is not in {what}");
        }
        Ok(())
    })
    .await
}
