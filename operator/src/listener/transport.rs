//! What is between TCP and HTTP.

use tokio_rustls::TlsAcceptor;

/// What is between TCP and HTTP.
#[derive(Clone)]
pub enum Transport {
    /// Nothing.
    Plain,
    /// TLS. Its certificate is looked up per handshake, so a renewed one is in use at once and no connection is cut for it.
    Tls(TlsAcceptor),
}
