//! Loop that accepts connections, and the end of a listener.
//!
//! Each connection has its own task from the moment it is accepted, so a stalled handshake delays no other connection.

use std::{future::pending, io, net::SocketAddr, time::Duration};

use axum::Router;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::limits::Shutdown;
use super::transport::Transport;
use super::{
    Limits,
    connection::Connection,
    slots::{Caller, Slot, Slots},
};

/// Serves until `shutdown` is true, then for `linger` and `drain` of `limits`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    transport: Transport,
    limits: Limits,
    mut shutdown: watch::Receiver<bool>,
) {
    let (phase, phases) = watch::channel(Shutdown::Serving);
    let accepting = accept(listener, router, transport, limits, phases);
    let ending = async {
        // An error means that the sender is gone and nothing else can end the listener, so it ends.
        let _ = shutdown.wait_for(|shutdown| *shutdown).await;
        phase.send_replace(Shutdown::Leaving);
        sleep(limits.linger).await;
        phase.send_replace(Shutdown::Ending);
    };
    let (mut connections, ()) = tokio::join!(accepting, ending);
    if timeout(limits.drain, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(connections = connections.len(), "closed connections that did not end in time");
    }
}

/// Event in the accept loop.
enum Event {
    Accepted(io::Result<(TcpStream, SocketAddr)>),
    Entered(Slot),
}

/// Accepts connections until the end. Returns the connections that are still open.
async fn accept(
    listener: TcpListener,
    router: Router,
    transport: Transport,
    limits: Limits,
    mut phases: watch::Receiver<Shutdown>,
) -> JoinSet<()> {
    let slots = Slots::new(limits);
    let mut connections = JoinSet::new();
    // Accepted connection that has no slot yet. It must survive an iteration of the loop.
    let mut next: Option<(TcpStream, SocketAddr)> = None;
    loop {
        let of_connections = phases.clone();
        // A connection that lost its slot ends soon. Until then, its task and its socket count here.
        let can_accept = connections.len() <= limits.connections;
        let caller = next.as_ref().map(|(_, peer)| Caller::from(peer.ip()));
        let entering = async {
            match caller {
                Some(caller) => slots.enter(caller).await,
                None => pending().await,
            }
        };
        let event = tokio::select! {
            biased;
            _ = phases.wait_for(|phase| *phase == Shutdown::Ending) => return connections,
            Some(_) = connections.join_next() => continue,
            slot = entering => Event::Entered(slot),
            accepted = listener.accept(), if can_accept && caller.is_none() => Event::Accepted(accepted),
        };
        let slot = match event {
            Event::Entered(slot) => slot,
            Event::Accepted(Ok(accepted)) => {
                next = Some(accepted);
                continue;
            }
            Event::Accepted(Err(error)) => {
                // The process is probably out of file descriptors, so the next attempt would fail at once too.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some((stream, peer)) = next.take() else { continue };
        let id = slot.id();
        let connection =
            Connection { transport: transport.clone(), router: router.clone(), limits, phases: of_connections, slot };
        let task = connections.spawn(async move {
            if let Err(error) = connection.serve(stream).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
        slots.ends_with_slot(id, task);
    }
}
