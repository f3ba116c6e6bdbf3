//! cert-manager's own controllers issue the webhook's certificate, write its CA into the registration, and renew the
//! certificate while pods are created.

mod controllers;
mod served;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use remora_e2e::harness::{App, Case, Release, SYSTEM, alone_in_namespace, and_restoration, eventually, say};
use serde_json::{Value, json};

use super::given_certificate::{CAP, injects};
use super::handover::admissions;
use super::node::Node;
use controllers::{Controllers, Program, api, has_condition};
use served::served_by_all;

/// Issuer that the chart names, and the Certificate and Secret of its CA.
const ISSUER: &str = "corporate";
/// Issuer of the CA's own certificate.
const BOOTSTRAP: &str = "corporate-bootstrap";
/// Certificate of the chart, and its Secret.
const CERTIFICATE: &str = "remora-webhook";
const SECRET: &str = "remora-webhook-certificate";
/// Limit for a wait of 60 to 95 s: a kubelet updates the volumes of pods so often, and the webhook reads the file every few
/// seconds. A busy machine takes longer.
const RENEWAL: Duration = Duration::from_secs(300);

/// Creates an issuer that signs with a CA, as cert-manager documents it, and waits until it can.
async fn issuer(case: &Case) -> anyhow::Result<()> {
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": {"name": name, "namespace": SYSTEM},
            "spec": spec,
        })
    };
    let authority = json!({
        "isCA": true, "commonName": "A corporation", "secretName": ISSUER,
        "privateKey": {"algorithm": "ECDSA", "size": 256}, "issuerRef": {"name": BOOTSTRAP, "kind": "Issuer"},
    });
    for object in [
        object("Issuer", BOOTSTRAP, json!({"selfSigned": {}})),
        object("Certificate", ISSUER, authority),
        object("Issuer", ISSUER, json!({"ca": {"secretName": ISSUER}})),
    ] {
        case.cluster.apply(&object).await?;
    }
    let issuers = api(case, "Issuer");
    eventually("the issuer has its CA", CAP, async || {
        Ok(has_condition(&issuers.get(ISSUER).await?, "Ready").then_some(()))
    })
    .await
}

/// Renews the chart's certificate as `cmctl renew` does. Returns the time until every replica serves the new one.
async fn renewed(case: &Case, before: &[u8]) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let certificates: Api<DynamicObject> = api(case, "Certificate");
    let issuing = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "status": {"conditions": [{"type": "Issuing", "status": "True", "reason": "ManuallyTriggered"}]},
    });
    certificates.patch_status(CERTIFICATE, &PatchParams::apply("remora-e2e").force(), &Patch::Apply(&issuing)).await?;
    eventually("every replica serves the renewed certificate", RENEWAL, async || {
        Ok(served_by_all(case, SECRET).await?.filter(|leaf| leaf != before))
    })
    .await?;
    Ok(began.elapsed())
}

async fn issued_and_renewed(case: &Case) -> anyhow::Result<()> {
    issuer(case).await?;
    let certificates = json!({"source": "CertManager", "issuerRef": {"name": ISSUER, "kind": "Issuer"}});
    Release::of(&case.cluster).install_with(&json!({"webhook": {"certificates": certificates}})).await?;
    let first = eventually("every replica serves the certificate that was issued", CAP, async || {
        served_by_all(case, SECRET).await
    })
    .await?;
    // The API server's own watch of the registration may be a moment later.
    eventually("pods get their sidecar", CAP, async || Ok(injects(case).await.ok())).await?;
    case.pod(&App::new("shop").inject("storefront")).await?.text("/first").await?;

    let (count, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let renewing = async {
        let took = renewed(case, &first).await;
        ended.store(true, Ordering::Relaxed);
        took
    };
    let (took, ()) = tokio::try_join!(renewing, admissions(case, &count, &ended))?;
    say(&format!(
        "every replica served the certificate that cert-manager renewed after {:.0} s; the webhook answered {} times \
         meanwhile",
        took.as_secs_f64(),
        count.into_inner(),
    ));
    injects(case).await
}

/// Installs the usual release again, and removes the Secrets of cert-manager, which stay by default.
async fn restore(case: &Case) -> anyhow::Result<()> {
    Release::of(&case.cluster).install().await?;
    let secrets: Api<Secret> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
    for name in [SECRET, ISSUER] {
        if secrets.get_metadata_opt(name).await?.is_some() {
            secrets.delete(name, &DeleteParams::default()).await?;
        }
    }
    // The API server trusts the webhook's own CA again.
    eventually("pods get their sidecar again", CAP, async || Ok(injects(case).await.ok())).await
}

#[tokio::test]
async fn certificate_of_cert_manager_is_renewed_without_refused_pod() -> anyhow::Result<()> {
    if Node::local("cert-manager").await?.is_none() {
        return Ok(());
    }
    // Other cases run during the build.
    let program = Program::build().await?;
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let defined = program.define_types(&case).await;
        let ended = match defined {
            Ok(()) => Controllers::run(&program, issued_and_renewed(&case)).await,
            Err(error) => Err(error),
        };
        // The controllers have ended: they would create the Secrets again.
        let restored = restore(&case).await;
        let removed = program.remove_types(&case).await;
        and_restoration(ended, and_restoration(restored, removed))
    })
    .await
}
