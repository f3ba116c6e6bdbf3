//! Event streams of both dialects.

use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, StatusCode};

use super::headers::{LAST_EVENT_ID, text};
use crate::environments::state::{Environment, State};
use crate::environments::stream::{Dialect, Full};
use crate::http::answer::{Answer, ContentType};
use crate::http::body::Body;

/// Answers a client that listens to the changes of an environment.
pub(super) fn answer(state: &State, environment: &Environment, dialect: Dialect, parts: &Parts) -> Answer {
    match state.streams.listen(&environment.changes, dialect, text(parts, &LAST_EVENT_ID)) {
        Ok(events) => Answer::new(StatusCode::OK, ContentType::Events, Body::events(events))
            .with(CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        Err(Full) => Answer::constant(
            StatusCode::SERVICE_UNAVAILABLE,
            "{\"detail\":\"too many streams are open: try again later\"}",
        )
        .with(RETRY_AFTER, HeaderValue::from_static("30")),
    }
}
