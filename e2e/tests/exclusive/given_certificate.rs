//! The webhook with a certificate that an external party creates and renews.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, PostParams};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use remora_e2e::harness::{App, Case, Release, SYSTEM, alone_in_namespace, eventually};
use serde_json::json;

use super::certificates::expiries;

const SECRET: &str = "corporate";
/// A kubelet updates the file within 95 s, on a busy machine at its second try, and the webhook reads it every few
/// seconds.
pub(super) const CAP: Duration = Duration::from_secs(300);

/// A CA that is independent of Remora.
struct Corporation(CertifiedIssuer<'static, KeyPair>);

impl Corporation {
    fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "A corporation");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Signs a certificate for the webhook's Service that is valid until this year, with this key or a new one.
    fn sign(&self, year: i32) -> anyhow::Result<(String, KeyPair)> {
        let mut params = CertificateParams::new([format!("remora-webhook.{SYSTEM}.svc")])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.0)?.pem(), key))
    }
}

async fn give(case: &Case, certificate: &str, key: &KeyPair) -> anyhow::Result<()> {
    let data = json!({"tls.crt": certificate, "tls.key": key.serialize_pem()});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": SYSTEM},
        "type": "kubernetes.io/tls", "stringData": data,
    });
    case.cluster.apply(&secret).await?;
    case.cluster.poke(SYSTEM, "app.kubernetes.io/component=webhook").await
}

/// Checks that a pod gets its sidecar, whichever replica answers.
pub(super) async fn injects(case: &Case) -> anyhow::Result<()> {
    let pod = json!({
        "metadata": {"generateName": "asks-", "annotations": {"remora.dev/inject": "storefront"}},
        "spec": {"containers": [{"name": "app", "image": case.cluster.e2e_image()}]},
    });
    let (api, pod): (Api<Pod>, Pod) = (case.api(), serde_json::from_value(pod)?);
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    for _ in 0..8 {
        let created = api.create(&parameters, &pod).await?;
        let init = created.spec.and_then(|spec| spec.init_containers).unwrap_or_default();
        anyhow::ensure!(init.iter().any(|container| container.name == "remora"), "no sidecar");
    }
    Ok(())
}

/// Waits until all replicas report the same expiry time, different from `before`, and returns it.
async fn renewed(case: &Case, before: Option<&str>) -> anyhow::Result<String> {
    eventually("every replica has the certificate that was given", CAP, async || {
        let mut all = expiries(case).await?;
        all.dedup();
        Ok(all.pop().filter(|one| all.is_empty() && Some(one.as_str()) != before))
    })
    .await
}

#[tokio::test]
async fn certificate_of_another_issuer_is_served_and_renewed() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let corporation = Corporation::new()?;
        let (certificate, key) = corporation.sign(2098)?;
        give(&case, &certificate, &key).await?;
        let release = Release::of(&case.cluster);
        let certificates = json!({"source": "Secret", "secretName": SECRET, "caBundle": corporation.0.pem()});
        release.install_with(&json!({"webhook": {"certificates": certificates}})).await?;
        let first = renewed(&case, None).await?;
        injects(&case).await?;
        case.pod(&App::new("shop").inject("storefront")).await?.text("/first").await?;

        // A key that does not match its certificate changes nothing.
        let (_, other) = corporation.sign(2098)?;
        give(&case, &certificate, &other).await?;
        injects(&case).await?;

        let (certificate, key) = corporation.sign(2099)?;
        give(&case, &certificate, &key).await?;
        let second = renewed(&case, Some(&first)).await?;
        anyhow::ensure!(second.parse::<f64>()? > first.parse::<f64>()?, "{first}, then {second}");
        injects(&case).await?;

        release.install().await?;
        let secrets: Api<Secret> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
        secrets.delete(SECRET, &DeleteParams::default()).await?;
        // The API server trusts the webhook's own CA again.
        eventually("pods get their sidecar again", CAP, async || Ok(injects(&case).await.ok())).await
    })
    .await
}
