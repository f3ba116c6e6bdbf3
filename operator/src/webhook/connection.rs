//! One connection, from its handshake to its end.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Request, Response, StatusCode, Version, header},
    response::IntoResponse,
};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{sleep_until, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::{
    activity::{Activity, Watched},
    serve::{Limits, Phase},
};

/// What a connection needs.
pub(super) struct Connection {
    pub(super) tls: TlsAcceptor,
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) phases: watch::Receiver<Phase>,
}

/// How one came to its end early.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the TLS handshake took too long")]
    SlowHandshake,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Http(#[from] Box<dyn std::error::Error + Send + Sync>),
    #[error("it did not end when asked to")]
    Stuck,
}

impl Connection {
    /// Answers requests until either side has had enough.
    pub(super) async fn serve(mut self, stream: TcpStream) -> Result<(), Ended> {
        let limits = self.limits;
        // Answers are small, and somebody waits for each.
        stream.set_nodelay(true)?;
        let accepting = timeout(limits.handshake, self.tls.accept(stream));
        let stream = accepting.await.map_err(|_| Ended::SlowHandshake)??;

        // HTTP/2 has frames that belong to no request: what was begun cannot be told from bytes.
        let has_heads = stream.get_ref().1.alpn_protocol() != Some(b"h2");
        let activity = Arc::new(Activity::new(has_heads));
        let stream = Watched::new(stream, Arc::clone(&activity));
        let phases = self.phases.clone();
        let service = service_fn(|request| {
            answer(self.router.clone(), request, limits.request, Arc::clone(&activity), phases.clone())
        });
        let builder = builder(limits);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let overdue = async {
            loop {
                match activity.deadline(&limits) {
                    deadline if deadline <= tokio::time::Instant::now() => return,
                    deadline => sleep_until(deadline).await,
                }
            }
        };
        tokio::select! {
            ended = connection.as_mut() => return Ok(ended?),
            _ = self.phases.wait_for(|phase| *phase == Phase::Ending) => {}
            () = overdue => {}
        }
        // Answers what is under way and takes nothing new. A request that has only begun is not under way.
        connection.as_mut().graceful_shutdown();
        let patience = if activity.is_busy() { limits.drain } else { Duration::from_millis(100) };
        timeout(patience, connection).await.map_err(|_| Ended::Stuck)?.map_err(Ended::from)
    }
}

fn builder(limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        // Its clock runs between requests as well; see `Activity` for one that does not.
        .header_read_timeout(None)
        .max_headers(64)
        .max_buf_size(64 << 10);
    builder
        .http2()
        // Without a timer hyper forgets its timeouts, and says nothing.
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
    phases: watch::Receiver<Phase>,
) -> Result<Response<Body>, Infallible> {
    let _busy = activity.busy();
    let version = request.version();
    let mut response = match timeout(limit, router.oneshot(request.map(Body::new))).await {
        Ok(Ok(answered)) => answered,
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response(),
    };
    // So that the caller turns to another replica next time. HTTP/2 has no such header: it is told at the end.
    if *phases.borrow() > Phase::Serving && version <= Version::HTTP_11 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}
