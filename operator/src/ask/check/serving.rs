//! Reads the certificates with which the webhook answers the API server.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use rustls::{
    CertificateError, Error, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, parse_x509_certificate};

use super::facts::{Deployed, Fault, Given, Leaf, Registration, Replica, Serving};
use crate::ask::{cluster::Cluster, exposition::samples, failure::Failure};

/// Key of the certificate in a Secret of type `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";
/// Labels of the webhook's pods.
const WEBHOOK: &str = "app.kubernetes.io/name=remora,app.kubernetes.io/component=webhook";
/// Name of the port of the operator's metrics, and its number in pods that do not name it.
const ADMIN_PORT: (&str, u16) = ("admin", 8080);
/// Number of pods that are asked at one time.
const CONCURRENT: usize = 8;

/// Reads the certificates. `None` if no webhook is installed.
///
/// A replica that signs its own certificate keeps it in memory, so its metrics are read. The Secret of its CA is not
/// read, because it has the CA's key.
pub(super) async fn read(
    cluster: &Cluster,
    namespace: &str,
    deployments: &[Deployed],
    registrations: &[Registration],
    now: Timestamp,
) -> Result<Option<Serving>, Failure> {
    let Some(webhook) = deployments.iter().find(|deployment| deployment.component == "webhook") else {
        return Ok(None);
    };
    let Some(registration) = registrations.iter().find(|registration| registration.is_webhook) else {
        return Ok(None);
    };
    let Some(name) = &webhook.certificate_secret else {
        return Ok(Some(Serving::Own(replicas(cluster, namespace).await?)));
    };
    let secret: Option<Secret> = cluster.get(namespace, name).await?;
    let pem = secret.and_then(|secret| secret.data?.remove(CERTIFICATE)).map(|bytes| bytes.0).unwrap_or_default();
    let server = registration.server.clone().unwrap_or_default();
    let leaf = leaf(&pem, &registration.bundle, &server, now);
    Ok(Some(Serving::Given(Given { secret: format!("{namespace}/{name}"), server, leaf })))
}

async fn replicas(cluster: &Cluster, namespace: &str) -> Result<Vec<Replica>, Failure> {
    let pods: Vec<Pod> = cluster.list(Some(namespace), WEBHOOK).await?;
    let is_running = |pod: &&Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
    let running = pods.iter().filter(is_running).map(|pod| (pod.name_any(), admin_port(pod)));
    let asking = running.map(|(pod, port)| async move {
        match cluster.ask_pod(namespace, &pod, port, "/metrics").await {
            Ok(metrics) => Ok(replica(pod, &metrics)),
            Err(failure @ Failure::Forbidden { .. }) => Err(failure),
            Err(failure) => Ok(Replica { pod, problem: Some(failure.to_string()), ..Replica::default() }),
        }
    });
    let answers: Vec<Result<Replica, Failure>> = stream::iter(asking).buffered(CONCURRENT).collect().await;
    answers.into_iter().collect()
}

fn admin_port(pod: &Pod) -> u16 {
    let (name, usual) = ADMIN_PORT;
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(name));
    port.and_then(|port| u16::try_from(port.container_port).ok()).unwrap_or(usual)
}

/// Reads a replica's metrics. The expiry is NaN before the first certificate.
fn replica(pod: String, metrics: &str) -> Replica {
    let time = |metric: &str| samples(metrics, metric).find_map(|sample| sample.time());
    let failures = samples(metrics, "remora_webhook_certificate_failures_total").find_map(|sample| sample.number());
    Replica {
        pod,
        certificate: time("remora_webhook_certificate_expiry_timestamp_seconds"),
        authority: time("remora_webhook_authority_expiry_timestamp_seconds"),
        failures: failures.unwrap_or_default() as u64,
        problem: None,
    }
}

/// Reads the first certificate of a chain in PEM, and verifies it like the API server. `None` if there is none.
fn leaf(pem: &[u8], bundle: &[u8], server: &str, now: Timestamp) -> Option<Leaf> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem).flatten().collect();
    let (_, parsed) = parse_x509_certificate(chain.first()?).ok()?;
    let time = |at: x509_parser::time::ASN1Time| Timestamp::from_second(at.timestamp()).ok();
    Some(Leaf {
        names: names(&parsed),
        issuer: parsed.issuer().to_string(),
        from: time(parsed.validity().not_before)?,
        until: time(parsed.validity().not_after)?,
        fault: verify(&chain, &names(&parsed), bundle, server, now).err(),
    })
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().ok().flatten().map(|extension| &extension.value.general_names);
    let dns =
        |name: &GeneralName<'_>| if let GeneralName::DNSName(name) = name { Some((*name).to_owned()) } else { None };
    names.into_iter().flatten().filter_map(dns).collect()
}

fn verify(
    chain: &[CertificateDer<'static>],
    names: &[String],
    bundle: &[u8],
    server: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    let Some((leaf, intermediates)) = chain.split_first() else { return Err(Fault::Untrusted) };
    let trusted: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(bundle).flatten().collect();
    // The API server accepts a certificate that is itself in the bundle; the verifier below wants a CA there.
    let is_pinned = trusted.contains(leaf);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted);
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|_no_certificate| Fault::Untrusted)?;
    let name = ServerName::try_from(server.to_owned()).map_err(|_not_a_name| Fault::Name)?;
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    match verifier.verify_server_cert(leaf, intermediates, &name, &[], now) {
        Ok(_) => Ok(()),
        Err(Error::InvalidCertificate(error)) => match error {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Err(Fault::Dates),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Err(Fault::Name),
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Err(Fault::Untrusted),
            _ if is_pinned && names.iter().any(|name| name == server) => Ok(()),
            _ if is_pinned => Err(Fault::Name),
            error => Err(Fault::Other(Error::InvalidCertificate(error).to_string())),
        },
        Err(error) => Err(Fault::Other(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;

    const SERVER: &str = "remora-webhook.remora-system.svc";
    const DAY: i64 = 24 * 3600;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn params(name: &str, days: i64) -> CertificateParams {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let time = |second| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(second as u64);
        params.not_before = time(now().as_second() - 10 * DAY);
        params.not_after = time(now().as_second() + days * DAY);
        params
    }

    fn ca() -> CertifiedIssuer<'static, KeyPair> {
        let mut authority = params("ca", 30);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn given_certificate_is_verified_like_the_api_server() {
        let (own, other) = (ca(), ca());
        let fault = |name: &str, days, bundle: &str| {
            let certificate = params(name, days).signed_by(&KeyPair::generate().unwrap(), &own).unwrap();
            let leaf = leaf(certificate.pem().as_bytes(), bundle.as_bytes(), SERVER, now()).unwrap();
            assert_eq!(leaf.names, [name]);
            assert_eq!(leaf.until.as_second(), now().as_second() + days * DAY);
            leaf.fault
        };
        assert_eq!(fault(SERVER, 5, &own.pem()), None);
        assert_eq!(fault(SERVER, 5, &format!("{}{}", other.pem(), own.pem())), None);
        assert_eq!(fault(SERVER, -1, &own.pem()), Some(Fault::Dates));
        assert_eq!(fault("remora-webhook.other.svc", 5, &own.pem()), Some(Fault::Name));
        assert_eq!(fault(SERVER, 5, &other.pem()), Some(Fault::Untrusted));
        assert_eq!(fault(SERVER, 5, ""), Some(Fault::Untrusted));
        assert!(leaf(b"no certificate", own.pem().as_bytes(), SERVER, now()).is_none());
        let alone = params(SERVER, 5).self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        assert_eq!(
            leaf(alone.as_bytes(), alone.as_bytes(), SERVER, now()).unwrap().fault,
            None,
            "pinned in the bundle"
        );
    }

    #[test]
    fn metrics_of_replica_give_its_dates() {
        let metrics = "# TYPE remora_webhook_certificate_expiry_timestamp_seconds gauge\n\
            remora_webhook_certificate_expiry_timestamp_seconds 1800000000.0\n\
            remora_webhook_authority_expiry_timestamp_seconds NaN\n\
            remora_webhook_certificate_failures_total 3\n";
        let found = replica("a".to_owned(), metrics);
        assert_eq!((found.certificate, found.authority, found.failures), (Some(now()), None, 3));
    }
}
