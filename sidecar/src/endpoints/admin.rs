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
use crate::http::host;
use crate::http::progress::Progress;
use crate::http::shared_page::Waiting;
use crate::json;

/// Answers the requests of one connection.
pub(crate) struct Admin {
    state: Arc<State>,
    progress: Arc<Progress>,
    /// True if the port is bound to a loopback address, so that pages in a developer's browser can reach it, and other
    /// machines cannot.
    is_local: bool,
}

impl Admin {
    /// Creates the service of a connection.
    pub(crate) fn new(state: Arc<State>, progress: Arc<Progress>, is_local: bool) -> Admin {
        Admin { state, progress, is_local }
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
            is_misdirected: self.is_local && !host::is_local(&parts),
            parts: Some(parts),
            ticket: Ticket::default(),
            waiting: Waiting::new(),
        }
    }
}

/// An answer that may wait until the budget of answers has room, and until its page may be rendered.
pub(crate) struct Answering {
    state: Arc<State>,
    progress: Arc<Progress>,
    /// True if the request names another host than this machine.
    is_misdirected: bool,
    /// The request. `None` once it has been answered.
    parts: Option<Parts>,
    ticket: Ticket,
    waiting: Waiting,
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Answering { state, progress, is_misdirected, parts, ticket, waiting } = &mut *self;
        let Some(request) = parts.as_ref() else { return Poll::Pending };
        let path = request.uri.path();
        if is_budgeted(path) && !*is_misdirected {
            ready!(state.admin_in_flight.answers.poll_capacity(1, ticket, cx));
        }
        let mut answer = if *is_misdirected {
            MISDIRECTED
        } else if request.method == Method::GET || request.method == Method::HEAD {
            ready!(poll_answer(state, path, waiting, cx))
        } else {
            Answer::method_not_allowed("GET, HEAD")
        };
        answer.track(progress);
        let headers = parts.take().map(|parts| parts.headers).unwrap_or_default();
        Poll::Ready(Ok(answer.into_response(headers, state.is_draining())))
    }
}

const MISDIRECTED: Answer = Answer::new(
    StatusCode::MISDIRECTED_REQUEST,
    ContentType::Text,
    Body::constant(
        b"the Host header does not name this machine: send the request to 127.0.0.1 or localhost, with that name as its Host\n",
    ),
);

/// True if the answer counts in the budget. All other answers are short, so that probes never wait for the budget.
fn is_budgeted(path: &str) -> bool {
    matches!(path, "/metrics" | "/revisions") || path.starts_with(USES)
}

/// Path of the uses of an environment's flags, before the environment's name.
const USES: &str = "/uses/";

fn poll_answer(state: &State, path: &str, waiting: &mut Waiting, cx: &mut Context<'_>) -> Poll<Answer> {
    Poll::Ready(match path {
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
            let render = || metrics::render(state).into_bytes();
            let page = ready!(state.metrics_page.poll(waiting, cx, render));
            Answer::new(StatusCode::OK, ContentType::Metrics, Body::built(page))
        }
        "/revisions" => {
            let mut buffer = Buffer::take();
            buffer.bytes().extend_from_slice(revisions(state).as_bytes());
            Answer::new(StatusCode::OK, ContentType::Text, Body::built(buffer))
        }
        _ => match path.strip_prefix(USES).map(|name| state.named(name)) {
            Some(Some(environment)) => {
                let page = ready!(environment.uses_page.poll(waiting, cx, || uses(state, environment)));
                Answer::built(StatusCode::OK, page)
            }
            Some(None) => line(StatusCode::NOT_FOUND, "this sidecar serves no environment of this name\n"),
            None => line(
                StatusCode::NOT_FOUND,
                "the admin port has no such path: it has /healthz, /readyz, /startupz, /revisions, /uses/ENVIRONMENT and /metrics\n",
            ),
        },
    })
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

/// Renders how often each flag was used since the process began. A request changes nothing, so the controller repeats
/// it if the answer is lost. By `process` and `ageMs`, the controller finds the uses that it has not counted yet.
fn uses(state: &State, environment: &Environment) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
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
        json::write_string(flag, &mut out);
        let _ = write!(out, ":{count}");
    });
    out.extend_from_slice(b"}}\n");
    out
}
