//! HTTPS for the API server, of which slow and hostile callers take nothing away.
//!
//! Each connection is a task of its own from the moment it is accepted: a handshake that stalls holds up nobody. Its
//! certificate is looked up per handshake, so a renewed one is in use at once and no connection is cut for it.

use std::{sync::Arc, time::Duration};

use axum::Router;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::{callers::Callers, connection::Connection};
use crate::certificates::Serving;

/// What a caller may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time for the head of a request, from its first byte.
    pub head: Duration,
    /// Time for the rest of a request and its answer; less than the registration's `timeoutSeconds`.
    pub request: Duration,
    /// Time between two requests of a connection, and before its first. Longer than API servers keep one they do not
    /// use, which is 90 s: they send a request on it in the very moment that we hang up, and nobody repeats it.
    pub idle: Duration,
    /// Connections at a time, of all callers.
    pub connections: usize,
    /// Connections at a time from one address. The API server needs a few: the rest of `connections` stays for it
    /// whatever one pod does.
    pub connections_per_address: usize,
    /// Requests at a time of one connection.
    pub streams: u32,
    /// Time that a server which is told to end still takes requests, until every node has heard that it is not ready.
    /// Each answer of that time closes its connection.
    pub linger: Duration,
    /// Time after that for the requests under way.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            request: Duration::from_secs(4),
            idle: Duration::from_secs(120),
            connections: 1024,
            connections_per_address: 128,
            streams: 256,
            linger: Duration::from_secs(5),
            drain: Duration::from_secs(10),
        }
    }
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It is not in sight.
    Serving,
    /// Requests are answered, and their connections closed.
    Leaving,
    /// What is under way is answered.
    Ending,
}

/// Serves until `shutdown` is true, then as long as `limits` say.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    certificate: Serving,
    limits: Limits,
    mut shutdown: watch::Receiver<bool>,
) {
    let (phase, phases) = watch::channel(Phase::Serving);
    let accepting = accept(listener, router, certificate, limits, phases);
    let ending = async {
        // An error means that nobody can ask for the end any more, which is the end too.
        let _ = shutdown.wait_for(|shutdown| *shutdown).await;
        phase.send_replace(Phase::Leaving);
        sleep(limits.linger).await;
        phase.send_replace(Phase::Ending);
    };
    let (mut connections, ()) = tokio::join!(accepting, ending);
    if timeout(limits.drain, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(left = connections.len(), "connections were cut at the end");
    }
}

/// Takes connections until the end, and hands over those that are left.
async fn accept(
    listener: TcpListener,
    router: Router,
    certificate: Serving,
    limits: Limits,
    mut phases: watch::Receiver<Phase>,
) -> JoinSet<()> {
    let tls = TlsAcceptor::from(certificate.server_config());
    let callers = Arc::new(Callers::default());
    let mut connections = JoinSet::new();
    loop {
        let of_connections = phases.clone();
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = phases.wait_for(|phase| *phase == Phase::Ending) => return connections,
            Some(_) = connections.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: the next attempt would fail at once, too.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(place) = Callers::admit(&callers, peer.ip().to_canonical(), &limits) else {
            tracing::debug!(%peer, "too many connections");
            continue;
        };
        let connection = Connection { tls: tls.clone(), router: router.clone(), limits, phases: of_connections };
        connections.spawn(async move {
            let _place = place;
            if let Err(error) = connection.serve(stream).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }
}
