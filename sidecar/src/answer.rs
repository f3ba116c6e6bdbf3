//! Answers: a status, a body, and the few headers that there are.

use std::sync::Arc;

use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::assignment::{self, Assignment};
use crate::body::{Body, Buffer};
use crate::json;
use crate::progress::Progress;

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There is none.
    Nothing,
    /// JSON.
    Json,
    /// Server-sent events.
    Events,
    /// Prometheus' text format.
    Metrics,
    /// A line for people.
    Text,
}

impl Kind {
    /// Constants: making one of a text looks at each of its bytes.
    fn content_type(self) -> Option<HeaderValue> {
        const JSON: HeaderValue = HeaderValue::from_static("application/json");
        const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
        const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");
        const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
        match self {
            Kind::Nothing => None,
            Kind::Json => Some(JSON),
            Kind::Events => Some(EVENTS),
            Kind::Metrics => Some(METRICS),
            Kind::Text => Some(TEXT),
        }
    }
}

/// An answer that has not become HTTP yet.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    kind: Kind,
    body: Body,
    assignment: Option<Assignment>,
    /// Few answers have others.
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Answer {
    /// An answer with a body.
    pub(crate) const fn new(status: StatusCode, kind: Kind, body: Body) -> Answer {
        Answer { status, kind, body, assignment: None, headers: Vec::new() }
    }

    /// A status and nothing else.
    pub(crate) const fn empty(status: StatusCode) -> Answer {
        Answer::new(status, Kind::Nothing, Body::EMPTY)
    }

    /// JSON that is in the binary.
    pub(crate) const fn constant(status: StatusCode, json: &'static str) -> Answer {
        Answer::new(status, Kind::Json, Body::constant(json.as_bytes()))
    }

    /// JSON that was put together.
    pub(crate) fn built(status: StatusCode, buffer: Buffer) -> Answer {
        Answer::new(status, Kind::Json, Body::built(buffer))
    }

    /// The edge proxy's form of an error: `text` comes between the message's beginning and end.
    pub(crate) fn failure(status: StatusCode, name: &str, before: &str, text: &str, after: &str) -> Answer {
        let mut buffer = Buffer::take();
        let out = buffer.bytes();
        out.extend_from_slice(b"{\"status\":\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\",\"message\":");
        json::write_string(&format!("{before}{text}{after}"), out);
        out.push(b'}');
        Answer::built(status, buffer)
    }

    /// The method is not one of those that the route has.
    pub(crate) fn method_not_allowed(allowed: &'static str) -> Answer {
        Answer::constant(StatusCode::METHOD_NOT_ALLOWED, "{\"detail\":\"Method Not Allowed\"}")
            .with(ALLOW, HeaderValue::from_static(allowed))
    }

    /// The same with one more header.
    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Answer {
        self.headers.push((name, value));
        self
    }

    /// The same with the name of the flags in it.
    pub(crate) fn assigned(mut self, assignment: Assignment) -> Answer {
        self.assignment = Some(assignment);
        self
    }

    /// Notes how far the connection is with it.
    pub(crate) fn note(&mut self, progress: &Arc<Progress>) {
        progress.answering();
        self.body.attend(progress);
    }

    /// Makes it HTTP. `headers` are the request's: their memory goes back to the connection as the
    /// answer's, so that no request allocates a map of headers.
    pub(crate) fn into_response(self, mut headers: HeaderMap, last: bool) -> Response<Body> {
        headers.clear();
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = headers;
        let headers = response.headers_mut();
        if let Some(content_type) = self.kind.content_type() {
            headers.insert(CONTENT_TYPE, content_type);
        }
        if let Some(value) = self.assignment.and_then(Assignment::header) {
            headers.insert(assignment::HEADER, value);
        }
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        if last {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
