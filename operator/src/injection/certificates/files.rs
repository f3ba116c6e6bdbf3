//! Serves with a certificate that another program creates and renews, read from files that kubelet updates with their
//! Secret.

use std::{convert::Infallible, future::Future, io, path::PathBuf, time::Duration};

use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use tokio::time::sleep;

use super::Serving;
use crate::injection::metrics::Metrics;

/// Keys of a Secret of type `kubernetes.io/tls`; some programs add the CA under `ca.crt`.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const CA: &str = "ca.crt";

/// Interval between two reads. Certificates are renewed days before they expire, so this delay does not matter.
const CHECK: Duration = Duration::from_secs(5);

/// Error: the certificate in the files cannot be used. The previous certificate stays in use.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    ReadFile {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file is not PEM.
    #[error("{path} is not PEM: {source}")]
    ParsePem {
        /// Path of the file.
        path: PathBuf,
        /// Reason from the parser.
        source: rustls::pki_types::pem::Error,
    },
    /// The file holds no certificate.
    #[error("{0} holds no certificate")]
    NoCertificate(PathBuf),
    /// A certificate is not X.509.
    #[error("{path} is not X.509: {reason}")]
    ParseCertificate {
        /// Path of the file.
        path: PathBuf,
        /// Reason from the parser.
        reason: String,
    },
    /// The key belongs to another certificate or has an unsupported type. Also possible for a moment while the two
    /// files are replaced.
    #[error("the key in tls.key does not belong to the certificate in tls.crt: {0}")]
    MatchKey(#[from] rustls::Error),
}

/// Serves with the certificate and key in a directory.
pub struct Files {
    directory: PathBuf,
    serving: Serving,
    metrics: Metrics,
    /// Certificate and key in use. `None` before the first success.
    loaded: Option<Pair>,
}

/// Contents of the certificate file and of the key file.
#[derive(PartialEq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    /// Creates a reader that passes `tls.crt` and `tls.key` of this directory to `serving`.
    pub fn new(directory: PathBuf, serving: Serving, metrics: Metrics) -> Files {
        Files { directory, serving, metrics, loaded: None }
    }

    /// Reads the files every five seconds and never returns. Calls `ready` once, after the first certificate is in use.
    pub async fn run<F: Future<Output = ()>>(mut self, ready: impl FnOnce() -> F) -> Infallible {
        let mut ready = Some(ready);
        loop {
            match self.reload() {
                Ok(()) => {
                    if let Some(ready) = ready.take() {
                        ready().await;
                    }
                }
                Err(error) => {
                    self.metrics.count_certificate_failure();
                    tracing::warn!(%error, "cannot load the webhook's certificate");
                }
            }
            sleep(CHECK).await;
        }
    }

    /// Reads the files, and serves with the certificate if it or its key changed.
    ///
    /// # Errors
    ///
    /// Fails if `tls.crt` or `tls.key` cannot be read or parsed, or if they do not belong together.
    fn reload(&mut self) -> Result<(), Unreadable> {
        let pair = Pair { certificate: self.read(CERTIFICATE)?, key: self.read(KEY)? };
        // `ca.crt` is for the metric only: the webhook does not serve with it, it may change alone, and it may be
        // missing.
        let ca = self.read(CA).and_then(|pem| self.expiry(CA, &self.chain(CA, &pem)?));
        if let Ok(until) = ca {
            self.metrics.set_ca_expiry(until);
        }
        if self.loaded.as_ref() == Some(&pair) {
            return Ok(());
        }
        let chain = self.chain(CERTIFICATE, &pair.certificate)?;
        let until = self.expiry(CERTIFICATE, &chain)?;
        let key = PrivateKeyDer::from_pem_slice(&pair.key)
            .map_err(|source| Unreadable::ParsePem { path: self.directory.join(KEY), source })?;
        self.serving.replace(CertifiedKey::from_der(chain, key, &ring::default_provider())?);
        self.metrics.set_certificate_expiry(until);
        tracing::info!(directory = %self.directory.display(), "loaded a new certificate");
        self.loaded = Some(pair);
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

    /// Returns the time when the first certificate of the chain expires, in seconds since 1970.
    fn expiry(&self, name: &str, chain: &[CertificateDer<'_>]) -> Result<i64, Unreadable> {
        let path = || self.directory.join(name);
        let first = chain.first().ok_or_else(|| Unreadable::NoCertificate(path()))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(first)
            .map_err(|error| Unreadable::ParseCertificate { path: path(), reason: error.to_string() })?;
        Ok(parsed.validity().not_after.timestamp())
    }
}
