//! Answers the API server about pods that are about to be created.
//!
//! ```text
//! HTTPS (serve) ──> AdmissionReview (review) ──> decide, patch (inject) ──> AdmissionReview
//!                                                  └ do the environments exist? (environments) ──> warnings
//! ```
//!
//! Every replica answers; none writes anything, so a dry run is like any other request. What the answer is made of is
//! the request, the administrator's configuration and a cache of names: any pod of the cluster may call this endpoint,
//! and learns nothing from it but which environments exist.

mod admit;
mod environments;
mod metrics;
mod review;
mod serve;

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use kube::Client;
use tokio::{net::TcpListener, sync::watch, time::sleep};

pub use self::{
    admit::{Webhook, router},
    environments::Environments,
    metrics::Metrics,
    serve::{Limits, serve},
};
use crate::{
    certificates::{self, Keeper},
    inject,
};

/// What the webhook has to be told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens for the API server.
    pub listen: SocketAddr,
    /// What it puts into pods.
    pub inject: inject::Config,
    /// The names that its certificates depend on.
    pub certificates: certificates::Names,
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

/// How long a replica that is told to end still takes new connections: until every node has heard that it is not ready.
const LINGER: Duration = Duration::from_secs(5);

/// Serves until `shutdown` is true, and then until API servers know of it and what is under way is answered.
///
/// `ready` becomes true when the API server has been told which certificates to trust and the cache of environments is
/// filled, so that a replica gets no request that it could not answer; and false as soon as it is to end.
pub async fn run(
    client: Client,
    options: Options,
    metrics: Metrics,
    ready: watch::Sender<bool>,
    mut shutdown: watch::Receiver<bool>,
) -> Result<(), Error> {
    let address = options.listen;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    let (environments, following) = Environments::follow(client.clone());
    let certificate = certificates::Serving::default();
    let keeper = Keeper::new(client, options.certificates, certificate.clone(), metrics.clone());
    let webhook = Webhook::new(options.inject, environments.clone(), metrics);
    tracing::info!(%address, "webhook listens");

    let told_to_end = shutdown.clone();
    let (end, ending) = watch::channel(false);
    let serving = serve(listener, router(webhook), certificate, Limits::default(), ending);
    let lingering = async {
        // An error means that nobody can ask for the end any more, which is the end too.
        let _ = shutdown.wait_for(|shutdown| *shutdown).await;
        ready.send_replace(false);
        sleep(LINGER).await;
        end.send_replace(true);
        std::future::pending::<Infallible>().await
    };
    let keeping = keeper.run(|| async {
        environments.filled().await;
        if !*told_to_end.borrow() {
            ready.send_replace(true);
            tracing::info!("webhook is ready");
        }
    });
    tokio::select! {
        () = serving => Ok(()),
        never = lingering => match never {},
        never = keeping => match never {},
        never = following => match never {},
    }
}
