//! Layer between TCP and HTTP.

use tokio_rustls::TlsAcceptor;

/// Layer between TCP and HTTP.
#[derive(Clone)]
pub enum Transport {
    /// Plain TCP.
    Plain,
    /// TLS. The certificate is looked up for each handshake, so a renewed certificate is in use at once and closes no
    /// connection.
    Tls(TlsAcceptor),
}
