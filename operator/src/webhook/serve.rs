//! HTTPS for the API server, of which slow and hostile callers take nothing away.
//!
//! Each connection is a task of its own from the moment it is accepted: a handshake that stalls holds up nobody. Its
//! certificate is looked up per handshake, so a renewed one is in use at once and no connection is cut for it.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::IpAddr,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, StatusCode},
    response::IntoResponse,
};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::certificates::Serving;

/// What a caller may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time for the head of a request.
    pub head: Duration,
    /// Time for the rest of a request and its answer; less than the registration's `timeoutSeconds`.
    pub request: Duration,
    /// Time between two requests of a connection, and before its first.
    pub idle: Duration,
    /// Connections at a time, of all callers.
    pub connections: usize,
    /// Connections at a time from one address. The API server needs one, or few behind a proxy: the rest of
    /// `connections` stays for it whatever one pod does.
    pub connections_per_address: usize,
    /// Requests at a time of one connection.
    pub streams: u32,
    /// Time for the requests under way when the server is told to end.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            request: Duration::from_secs(4),
            idle: Duration::from_secs(90),
            connections: 1024,
            connections_per_address: 128,
            streams: 256,
            drain: Duration::from_secs(10),
        }
    }
}

/// Serves until `shutdown` is true, then until what is under way is answered.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    certificate: Serving,
    limits: Limits,
    mut shutdown: watch::Receiver<bool>,
) {
    let tls = TlsAcceptor::from(certificate.server_config());
    let callers = Arc::new(Callers::default());
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // An error means that nobody can ask for the end any more, which is the end too.
            _ = shutdown.wait_for(|shutdown| *shutdown) => break,
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
        let (tls, router, shutdown) = (tls.clone(), router.clone(), shutdown.clone());
        connections.spawn(async move {
            let _place = place;
            if let Err(error) = connection(stream, tls, router, limits, shutdown).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }
    // No new connections while the old ones are finished.
    drop(listener);
    if timeout(limits.drain, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(left = connections.len(), "connections were cut at the end");
    }
}

/// How one connection came to its end early.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the TLS handshake took too long")]
    SlowHandshake,
    #[error("the TLS handshake failed: {0}")]
    Handshake(#[from] std::io::Error),
    #[error("{0}")]
    Http(#[from] Box<dyn std::error::Error + Send + Sync>),
    #[error("it was idle, and did not end when asked to")]
    Idle,
}

async fn connection(
    stream: TcpStream,
    tls: TlsAcceptor,
    router: Router,
    limits: Limits,
    mut shutdown: watch::Receiver<bool>,
) -> Result<(), Ended> {
    // Answers are small, and somebody waits for each.
    stream.set_nodelay(true)?;
    let stream = timeout(limits.handshake, tls.accept(stream)).await.map_err(|_| Ended::SlowHandshake)??;

    let activity = Arc::new(Activity::new());
    let service = service_fn(|request| answer(router.clone(), request, limits.request, Arc::clone(&activity)));
    let builder = builder(limits);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let quiet = |activity: Arc<Activity>| async move {
        while let Some(rest) = limits.idle.checked_sub(activity.idle()) {
            sleep(rest.max(Duration::from_millis(10))).await;
        }
    };
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        _ = shutdown.wait_for(|shutdown| *shutdown) => {}
        () = quiet(Arc::clone(&activity)) => {}
    }
    // Answers what is under way and takes nothing new.
    connection.as_mut().graceful_shutdown();
    timeout(limits.drain, connection).await.map_err(|_| Ended::Idle)?.map_err(Ended::from)
}

fn builder(limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        // Without a timer hyper forgets its timeouts, and says nothing.
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_headers(64)
        .max_buf_size(64 << 10);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(16 << 10)
        // Finds peers that are gone without a word.
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10));
    builder
}

/// One request, in its time.
async fn answer(
    router: Router,
    request: Request<Incoming>,
    limit: Duration,
    activity: Arc<Activity>,
) -> Result<Response<Body>, Infallible> {
    let _busy = activity.busy();
    match timeout(limit, router.oneshot(request.map(Body::new))).await {
        Ok(answered) => answered,
        Err(_) => Ok((StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response()),
    }
}

/// Whether a connection is in use.
struct Activity {
    started: Instant,
    under_way: AtomicUsize,
    /// Milliseconds from `started` to the end of the last request.
    last: AtomicU64,
}

impl Activity {
    fn new() -> Activity {
        Activity { started: Instant::now(), under_way: AtomicUsize::new(0), last: AtomicU64::new(0) }
    }

    fn idle(&self) -> Duration {
        if self.under_way.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.started.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }

    /// In use until the guard is dropped: also when the caller goes away.
    fn busy(self: &Arc<Self>) -> Busy {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }
}

struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last.store(now, Ordering::Relaxed);
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many connections there are, by address.
#[derive(Default)]
struct Callers(Mutex<HashMap<IpAddr, usize>>);

impl Callers {
    /// A place for one more connection, as long as it is held.
    fn admit(callers: &Arc<Callers>, address: IpAddr, limits: &Limits) -> Option<Place> {
        let mut by_address = callers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = by_address.values().sum();
        let same = by_address.get(&address).copied().unwrap_or_default();
        if all >= limits.connections || same >= limits.connections_per_address {
            return None;
        }
        by_address.insert(address, same + 1);
        Some(Place { callers: Arc::clone(callers), address })
    }
}

struct Place {
    callers: Arc<Callers>,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_address = self.callers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}
