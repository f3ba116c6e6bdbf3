//! The admin port, for kubelet, Prometheus and the controller.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service;

use super::metrics;
use crate::environments::state::State;
use crate::http::answer::{Answer, Kind};
use crate::http::body::{Body, Buffer};
use crate::http::budget::Ticket;
use crate::http::progress::Progress;

/// Answers the requests of one connection.
pub(crate) struct Admin {
    state: Arc<State>,
    progress: Arc<Progress>,
}

impl Admin {
    /// Creates the service of a connection.
    pub(crate) fn new(state: Arc<State>, progress: Arc<Progress>) -> Admin {
        Admin { state, progress }
    }
}

impl Service<Request<Incoming>> for Admin {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        self.progress.receiving();
        let (parts, _) = request.into_parts();
        Answering {
            state: Arc::clone(&self.state),
            progress: Arc::clone(&self.progress),
            parts: Some(parts),
            ticket: Ticket::default(),
        }
    }
}

/// An answer that may wait until the budget of answers has room.
pub(crate) struct Answering {
    state: Arc<State>,
    progress: Arc<Progress>,
    /// The request. `None` once it has been answered.
    parts: Option<Parts>,
    ticket: Ticket,
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Answering { state, progress, parts, ticket } = &mut *self;
        if parts.as_ref().is_some_and(|parts| BUILT.contains(&parts.uri.path())) {
            ready!(state.in_flight.answers.poll_room(1, ticket, cx));
        }
        let Some(parts) = parts.take() else { return Poll::Pending };
        let mut answer = if parts.method == Method::GET || parts.method == Method::HEAD {
            answer(state, parts.uri.path())
        } else {
            Answer::method_not_allowed("GET, HEAD")
        };
        answer.note(progress);
        Poll::Ready(Ok(answer.into_response(parts.headers, state.is_draining())))
    }
}

/// Paths whose answers are built. All others are constants, so that probes never wait for the budget.
const BUILT: [&str; 2] = ["/metrics", "/revisions"];

fn answer(state: &State, path: &str) -> Answer {
    const LINE: fn(StatusCode, &'static str) -> Answer =
        |status, line| Answer::new(status, Kind::Text, Body::constant(line.as_bytes()));
    match path {
        // The same event loop answers all requests, so an answer proves that it runs.
        "/healthz" => LINE(StatusCode::OK, "ok\n"),
        "/readyz" if state.is_ready() => LINE(StatusCode::OK, "ok\n"),
        "/readyz" => LINE(StatusCode::SERVICE_UNAVAILABLE, WAITING),
        "/startupz" if state.is_complete() => LINE(StatusCode::OK, "ok\n"),
        "/startupz" if state.started.elapsed() >= state.patience => {
            LINE(StatusCode::OK, "not all is here yet, but waited for long enough: let the application start\n")
        }
        "/startupz" if state.is_ready() => LINE(StatusCode::SERVICE_UNAVAILABLE, INCOMPLETE),
        "/startupz" => LINE(StatusCode::SERVICE_UNAVAILABLE, WAITING),
        "/metrics" => {
            let mut buffer = Buffer::take();
            buffer.bytes().extend_from_slice(metrics::render(state).as_bytes());
            Answer::new(StatusCode::OK, Kind::Metrics, Body::built(buffer))
        }
        "/revisions" => {
            let mut buffer = Buffer::take();
            buffer.bytes().extend_from_slice(revisions(state).as_bytes());
            Answer::new(StatusCode::OK, Kind::Text, Body::built(buffer))
        }
        _ => LINE(StatusCode::NOT_FOUND, "there are /healthz, /readyz, /startupz, /revisions and /metrics\n"),
    }
}

/// Lists the served revisions, for the controller: one line with name and revision for each environment that has a
/// snapshot.
fn revisions(state: &State) -> String {
    let mut text = String::new();
    for environment in &state.environments {
        if let Some(loaded) = environment.loaded.load().as_ref() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {}", environment.name, loaded.snapshot.revision());
        }
    }
    text
}

const INCOMPLETE: &str =
    "of at least one environment something is missing or was refused: identity overrides, or the document\n";
const WAITING: &str = "no snapshot yet for at least one environment: is its FeatureEnvironment there, and Ready?\n";
