//! A certificate that somebody else makes and renews, in files that kubelet keeps as the Secret is.

use std::{convert::Infallible, future::Future, io, path::PathBuf, time::Duration};

use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use tokio::time::sleep;

use super::Serving;
use crate::injection::metrics::Metrics;

/// Names of a Secret of type `kubernetes.io/tls`, and of what some put beside them.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITY: &str = "ca.crt";

/// Between two looks. Whoever renews does so days before the end, so nobody waits for this.
const CHECK: Duration = Duration::from_secs(5);

/// Why what lies there cannot be served with. What was served with before stays in use.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A file is not there.
    #[error("{path} cannot be read: {source}")]
    ReadFile {
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// One is not PEM.
    #[error("{path} is not PEM: {source}")]
    ParsePem {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        source: rustls::pki_types::pem::Error,
    },
    /// There is nothing in the file.
    #[error("{0} has no certificate")]
    NoCertificate(PathBuf),
    /// A certificate is not X.509.
    #[error("{path} is not X.509: {reason}")]
    ParseCertificate {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The key is of another certificate, or of a kind that nobody signs with; or one of the two was replaced a moment ago.
    #[error("the key does not go with the certificate: {0}")]
    MatchKey(#[from] rustls::Error),
}

/// Serves with what lies in a directory.
pub struct Files {
    directory: PathBuf,
    serving: Serving,
    metrics: Metrics,
    /// What is in use.
    seen: Option<Pair>,
}

/// The bytes of certificate and key.
#[derive(PartialEq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    /// Lets `serving` serve with the `tls.crt` and `tls.key` of this directory.
    pub fn new(directory: PathBuf, serving: Serving, metrics: Metrics) -> Files {
        Files { directory, serving, metrics, seen: None }
    }

    /// Runs for ever; `ready` is called once, when there is something to serve with.
    pub async fn run<F: Future<Output = ()>>(mut self, ready: impl FnOnce() -> F) -> Infallible {
        let mut ready = Some(ready);
        loop {
            match self.look() {
                Ok(()) => {
                    if let Some(ready) = ready.take() {
                        ready().await;
                    }
                }
                Err(error) => {
                    self.metrics.certificates_failed();
                    tracing::warn!(%error, "certificate");
                }
            }
            sleep(CHECK).await;
        }
    }

    /// Takes over what has changed.
    fn look(&mut self) -> Result<(), Unreadable> {
        let pair = Pair { certificate: self.read(CERTIFICATE)?, key: self.read(KEY)? };
        // It may be renewed alone. Not everybody puts it here, and nothing is served with it.
        let authority = self.read(AUTHORITY).and_then(|pem| self.expiry(AUTHORITY, &self.chain(AUTHORITY, &pem)?));
        if let Ok(until) = authority {
            self.metrics.authority_expires(until);
        }
        if self.seen.as_ref() == Some(&pair) {
            return Ok(());
        }
        let chain = self.chain(CERTIFICATE, &pair.certificate)?;
        let until = self.expiry(CERTIFICATE, &chain)?;
        let key = PrivateKeyDer::from_pem_slice(&pair.key)
            .map_err(|source| Unreadable::ParsePem { path: self.directory.join(KEY), source })?;
        self.serving.with(CertifiedKey::from_der(chain, key, &ring::default_provider())?);
        self.metrics.certificate_expires(until);
        tracing::info!(directory = %self.directory.display(), "serves with a new certificate");
        self.seen = Some(pair);
        Ok(())
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, Unreadable> {
        let path = self.directory.join(name);
        std::fs::read(&path).map_err(|source| Unreadable::ReadFile { path, source })
    }

    fn chain(&self, name: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unreadable> {
        let path = || self.directory.join(name);
        let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|source| Unreadable::ParsePem { path: path(), source })?;
        if chain.is_empty() { Err(Unreadable::NoCertificate(path())) } else { Ok(chain) }
    }

    /// When the first of them expires, in seconds since 1970.
    fn expiry(&self, name: &str, chain: &[CertificateDer<'_>]) -> Result<i64, Unreadable> {
        let path = || self.directory.join(name);
        let first = chain.first().ok_or_else(|| Unreadable::NoCertificate(path()))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(first)
            .map_err(|error| Unreadable::ParseCertificate { path: path(), reason: error.to_string() })?;
        Ok(parsed.validity().not_after.timestamp())
    }
}
