//! Connection, from its handshake to its end.

use std::{io, pin::pin, sync::Arc, time::Duration};

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
use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
    sync::watch,
    time::{sleep_until, timeout, timeout_at},
};
use tower::ServiceExt;

use super::{
    Limits, Transport,
    activity::{Activity, TrackedStream},
    answer::counted,
    limits::Shutdown,
    slots::Slot,
};

/// Size in bytes of a socket's send buffer, of which Linux makes twice as many. By default it grows to megabytes, which
/// count as memory of the pod and not as unread bytes.
const SEND_BUFFER: usize = 32 << 10;

/// Bytes that TLS encrypts ahead of the send buffer. They do not count as unread bytes either, and the default is four
/// times as many.
const TLS_BUFFER: usize = 16 << 10;

/// Marker of a useful answer, after which the caller's address is known. Handlers add it to the extensions of the
/// answer.
#[derive(Clone, Copy, Debug)]
pub struct Useful;

/// Dependencies of a connection.
pub(super) struct Connection {
    pub(super) transport: Transport,
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) phases: watch::Receiver<Shutdown>,
    pub(super) slot: Slot,
}

/// Reason why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("the TLS handshake took too long")]
    SlowHandshake,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("the connection did not end in time after it was asked to")]
    Stuck,
}

impl Connection {
    /// Answers requests until either side ends the connection.
    pub(super) async fn serve(self, stream: TcpStream) -> Result<(), ConnectionError> {
        // Answers are small, and a caller waits for each of them.
        stream.set_nodelay(true)?;
        bound_send_buffer(&stream, &self.limits)?;
        match self.transport.clone() {
            Transport::Plain => self.answer_all(stream).await,
            Transport::Tls(tls) => {
                // Limits the bytes of the handshake. The limit is lifted when the handshake is complete.
                let (reader, writer) = stream.into_split();
                let limited = reader.take(self.limits.handshake_bytes as u64);
                let accepting = timeout(self.limits.handshake, tls.accept(tokio::io::join(limited, writer)));
                let mut stream = accepting.await.map_err(|_| ConnectionError::SlowHandshake)??;
                let (io, tls) = stream.get_mut();
                io.reader_mut().set_limit(u64::MAX);
                tls.set_buffer_limit(Some(TLS_BUFFER));
                self.answer_all(stream).await
            }
        }
    }

    async fn answer_all(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send) -> Result<(), ConnectionError> {
        let limits = self.limits;
        let activity = Arc::new(Activity::new());
        let stream = TrackedStream::new(stream, Arc::clone(&activity));
        let service = service_fn(|request| answer(&self.router, request, &self.slot, &limits, &activity, &self.phases));
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
            _ = phases.wait_for(|phase| *phase == Shutdown::Ending) => {}
            () = overdue => {}
        }
        // Answers the request under way and accepts no new one. A request whose head is incomplete is not under way.
        connection.as_mut().graceful_shutdown();
        let grace = if activity.is_busy() { limits.drain } else { Duration::from_millis(100) };
        timeout(grace, connection).await.map_err(|_| ConnectionError::Stuck)?.map_err(ConnectionError::from)
    }
}

/// Bounds what the kernel holds of answers, in bytes and in time. Without the timeout it holds the rest of a connection
/// that was closed for as long as a caller that reads nothing stays.
fn bound_send_buffer(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER)?;
    let millis = u32::try_from(limits.request.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, millis)?;
    Ok(())
}

fn builder(limits: Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // hyper's timer also runs between requests. `Activity` has a timer that does not.
        .header_read_timeout(None)
        .max_headers(64)
        .max_buf_size(limits.head_bytes);
    builder
}

/// Answers one request within its time limit and with its reservation of bytes.
async fn answer(
    router: &Router,
    request: Request<Incoming>,
    slot: &Slot,
    limits: &Limits,
    activity: &Arc<Activity>,
    phases: &watch::Receiver<Shutdown>,
) -> Result<Response<Body>, axum::Error> {
    let _busy = activity.busy();
    let mut answer = match complete(router, request, slot, limits).await {
        Ok(answer) => answer,
        Err(refusal) => refusal.into_response(),
    };
    slot.answered(answer.extensions_mut().remove::<Useful>().is_some());
    let (head, body) = answer.into_parts();
    let mut answer = Response::from_parts(head, counted(body, slot).await?);
    // The header makes the caller connect to another replica next time.
    if *phases.borrow() > Shutdown::Serving {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(answer)
}

/// Reason why a request does not reach the router, or gets no answer from it in time.
#[derive(Clone, Copy, Debug)]
enum RequestError {
    NoLength,
    TooLarge,
    Overloaded,
    SlowBody,
    BrokenBody,
    Slow,
}

impl IntoResponse for RequestError {
    fn into_response(self) -> axum::response::Response {
        let (status, text) = match self {
            RequestError::NoLength => (StatusCode::LENGTH_REQUIRED, "the request has no content-length: send one\n"),
            RequestError::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than this port accepts: send a smaller one\n")
            }
            RequestError::Overloaded => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many request bodies are in progress: try again later\n")
            }
            RequestError::SlowBody => {
                (StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive: send it faster\n")
            }
            RequestError::BrokenBody => {
                (StatusCode::BAD_REQUEST, "the body ended before its content-length: send all of it\n")
            }
            RequestError::Slow => (StatusCode::REQUEST_TIMEOUT, "the answer took too long: try again later\n"),
        };
        let mut response = (status, text).into_response();
        // The rest of an unread body would be parsed as the head of the next request.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

async fn complete(
    router: &Router,
    request: Request<Incoming>,
    slot: &Slot,
    limits: &Limits,
) -> Result<Response<Body>, RequestError> {
    let deadline = tokio::time::Instant::now() + limits.request;
    let (head, body) = request.into_parts();
    let length = body.size_hint().exact().ok_or(RequestError::NoLength)?;
    let length = usize::try_from(length).map_err(|_| RequestError::TooLarge)?;
    if length > limits.largest_body {
        return Err(RequestError::TooLarge);
    }
    timeout_at(deadline, slot.reserve(length)).await.map_err(|_| RequestError::Overloaded)?;
    let reading = timeout(limits.body, read(body, length));
    let body = timeout_at(deadline, reading)
        .await
        .map_err(|_| RequestError::SlowBody)?
        .map_err(|_| RequestError::SlowBody)??;
    slot.answering();
    let request = Request::from_parts(head, Body::from(body));
    match timeout_at(deadline, router.clone().oneshot(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Err(_) => Err(RequestError::Slow),
    }
}

/// Reads a whole body into one buffer, which is allocated once.
async fn read(mut body: Incoming, length: usize) -> Result<Bytes, RequestError> {
    let mut whole = Vec::with_capacity(length);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|_| RequestError::BrokenBody)?.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.into())
}
