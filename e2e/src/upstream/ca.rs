//! A CA that lives as long as the stub, and the certificate that it signed.

use std::sync::Arc;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// CA certificate, and a TLS server configuration with a certificate that the CA signed.
pub struct Ca {
    pem: String,
    acceptor: TlsAcceptor,
}

impl Ca {
    /// Creates a CA, and a certificate for `localhost`, the loopback addresses and `names`.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is neither a DNS name nor an address.
    pub fn new(names: &[String]) -> anyhow::Result<Self> {
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "Remora's upstream stub");
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;

        let mut subjects = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        subjects.extend_from_slice(names);
        let leaf = CertificateParams::new(subjects).context("the names of the certificate")?;
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &ca)?;

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        Ok(Self { pem: ca.pem(), acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Returns the CA certificate as PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns an acceptor of TLS connections with the certificate.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }
}
