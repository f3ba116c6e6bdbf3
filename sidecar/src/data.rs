//! The data port: a request is received, bounded, counted and answered.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::Service;

use crate::answer::Answer;
use crate::body::{Body, Buffer};
use crate::connections::Progress;
use crate::cors::Grant;
use crate::environment::State;
use crate::respond::respond;
use crate::routes::Route;

/// The largest body that is read.
const MAX_BODY: usize = 1024 * 1024;

/// Answers the requests of one connection.
pub(crate) struct Data(Arc<Connection>);

/// What the requests of one connection share; each that waits for its body holds it.
struct Connection {
    state: Arc<State>,
    progress: Arc<Progress>,
}

impl Data {
    /// For a connection.
    pub(crate) fn new(state: Arc<State>, progress: Arc<Progress>) -> Data {
        Data(Arc::new(Connection { state, progress }))
    }
}

impl Service<Request<Incoming>> for Data {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        self.0.progress.receiving();
        let (mut parts, body) = request.into_parts();
        let reads = parts.method == Method::POST && Route::of(parts.uri.path()).reads_body();
        if !reads {
            return Answering::Ready(Some(answer(&self.0, &mut parts, Ok(&[]))));
        }
        let connection = Arc::clone(&self.0);
        Answering::Reading(Reading { connection, parts, body, received: Received::default() })
    }
}

/// An answer that is there, or that waits for the request's body.
pub(crate) enum Answering {
    Ready(Option<Response<Body>>),
    Reading(Reading),
}

/// A request whose body is being received.
pub(crate) struct Reading {
    connection: Arc<Connection>,
    parts: Parts,
    body: Incoming,
    received: Received,
}

/// A body, as far as it has come: usually it comes at once, and then it stays where it is.
#[derive(Default)]
enum Received {
    #[default]
    Nothing,
    Once(Bytes),
    Collected(Buffer),
}

impl Received {
    fn bytes(&self) -> &[u8] {
        match self {
            Received::Nothing => &[],
            Received::Once(bytes) => bytes,
            Received::Collected(buffer) => buffer.as_ref(),
        }
    }

    fn add(&mut self, bytes: Bytes) {
        *self = match std::mem::take(self) {
            Received::Nothing => Received::Once(bytes),
            Received::Once(first) => {
                let mut buffer = Buffer::take();
                buffer.bytes().extend_from_slice(&first);
                buffer.bytes().extend_from_slice(&bytes);
                Received::Collected(buffer)
            }
            Received::Collected(mut buffer) => {
                buffer.bytes().extend_from_slice(&bytes);
                Received::Collected(buffer)
            }
        };
    }
}

impl Reading {
    /// Receives the body; a failure is the answer.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Answer>> {
        const TOO_LARGE: Answer = Answer::constant(
            StatusCode::PAYLOAD_TOO_LARGE,
            "{\"detail\":\"the body is larger than 1048576 bytes: send fewer traits\"}",
        );
        if self.body.size_hint().lower() > MAX_BODY as u64 {
            return Poll::Ready(Err(TOO_LARGE));
        }
        while !self.body.is_end_stream() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    if self.received.bytes().len() + bytes.len() > MAX_BODY {
                        return Poll::Ready(Err(TOO_LARGE));
                    }
                    self.received.add(bytes);
                }
                Some(Err(_)) => {
                    let broken = "{\"detail\":\"the body ended before it was complete\"}";
                    return Poll::Ready(Err(Answer::constant(StatusCode::BAD_REQUEST, broken)));
                }
                None => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answering = self.get_mut();
        let reading = match answering {
            Answering::Ready(response) => {
                return response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)));
            }
            Answering::Reading(reading) => reading,
        };
        let received = ready!(reading.poll_body(cx)).map(|()| reading.received.bytes());
        let response = answer(&reading.connection, &mut reading.parts, received);
        *answering = Answering::Ready(None);
        Poll::Ready(Ok(response))
    }
}

/// Answers a request that has been received, or that could not be.
fn answer(connection: &Connection, parts: &mut Parts, received: Result<&[u8], Answer>) -> Response<Body> {
    let Connection { state, progress } = connection;
    let route = Route::of(parts.uri.path());
    let mut answer = match received {
        Ok(body) => respond(state, route, parts, body),
        Err(answer) => answer,
    };
    let grant = state.cors.grant(parts);
    if grant.as_ref().is_some_and(Grant::is_preflight) {
        answer = Answer::empty(StatusCode::NO_CONTENT);
    }
    state.requests.count(route, answer.status);
    answer.note(progress);
    let mut response = answer.into_response(std::mem::take(&mut parts.headers), state.is_draining());
    if let Some(grant) = grant {
        grant.write(response.headers_mut());
    }
    response
}
