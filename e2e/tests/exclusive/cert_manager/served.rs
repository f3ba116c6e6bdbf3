//! Certificates that the webhook's replicas serve, as the API server sees them: by a TLS handshake that trusts the CA
//! bundle of the registration.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams};
use remora_e2e::harness::{Case, SYSTEM};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::certificates::bundle;

/// Port of the webhook's pods (`webhook.port` of the chart).
const PORT: u16 = 8443;
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Returns the certificate in the Secret if every replica serves it and the registration's CA bundle verifies it.
pub(super) async fn served_by_all(case: &Case, secret: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let secrets: Api<Secret> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
    let data = secrets.get(secret).await?.data.unwrap_or_default();
    let issued = CertificateDer::from_pem_slice(&data.get("tls.crt").context("a Secret without certificate")?.0)?;

    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle(case).await?.as_bytes()) {
        roots.add(authority?)?;
    }
    let pods: Api<Pod> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
    let pods = pods.list(&ListParams::default().labels("app.kubernetes.io/component=webhook")).await?;
    anyhow::ensure!(!pods.items.is_empty(), "no webhook");
    for pod in pods {
        let address = pod.status.and_then(|status| status.pod_ip).context("a pod without address")?;
        if tokio::time::timeout(HANDSHAKE, handshake(&address, roots.clone())).await?? != issued {
            return Ok(None);
        }
    }
    Ok(Some(issued.to_vec()))
}

/// Returns the certificate that a replica serves.
async fn handshake(address: &str, roots: RootCertStore) -> anyhow::Result<CertificateDer<'static>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(format!("remora-webhook.{SYSTEM}.svc"))?;
    let stream = TcpStream::connect((address, PORT)).await?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let (_, session) = stream.get_ref();
    let leaf = session.peer_certificates().and_then(|chain| chain.first()).context("a server without certificate")?;
    Ok(leaf.clone().into_owned())
}
