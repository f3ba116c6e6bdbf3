//! Delay from a change upstream to the answers of twenty pods, where the operator polls rarely and a signed webhook
//! reports the change. The installation has the receiver of webhooks only during this case.

use std::time::Duration;

use futures::future::try_join_all;
use http::Method;
use jiff::Timestamp;
use remora_e2e::harness::{App, Case, PodPort, Release, alone_in_namespace, say, until};
use ring::hmac;
use serde_json::json;

const PODS: u32 = 20;
const FLIPS: usize = 4;
const SECRET: &str = "a secret of the storefront";

/// Sends a webhook as Flagsmith does, signed with this secret. Returns the status of the answer.
async fn post(case: &Case, port: &PodPort, secret: &str) -> anyhow::Result<u16> {
    let body = json!({"event_type": "FLAG_UPDATED", "data": {"changed_by": "somebody"}}).to_string();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body.as_bytes());
    let signature: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let headers = [("content-type", "application/json"), ("x-flagsmith-signature", signature.as_str())];
    let path = format!("/flagsmith/{}/storefront", case.namespace);
    Ok(port.send(Method::POST, &path, &headers, &body).await?.status)
}

/// Sets up the environment with an interval of a day, and waits until it accepts webhooks.
async fn environment(case: &Case) -> anyhow::Result<()> {
    case.storefront().await?;
    let metadata = json!({"name": "hook", "labels": {"remora.dev/environment-key": "true"}});
    let data = json!({"webhook-secret": SECRET});
    case.apply(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})).await?;
    let mut source = case.flagsmith();
    source["flagsmith"]["webhook"] = json!({"secretKeyRef": {"name": "hook"}});
    let spec = json!({"source": source, "refresh": {"interval": "24h"}});
    let metadata = json!({"name": "storefront"});
    let kind =
        json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": metadata, "spec": spec});
    case.apply(kind).await?;
    let receives = |environment: &kube::api::DynamicObject| environment.data["status"]["webhook"] == "receiving";
    until(&case.environments(), "storefront", "webhooks are accepted", Duration::from_secs(60), receives).await?;
    Ok(())
}

/// Returns the number of documents that the operator has read.
async fn reads(case: &Case) -> anyhow::Result<usize> {
    let requests = case.upstream.requests(&case.server_key()).await?;
    Ok(requests.iter().filter(|request| request.status == 200).count())
}

/// Changes a flag and sends a webhook, several times. Returns, for each change and pod, the seconds until the pod's answer
/// changed. Each webhook causes one read of the document, and nothing else does.
async fn measure(case: &Case) -> anyhow::Result<Vec<f64>> {
    environment(case).await?;
    let pods = case.deployment(&App::new("shop").inject("storefront"), PODS).await?;
    let leader = case.cluster.leader().await?.ok_or_else(|| anyhow::anyhow!("no controller leads"))?;
    let port = case.cluster.system_port(&leader, 8081);
    anyhow::ensure!(post(case, &port, "another secret, as long").await? == 401, "it was accepted");
    let mut seconds: Vec<f64> = Vec::new();
    let before = reads(case).await?;
    for number in 0..FLIPS {
        let value = format!("webhook {number}");
        let flipped = Timestamp::now();
        let change = json!({"enabled": true, "value": value});
        case.upstream.change(&case.server_key(), "checkout", &change).await?;
        let unread = reads(case).await?;
        anyhow::ensure!(unread == before + number, "{unread} reads after {before} and {number} webhooks");
        anyhow::ensure!(post(case, &port, SECRET).await? == 202, "it was refused");
        let seen = pods.iter().map(|pod| case.answer(pod, &value, |answer| answer["value"] == value.as_str()));
        seconds.extend(try_join_all(seen).await?.into_iter().map(|at| at.duration_since(flipped).as_secs_f64()));
    }
    anyhow::ensure!(reads(case).await? == before + FLIPS, "a webhook caused no read, or several");
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

#[tokio::test]
async fn webhook_delivers_change_to_twenty_pods() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let release = Release::of(&case.cluster);
        release.install_with(&json!({"receiver": {"enabled": true}})).await?;
        let measured = measure(&case).await;
        release.install().await?;
        let seconds = measured?;
        let at = |share: f64| seconds.get((seconds.len() as f64 * share) as usize).copied().unwrap_or(f64::INFINITY);
        let (median, p95, most) = (at(0.5), at(0.95), seconds.last().copied().unwrap_or(f64::INFINITY));
        say(&format!(
            "webhook: from a change upstream to a changed answer in {} cases: median {median:.2} s, p95 {p95:.2} s, at most {most:.2} s",
            seconds.len()
        ));
        Ok(())
    })
    .await
}
