//! The admission webhook: answers the API server's requests about new pods.
//!
//! ```text
//! HTTPS (listener) ──> AdmissionReview (review) ──> decide, patch (inject) ──> AdmissionReview
//!                                      │           └ existence and layout of environments (environments) ──> warnings
//!                                      └ defaults of the namespace (namespaces)
//! ```
//!
//! Every replica answers. The webhook writes nothing, so a dry run needs no special case. An answer depends only on the
//! request, the operator's configuration, and caches of environments and of namespaces' annotations. Any pod of the
//! cluster can call this endpoint, and learns nothing else from it.

mod admit;
mod environments;
mod namespaces;
mod review;
mod weight;

use std::{convert::Infallible, future::pending, net::SocketAddr};

use kube::Client;
use tokio::{net::TcpListener, sync::watch};
use tokio_rustls::TlsAcceptor;

pub use self::{
    admit::{Webhook, router},
    environments::Environments,
    namespaces::Namespaces,
};
pub use super::metrics::Metrics;
use crate::{
    injection::{
        self,
        certificates::{self, Files, Keeper},
    },
    listener::{Limits, Transport, serve},
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
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    let (environments, following) = Environments::follow(client.clone());
    let (namespaces, following_namespaces) = Namespaces::follow(client.clone());
    let certificate = certificates::Serving::default();
    let (in_use, counted) = (certificate.clone(), metrics.clone());
    let webhook = Webhook::new(options.inject, environments.clone(), namespaces.clone(), metrics);
    tracing::info!(%address, "webhook listens");

    let mut told_to_end = shutdown.clone();
    let (told, is_ready) = (shutdown.clone(), ready.clone());
    let tls = Transport::Tls(TlsAcceptor::from(certificate.server_config()));
    let serving = serve(listener, router(webhook), tls, Limits::webhook(), shutdown);
    let leaving = async {
        // An error means that the sender is gone, which counts as a shutdown too.
        let _ = told_to_end.wait_for(|told| *told).await;
        ready.send_replace(false);
        pending::<Infallible>().await
    };
    let can_serve = || async {
        environments.filled().await;
        namespaces.filled().await;
        is_ready.send_replace(!*told.borrow());
        tracing::info!("webhook is ready");
    };
    let keeping = async {
        match options.certificates {
            certificates::Source::SelfManaged(names) => {
                Keeper::new(client, names, in_use, counted).run(can_serve).await
            }
            certificates::Source::Directory(directory) => Files::new(directory, in_use, counted).run(can_serve).await,
        }
    };
    tokio::select! {
        () = serving => Ok(()),
        never = leaving => match never {},
        never = following => match never {},
        never = following_namespaces => match never {},
        never = keeping => match never {},
    }
}
