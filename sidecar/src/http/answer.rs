//! Answers: a status, a body, and few headers.

use std::sync::Arc;

use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::http::body::{Body, Buffer};
use crate::http::progress::Progress;
use crate::json;

/// Content type of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentType {
    /// No body.
    NoBody,
    /// JSON.
    Json,
    /// Server-sent events.
    Events,
    /// Prometheus' text format.
    Metrics,
    /// Plain text.
    Text,
}

impl ContentType {
    /// Returns the value of the `Content-Type` header. The values are constants, because parsing one checks each of its
    /// bytes.
    fn header(self) -> Option<HeaderValue> {
        const JSON: HeaderValue = HeaderValue::from_static("application/json");
        const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
        const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");
        const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
        match self {
            ContentType::NoBody => None,
            ContentType::Json => Some(JSON),
            ContentType::Events => Some(EVENTS),
            ContentType::Metrics => Some(METRICS),
            ContentType::Text => Some(TEXT),
        }
    }
}

/// An answer that is not yet an HTTP response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    content_type: ContentType,
    body: Body,
    /// The first two additional headers, which need no allocation.
    first_headers: [Option<(HeaderName, HeaderValue)>; 2],
    /// Further headers, which few answers have.
    more_headers: Vec<(HeaderName, HeaderValue)>,
}

impl Answer {
    /// Creates an answer with a body.
    pub(crate) const fn new(status: StatusCode, content_type: ContentType, body: Body) -> Answer {
        Answer { status, content_type, body, first_headers: [const { None }; 2], more_headers: Vec::new() }
    }

    /// Creates an answer without a body.
    pub(crate) const fn empty(status: StatusCode) -> Answer {
        Answer::new(status, ContentType::NoBody, Body::EMPTY)
    }

    /// Creates an answer of constant JSON.
    pub(crate) const fn constant(status: StatusCode, json: &'static str) -> Answer {
        Answer::new(status, ContentType::Json, Body::constant(json.as_bytes()))
    }

    /// Creates an answer of JSON in a buffer.
    pub(crate) fn built(status: StatusCode, buffer: Buffer) -> Answer {
        Answer::new(status, ContentType::Json, Body::built(buffer))
    }

    /// Creates an error in the edge proxy's form. Its message is `before`, `text` and `after` in a row.
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

    /// Creates the answer to a method that the route does not have.
    pub(crate) fn method_not_allowed(allowed: &'static str) -> Answer {
        Answer::constant(StatusCode::METHOD_NOT_ALLOWED, "{\"detail\":\"Method Not Allowed\"}")
            .with(ALLOW, HeaderValue::from_static(allowed))
    }

    /// Adds a header.
    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Answer {
        match self.first_headers.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some((name, value)),
            None => self.more_headers.push((name, value)),
        }
        self
    }

    /// Adds the header that names the overridden flags, if there are any.
    pub(crate) fn overridden(self, flags: Option<&HeaderValue>) -> Answer {
        const HEADER: HeaderName = HeaderName::from_static("x-remora-overrides");
        match flags {
            None => self,
            Some(flags) => self.with(HEADER, flags.clone()),
        }
    }

    /// Notes in the connection's progress that the answer is known, and lets the body note how far it is sent.
    pub(crate) fn track(&mut self, progress: &Arc<Progress>) {
        progress.answering();
        self.body.track(progress);
    }

    /// Converts the answer to an HTTP response. `headers` are those of the request: the response reuses their memory,
    /// so that no request allocates a map of headers. With `last`, the connection is closed after the response.
    pub(crate) fn into_response(self, mut headers: HeaderMap, last: bool) -> Response<Body> {
        headers.clear();
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = headers;
        let headers = response.headers_mut();
        if let Some(content_type) = self.content_type.header() {
            headers.insert(CONTENT_TYPE, content_type);
        }
        for (name, value) in self.first_headers.into_iter().flatten().chain(self.more_headers) {
            headers.insert(name, value);
        }
        if last {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
