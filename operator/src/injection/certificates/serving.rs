//! The serving certificate in use, looked up at every TLS handshake.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

/// The serving certificate of a TLS server: empty at first, then the latest one. Clones share it.
#[derive(Clone, Default)]
pub struct Serving(Arc<ArcSwapOption<CertifiedKey>>);

impl Serving {
    /// Replaces the certificate, starting with the next handshake.
    pub fn replace(&self, key: CertifiedKey) {
        self.0.store(Some(Arc::new(key)));
    }

    /// Returns the TLS configuration: TLS 1.2 and 1.3, HTTP/1.1, no client certificates.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&versions)
            .map(|builder| builder.with_no_client_auth().with_cert_resolver(Arc::new(self.clone())))
            // Never taken: the provider has cipher suites for both versions, which its type does not express.
            .unwrap_or_else(|_| {
                ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::new(self.clone()))
            });
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.load().is_some() { "Serving(certificate)" } else { "Serving(nothing)" })
    }
}
