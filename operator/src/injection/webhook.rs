//! The admission webhook: answers the API server's requests about new pods.
//!
//! ```text
//! HTTPS (listener) ──> AdmissionReview (review) ──> look up ──> parse, decide and patch (admit) ──> AdmissionReview
//!                                                  │       └ existence and layout of environments (environments)
//!                                                  └ defaults of the namespace (namespaces)
//! ```
//!
//! Every replica answers. The webhook writes nothing, so a dry run needs no special case. An answer depends only on the
//! request, the operator's configuration, and caches of environments and of namespaces' annotations. Any pod of the
//! cluster can call this endpoint, and learns nothing else from it.

mod admit;
mod cache;
mod environments;
mod look_ups;
mod memory;
mod namespaces;
mod review;

use std::{convert::Infallible, future::pending, net::SocketAddr};

use kube::Client;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

pub use self::{
    admit::{Webhook, router},
    environments::Environments,
    namespaces::Namespaces,
};
pub use super::metrics::Metrics;
#[cfg(test)]
pub(crate) use super::metrics::Outcome;
use crate::{
    injection::{
        self,
        certificates::{self, CertificateManager, Files},
    },
    listener::{Limits, Transport, bind, serve},
};

/// Settings of the webhook.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address that the webhook listens on.
    pub listen: SocketAddr,
    /// Configuration of the injected sidecar.
    pub inject: injection::Config,
    /// Origin of the serving certificate.
    pub certificates: certificates::Source,
}

/// Error: the webhook cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is in use, or does not belong to this host.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

/// Serves until `shutdown` is true, and then continues until API servers have noticed and all pending requests are
/// answered.
///
/// `ready` becomes true once the caches are filled and the certificate can be used: its CA is registered with the API
/// server, or another program has provided it. A replica therefore gets no request that it cannot answer. `ready`
/// becomes false as soon as `shutdown` is true.
///
/// # Errors
///
/// Fails if the webhook cannot listen on its address.
pub async fn run(
    client: Client,
    options: Options,
    metrics: Metrics,
    ready: watch::Sender<bool>,
    shutdown: watch::Receiver<bool>,
) -> Result<(), Error> {
    let address = options.listen;
    let listener = bind(address).map_err(|source| Error::Listen { address, source })?;
    let (environments, watching_environments) = Environments::watch(client.clone());
    let (namespaces, watching_namespaces) = Namespaces::watch(client.clone());
    let certificate = certificates::Serving::default();
    let (serving_certificate, certificate_metrics) = (certificate.clone(), metrics.clone());
    let webhook = Webhook::new(options.inject, environments.clone(), namespaces.clone(), metrics);
    tracing::info!(%address, "the webhook listens");

    let mut shutdown_started = shutdown.clone();
    let (shutting_down, is_ready) = (shutdown.clone(), ready.clone());
    let tls = Transport::Tls(TlsAcceptor::from(certificate.server_config()));
    let serving = serve(listener, router(webhook), tls, Limits::webhook(), shutdown);
    let unready_on_shutdown = async {
        // An error means that the sender is gone, which counts as a shutdown too.
        let _ = shutdown_started.wait_for(|shutting_down| *shutting_down).await;
        ready.send_replace(false);
        pending::<Infallible>().await
    };
    let on_ready = || async {
        environments.wait_until_filled().await;
        namespaces.wait_until_filled().await;
        is_ready.send_replace(!*shutting_down.borrow());
        tracing::info!("the webhook is ready");
    };
    let managing = async {
        match options.certificates {
            certificates::Source::SelfManaged(names) => {
                CertificateManager::new(client, names, serving_certificate, certificate_metrics).run(on_ready).await
            }
            certificates::Source::Directory(directory) => {
                Files::new(directory, serving_certificate, certificate_metrics).run(on_ready).await
            }
        }
    };
    tokio::select! {
        () = serving => Ok(()),
        never = unready_on_shutdown => match never {},
        never = watching_environments => match never {},
        never = watching_namespaces => match never {},
        never = managing => match never {},
    }
}
