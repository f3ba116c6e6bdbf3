//! The data port: receives a request within its limits, answers it, and counts the answer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::Service;

use super::respond::respond;
use crate::environments::state::State;
use crate::http::answer::Answer;
use crate::http::body::Body;
use crate::http::budget::Ticket;
use crate::http::cors::Grant;
use crate::http::host;
use crate::http::progress::Progress;
use crate::http::received::{MAX_BODY, Received};
use crate::routes::Route;

/// Listener that a connection came through, which decides which clients can reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// The port, which programs of the pod and pages in a developer's browser can reach.
    Port,
    /// The Unix socket, which only programs with the socket in their file system can reach.
    Socket,
}

/// Answers the requests of one connection.
pub(crate) struct Data(Arc<Connection>);

/// State that the requests of one connection share. A request that waits for its body holds a reference.
struct Connection {
    state: Arc<State>,
    progress: Arc<Progress>,
    listener: ListenerKind,
}

impl Data {
    /// Creates the service of a connection.
    pub(crate) fn new(state: Arc<State>, progress: Arc<Progress>, listener: ListenerKind) -> Data {
        Data(Arc::new(Connection { state, progress, listener }))
    }
}

impl Service<Request<Incoming>> for Data {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        self.0.progress.receiving();
        let (mut parts, body) = request.into_parts();
        if self.0.listener == ListenerKind::Port && !host::is_local(&parts) {
            return Answering::Ready(Some(answer(&self.0, &mut parts, Err(MISDIRECTED))));
        }
        let reads = parts.method == Method::POST && Route::of(parts.uri.path()).reads_body();
        if !reads && !self.0.state.in_flight.answers.is_used_up() {
            return Answering::Ready(Some(answer(&self.0, &mut parts, Ok(&[]))));
        }
        let connection = Arc::clone(&self.0);
        let body = reads.then_some(body);
        Answering::Reading(Reading {
            connection,
            parts,
            body,
            received: Received::default(),
            ticket: Ticket::default(),
        })
    }
}

const MISDIRECTED: Answer = Answer::constant(
    StatusCode::MISDIRECTED_REQUEST,
    "{\"detail\":\"the Host header does not name this machine: send the request to 127.0.0.1 or localhost, with that name as its Host\"}",
);

/// An answer that is ready, or a request that is still being read.
pub(crate) enum Answering {
    Ready(Option<Response<Body>>),
    Reading(Reading),
}

/// A request whose body is being received, or that waits for the budget of answers.
pub(crate) struct Reading {
    connection: Arc<Connection>,
    parts: Parts,
    /// The body, or `None` if the route does not read it.
    body: Option<Incoming>,
    received: Received,
    ticket: Ticket,
}

impl Reading {
    /// Receives the body. An error is the answer to send.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Answer>> {
        const TOO_LARGE: Answer = Answer::constant(
            StatusCode::PAYLOAD_TOO_LARGE,
            "{\"detail\":\"the body is larger than 1048576 bytes: send fewer traits\"}",
        );
        const NO_MEMORY: Answer = Answer::constant(
            StatusCode::SERVICE_UNAVAILABLE,
            "{\"detail\":\"the system has no memory for the body: try again later\"}",
        );
        let Reading { connection, body, received, ticket, .. } = self;
        let Some(body) = body else { return Poll::Ready(Ok(())) };
        if body.size_hint().lower() > MAX_BODY as u64 {
            return Poll::Ready(Err(TOO_LARGE));
        }
        while !body.is_end_stream() {
            if received.needs_reservation() {
                // The whole body is reserved at once: bodies that each hold a part of the budget would block one
                // another.
                let expected = received.expected(&body.size_hint());
                ready!(connection.state.in_flight.bodies.poll_capacity(expected, ticket, cx));
                received.reserve(connection.progress.reserve_body(expected), expected);
            }
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else {
                received.keep();
                return Poll::Pending;
            };
            match frame {
                Some(Ok(frame)) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    if received.bytes().len() + bytes.len() > MAX_BODY {
                        return Poll::Ready(Err(TOO_LARGE));
                    }
                    if received.add(bytes).is_err() {
                        return Poll::Ready(Err(NO_MEMORY));
                    }
                }
                Some(Err(_)) => {
                    let broken = "{\"detail\":\"the body ended before it was complete: send as many bytes as Content-Length declares\"}";
                    return Poll::Ready(Err(Answer::constant(StatusCode::BAD_REQUEST, broken)));
                }
                None => break,
            }
        }
        // The answer may have to wait for its budget, and the client can do nothing about that.
        received.complete();
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
        let received = match ready!(reading.poll_body(cx)) {
            Ok(()) => {
                ready!(reading.connection.state.in_flight.answers.poll_capacity(1, &mut reading.ticket, cx));
                Ok(reading.received.bytes())
            }
            Err(refusal) => Err(refusal),
        };
        let response = answer(&reading.connection, &mut reading.parts, received);
        *answering = Answering::Ready(None);
        Poll::Ready(Ok(response))
    }
}

/// Answers a request that was received, or sends the refusal.
fn answer(connection: &Connection, parts: &mut Parts, received: Result<&[u8], Answer>) -> Response<Body> {
    let Connection { state, progress, .. } = connection;
    let began = Instant::now();
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
    answer.track(progress);
    let mut response = answer.into_response(std::mem::take(&mut parts.headers), state.is_draining());
    if let Some(grant) = grant {
        grant.write(response.headers_mut());
    }
    state.latency.count(began.elapsed());
    response
}
