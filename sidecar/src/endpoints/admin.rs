//! The admin port, for kubelet, Prometheus and the controller.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::Future;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service;

use super::metrics;
use crate::environments::state::{Environment, State};
use crate::http::answer::{Answer, ContentType};
use crate::http::body::{Body, Buffer};
use crate::http::budget::Ticket;
use crate::http::progress::Progress;
use crate::json;

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
        if parts.as_ref().is_some_and(|parts| is_budgeted(parts.uri.path())) {
            ready!(state.admin_in_flight.answers.poll_capacity(1, ticket, cx));
        }
        let Some(parts) = parts.take() else { return Poll::Pending };
        let mut answer = if parts.method == Method::GET || parts.method == Method::HEAD {
            answer(state, parts.uri.path())
        } else {
            Answer::method_not_allowed("GET, HEAD")
        };
        answer.track(progress);
        Poll::Ready(Ok(answer.into_response(parts.headers, state.is_draining())))
    }
}

/// True if the answer counts in the budget. All other answers are short, so that probes never wait for the budget.
fn is_budgeted(path: &str) -> bool {
    matches!(path, "/metrics" | "/revisions") || path.starts_with(USES)
}

/// Path of the uses of an environment's flags, before the environment's name.
const USES: &str = "/uses/";

fn answer(state: &State, path: &str) -> Answer {
    match path {
        // The same event loop answers all requests, so an answer proves that it runs.
        "/healthz" => line(StatusCode::OK, "ok\n"),
        "/readyz" => match state.first_not_loaded() {
            None => line(StatusCode::OK, "ok\n"),
            Some(environment) => not_loaded(environment),
        },
        "/startupz" => match state.first_incomplete() {
            None => line(StatusCode::OK, "ok\n"),
            Some(environment) if state.started.elapsed() >= state.startup_timeout => built(
                StatusCode::OK,
                format_args!(
                    "the startup timeout has passed: the application may start, but environment {:?} is incomplete\n",
                    environment.name
                ),
            ),
            Some(environment) if environment.loaded.load().is_some() => built(
                StatusCode::SERVICE_UNAVAILABLE,
                format_args!(
                    "environment {:?}: identity overrides or the document are missing or were refused; see the log of the sidecar\n",
                    environment.name
                ),
            ),
            Some(environment) => not_loaded(environment),
        },
        "/metrics" => {
            let mut buffer = Buffer::take();
            buffer.bytes().extend_from_slice(metrics::render(state).as_bytes());
            Answer::new(StatusCode::OK, ContentType::Metrics, Body::built(buffer))
        }
        "/revisions" => {
            let mut buffer = Buffer::take();
            buffer.bytes().extend_from_slice(revisions(state).as_bytes());
            Answer::new(StatusCode::OK, ContentType::Text, Body::built(buffer))
        }
        _ => match path.strip_prefix(USES).map(|name| state.named(name)) {
            Some(Some(environment)) => uses(state, environment),
            Some(None) => line(StatusCode::NOT_FOUND, "this sidecar serves no environment of this name\n"),
            None => line(
                StatusCode::NOT_FOUND,
                "the admin port has no such path: it has /healthz, /readyz, /startupz, /revisions, /uses/ENVIRONMENT and /metrics\n",
            ),
        },
    }
}

/// Answers with a constant line of text.
fn line(status: StatusCode, line: &'static str) -> Answer {
    Answer::new(status, ContentType::Text, Body::constant(line.as_bytes()))
}

/// Answers with a line of text that names an environment. It is too short to count in the budget of answers.
fn built(status: StatusCode, line: std::fmt::Arguments<'_>) -> Answer {
    let mut buffer = Buffer::take();
    buffer.bytes().extend_from_slice(line.to_string().as_bytes());
    Answer::new(status, ContentType::Text, Body::built(buffer))
}

fn not_loaded(environment: &Environment) -> Answer {
    built(
        StatusCode::SERVICE_UNAVAILABLE,
        format_args!(
            "environment {:?} has no snapshot yet: check that its FeatureEnvironment exists and is Ready\n",
            environment.name
        ),
    )
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

/// Answers how often each flag was used since the process began. The request changes nothing, so the controller repeats it
/// if the answer is lost. By `process` and `ageMs`, the controller finds the uses that it has not counted yet.
fn uses(state: &State, environment: &Environment) -> Answer {
    let mut buffer = Buffer::take();
    let out = buffer.bytes();
    // Writing to a vector cannot fail.
    let _ = write!(
        out,
        "{{\"process\":\"{:016x}\",\"ageMs\":{},\"uses\":{{",
        state.process,
        state.started.elapsed().as_millis()
    );
    let mut is_first = true;
    environment.each_use(|flag, count| {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        json::write_string(flag, out);
        let _ = write!(out, ":{count}");
    });
    out.extend_from_slice(b"}}\n");
    Answer::built(StatusCode::OK, buffer)
}
