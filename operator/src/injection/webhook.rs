//! Answers the API server about pods that are about to be created.
//!
//! ```text
//! HTTPS (listener) ──> AdmissionReview (review) ──> decide, patch (inject) ──> AdmissionReview
//!                                      │           └ do the environments exist? (environments) ──> warnings
//!                                      └ what does the namespace say for its pods? (namespaces)
//! ```
//!
//! Every replica answers; none writes anything, so a dry run is like any other request. What the answer is made of is
//! the request, the administrator's configuration and caches of names and of namespaces' annotations: any pod of the
//! cluster may call this endpoint, and learns nothing from it but those.

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

/// What the webhook has to be told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens for the API server.
    pub listen: SocketAddr,
    /// What it puts into pods.
    pub inject: injection::Config,
    /// Where its certificate comes from.
    pub certificates: certificates::Source,
}

/// Why the webhook ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken, or none of ours.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Serves until `shutdown` is true, and then until API servers know of it and what is under way is answered.
///
/// `ready` becomes true when the API server has been told which certificates to trust, or somebody else's is there, and the caches are
/// filled, so that a replica gets no request that it could not answer; and false as soon as it is to end.
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
        // An error means that nobody can ask for the end any more, which is the end too.
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
