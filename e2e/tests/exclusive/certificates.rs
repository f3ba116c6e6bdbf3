//! The webhook's certificates change while pods are created, and no creation fails because of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use remora_e2e::harness::{Case, SYSTEM, alone_in_namespace, eventually, say};
use serde_json::json;

/// Secret with the CA.
pub(super) const AUTHORITY: &str = "remora-webhook-authority";
const CAP: Duration = Duration::from_secs(60);
/// Time for a whole rotation: two minutes until every party knows the new CA, with a margin.
const ROTATION: Duration = Duration::from_secs(240);
/// Number of concurrent creations.
const AT_ONCE: usize = 8;

/// Returns the CA bundle that the API server trusts.
pub(super) async fn bundle(case: &Case) -> anyhow::Result<String> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(case.cluster.client.clone());
    let registered = api.get("remora").await?.webhooks.unwrap_or_default();
    let bundle = registered.into_iter().next().and_then(|webhook| webhook.client_config.ca_bundle);
    Ok(String::from_utf8(bundle.unwrap_or_default().0)?)
}

/// Returns the CA in the Secret when it differs from `before` and the API server trusts both.
async fn healed(case: &Case, secrets: &Api<Secret>, before: &str) -> anyhow::Result<String> {
    eventually("there is another authority, and the API server trusts both", CAP, async || {
        let secret = secrets.get_opt(AUTHORITY).await?;
        let certificate = secret.and_then(|secret| secret.data?.remove("ca.crt")).unwrap_or_default();
        let now = String::from_utf8(certificate.0)?;
        let trusted = bundle(case).await?;
        let is_new = now.starts_with("-----BEGIN") && now != before;
        Ok((is_new && trusted.contains(&now) && trusted.contains(before)).then_some(now))
    })
    .await
}

/// Returns the metrics of every webhook replica.
async fn metrics(case: &Case) -> anyhow::Result<Vec<String>> {
    let mut texts = Vec::new();
    for pod in case.cluster.pods(SYSTEM, "app.kubernetes.io/component=webhook").await? {
        texts.push(case.cluster.system_port(&pod, 8080).text("/metrics").await?);
    }
    anyhow::ensure!(!texts.is_empty(), "no webhook");
    Ok(texts)
}

/// Returns the expiry time of each replica's certificate.
pub(super) async fn expiries(case: &Case) -> anyhow::Result<Vec<String>> {
    let key = "remora_webhook_certificate_expiry_timestamp_seconds ";
    let texts = metrics(case).await?;
    let value = |text: &String| text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    texts.iter().map(|text| value(text).context("no expiry")).collect()
}

/// Returns the latency histogram of all answers: upper bounds in seconds, with cumulative counts.
async fn times(case: &Case) -> anyhow::Result<Vec<(f64, u64)>> {
    let mut sums: Vec<(f64, u64)> = Vec::new();
    for text in metrics(case).await? {
        let buckets = text.lines().filter_map(|line| line.strip_prefix("remora_webhook_duration_seconds_bucket{le=\""));
        for (place, bucket) in buckets.enumerate() {
            let (bound, count) = bucket.split_once("\"} ").context("a bucket")?;
            let bound = bound.parse().unwrap_or(f64::INFINITY);
            match sums.get_mut(place) {
                Some((_, sum)) => *sum += count.parse::<u64>()?,
                None => sums.push((bound, count.parse()?)),
            }
        }
    }
    Ok(sums)
}

/// Returns the histogram bound that this percentage of answers is below.
fn quantile(before: &[(f64, u64)], after: &[(f64, u64)], percent: u64) -> f64 {
    let grown = |place: usize| after[place].1 - before[place].1;
    let all = grown(after.len() - 1);
    let place = (0..after.len()).find(|place| grown(*place) * 100 >= all * percent);
    place.map_or(f64::INFINITY, |place| after[place].0)
}

/// Creates pods until `done`; returns the error of the first refusal.
async fn ask(api: &Api<Pod>, pod: &Pod, count: &AtomicU64, done: &AtomicBool) -> anyhow::Result<()> {
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    while !done.load(Ordering::Relaxed) {
        let created = api.create(&parameters, pod).await.context("a pod was refused")?;
        let init = created.spec.and_then(|spec| spec.init_containers).unwrap_or_default();
        anyhow::ensure!(init.iter().any(|container| container.name == "remora"), "a pod has no sidecar");
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[tokio::test]
async fn certificates_rotated_under_load_refuse_no_pod() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let wanted: u64 = std::env::var("REMORA_E2E_CREATIONS").map_or(Ok(2_000), |text| text.parse())?;
        let secrets: Api<Secret> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
        let pod = json!({
            "metadata": {"generateName": "asks-", "annotations": {"remora.dev/inject": "storefront"}},
            "spec": {"containers": [{"name": "app", "image": case.cluster.e2e_image()}]},
        });
        let (api, pod): (Api<Pod>, Pod) = (case.api(), serde_json::from_value(pod)?);
        let (count, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let (old_certificates, before, began) = (expiries(&case).await?, times(&case).await?, Instant::now());

        let trouble = async {
            let trouble = async {
                let first = secrets.get(AUTHORITY).await?.data.and_then(|mut data| data.remove("ca.crt"));
                let first = String::from_utf8(first.context("no authority")?.0)?;
                secrets.delete(AUTHORITY, &DeleteParams::default()).await?;
                let second = healed(&case, &secrets, &first).await?;
                let garbage = Secret {
                    data: Some([("ca.key".to_owned(), ByteString(b"no key".to_vec()))].into()),
                    ..Secret::default()
                };
                secrets.patch(AUTHORITY, &PatchParams::default(), &Patch::Merge(&garbage)).await?;
                healed(&case, &secrets, &second).await?;
                if wanted >= 10_000 {
                    eventually("every replica has a certificate of the new authority", ROTATION, async || {
                        let now = expiries(&case).await?;
                        Ok(now.iter().all(|expiry| !old_certificates.contains(expiry)).then_some(()))
                    })
                    .await?;
                }
                let cap = Duration::from_secs(600);
                let enough = async || Ok((count.load(Ordering::Relaxed) >= wanted).then_some(()));
                eventually(&format!("{wanted} pods were asked for"), cap, enough).await
            };
            let ended = trouble.await;
            done.store(true, Ordering::Relaxed);
            ended
        };
        let asking = futures::future::try_join_all((0..AT_ONCE).map(|_| ask(&api, &pod, &count, &done)));
        futures::future::try_join(trouble, asking).await?;

        let after = times(&case).await?;
        say(&format!(
            "{} dry runs in {:.0} s while certificates changed, none refused; the webhook's own time: median at most \
             {} ms, of 99 in 100 at most {} ms",
            count.load(Ordering::Relaxed),
            began.elapsed().as_secs_f64(),
            quantile(&before, &after, 50) * 1000.0,
            quantile(&before, &after, 99) * 1000.0,
        ));
        Ok(())
    })
    .await
}
