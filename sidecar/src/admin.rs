//! The admin port: what kubelet, Prometheus and the controller ask.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::{Ready, ready};
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service;

use crate::answer::{Answer, Kind};
use crate::body::{Body, Buffer};
use crate::connections::Progress;
use crate::environment::State;
use crate::metrics;

/// Answers the requests of one connection.
pub(crate) struct Admin {
    state: Arc<State>,
    progress: Arc<Progress>,
}

impl Admin {
    /// For a connection.
    pub(crate) fn new(state: Arc<State>, progress: Arc<Progress>) -> Admin {
        Admin { state, progress }
    }
}

impl Service<Request<Incoming>> for Admin {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.progress.receiving();
        let (parts, _) = request.into_parts();
        let answer = if parts.method == Method::GET || parts.method == Method::HEAD {
            answer(&self.state, parts.uri.path())
        } else {
            Answer::method_not_allowed("GET, HEAD")
        };
        self.progress.answering();
        ready(Ok(answer.into_response(parts.headers, self.state.is_draining())))
    }
}

fn answer(state: &State, path: &str) -> Answer {
    const LINE: fn(StatusCode, &'static str) -> Answer =
        |status, line| Answer::new(status, Kind::Text, Body::constant(line.as_bytes()));
    match path {
        // Whoever reads this has been answered by the loop that answers everything else.
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

/// What is served, a line for each environment that has something: its name and the revision. The controller asks for it.
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
