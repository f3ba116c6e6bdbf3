//! One connection, from its handshake to its end.

use std::{convert::Infallible, io, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderValue, Request, Response, StatusCode, header},
    response::IntoResponse,
};
use http_body_util::BodyExt;
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
    sync::watch,
    time::{sleep_until, timeout, timeout_at},
};
use tower::ServiceExt;

use super::{
    Limits, Transport,
    activity::{Activity, Watched},
    limits::Phase,
    places::Place,
};

/// A mark on an answer: whoever got it is worth a place. Handlers put it among the answer's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Useful;

/// What a connection needs.
pub(super) struct Connection {
    pub(super) transport: Transport,
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) phases: watch::Receiver<Phase>,
    pub(super) place: Place,
}

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the TLS handshake took too long")]
    SlowHandshake,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("it did not end when asked to")]
    Stuck,
}

impl Connection {
    /// Answers requests until either side has had enough.
    pub(super) async fn serve(self, stream: TcpStream) -> Result<(), Ended> {
        // Answers are small, and somebody waits for each.
        stream.set_nodelay(true)?;
        match self.transport.clone() {
            Transport::Plain => self.answer_all(stream).await,
            Transport::Tls(tls) => {
                // What a handshake may send before it is believed to be one.
                let (reader, writer) = stream.into_split();
                let limited = reader.take(self.limits.handshake_bytes as u64);
                let accepting = timeout(self.limits.handshake, tls.accept(tokio::io::join(limited, writer)));
                let mut stream = accepting.await.map_err(|_| Ended::SlowHandshake)??;
                stream.get_mut().0.reader_mut().set_limit(u64::MAX);
                self.answer_all(stream).await
            }
        }
    }

    async fn answer_all(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send) -> Result<(), Ended> {
        let limits = self.limits;
        let activity = Arc::new(Activity::new());
        let stream = Watched::new(stream, Arc::clone(&activity));
        let service =
            service_fn(|request| answer(&self.router, request, &self.place, &limits, &activity, &self.phases));
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
        let mut phases = self.phases.clone();
        tokio::select! {
            ended = connection.as_mut() => return Ok(ended?),
            _ = phases.wait_for(|phase| *phase == Phase::Ending) => {}
            () = overdue => {}
        }
        // Answers what is under way and takes nothing new. A request that has only begun is not under way.
        connection.as_mut().graceful_shutdown();
        let patience = if activity.is_busy() { limits.drain } else { Duration::from_millis(100) };
        timeout(patience, connection).await.map_err(|_| Ended::Stuck)?.map_err(Ended::from)
    }
}

fn builder(limits: Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // Its clock runs between requests as well; see `Activity` for one that does not.
        .header_read_timeout(None)
        .max_headers(64)
        .max_buf_size(limits.head_bytes);
    builder
}

/// One request, in its time and with its share of bytes.
async fn answer(
    router: &Router,
    request: Request<Incoming>,
    place: &Place,
    limits: &Limits,
    activity: &Arc<Activity>,
    phases: &watch::Receiver<Phase>,
) -> Result<Response<Body>, Infallible> {
    let _busy = activity.busy();
    let mut answer = match complete(router, request, place, limits).await {
        Ok(answer) => answer,
        Err(refusal) => refusal.into_response(),
    };
    place.answered(answer.extensions_mut().remove::<Useful>().is_some());
    // So that the caller turns to another replica next time.
    if *phases.borrow() > Phase::Serving {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(answer)
}

/// Why a request gets no answer of the router's.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    NoLength,
    TooLarge,
    Overloaded,
    SlowBody,
    BrokenBody,
    Slow,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        let (status, text) = match self {
            Refusal::NoLength => (StatusCode::LENGTH_REQUIRED, "the request has no content-length: send one\n"),
            Refusal::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than is read here\n"),
            Refusal::Overloaded => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many bodies are under way: try again later\n")
            }
            Refusal::SlowBody => (StatusCode::REQUEST_TIMEOUT, "the body took too long\n"),
            Refusal::BrokenBody => (StatusCode::BAD_REQUEST, "the body ended early\n"),
            Refusal::Slow => (StatusCode::REQUEST_TIMEOUT, "the request took too long\n"),
        };
        let mut response = (status, text).into_response();
        // The rest of a body that is not read would be taken for the next request's head.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

async fn complete(
    router: &Router,
    request: Request<Incoming>,
    place: &Place,
    limits: &Limits,
) -> Result<Response<Body>, Refusal> {
    let deadline = tokio::time::Instant::now() + limits.request;
    let (head, body) = request.into_parts();
    let length = body.size_hint().exact().ok_or(Refusal::NoLength)?;
    let length = usize::try_from(length).map_err(|_| Refusal::TooLarge)?;
    if length > limits.largest_body {
        return Err(Refusal::TooLarge);
    }
    timeout_at(deadline, place.reserve(length)).await.map_err(|_| Refusal::Overloaded)?;
    let reading = timeout(limits.body, read(body, length));
    let body = timeout_at(deadline, reading).await.map_err(|_| Refusal::SlowBody)?.map_err(|_| Refusal::SlowBody)??;
    place.answering();
    let request = Request::from_parts(head, Body::from(body));
    match timeout_at(deadline, router.clone().oneshot(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Err(_) => Err(Refusal::Slow),
    }
}

/// All of a body, in one piece that never grows.
async fn read(mut body: Incoming, length: usize) -> Result<Bytes, Refusal> {
    let mut whole = Vec::with_capacity(length);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|_| Refusal::BrokenBody)?.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.into())
}
