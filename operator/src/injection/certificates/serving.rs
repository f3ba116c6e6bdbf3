//! The certificate in use, looked up at every handshake.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

/// What a server serves with: nothing at first, then whatever is current. Clones share it.
#[derive(Clone, Default)]
pub struct Serving(Arc<ArcSwapOption<CertifiedKey>>);

impl Serving {
    /// Serves with this one from the next handshake on.
    pub fn with(&self, key: CertifiedKey) {
        self.0.store(Some(Arc::new(key)));
    }

    /// TLS as the API server speaks it, for HTTP/1.1.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&versions)
            .map(|builder| builder.with_no_client_auth().with_cert_resolver(Arc::new(self.clone())))
            // The provider has suites for both versions; the type cannot say so.
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
