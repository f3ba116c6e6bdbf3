//! Answers a request that has been received completely, by its route and its method.

use http::request::Parts;
use http::{Method, StatusCode};

use super::{flagsmith, ofrep};
use crate::environments::state::State;
use crate::http::answer::{Answer, ContentType};
use crate::http::body::Body;
use crate::routes::{Route, decode};

/// Answers a request that has been received completely.
pub(crate) fn respond(state: &State, route: Route<'_>, parts: &Parts, body: &[u8]) -> Answer {
    let read = parts.method == Method::GET || parts.method == Method::HEAD;
    let post = parts.method == Method::POST;
    match route {
        Route::Flags if read => flagsmith::with_flags(state, parts, |environment, loaded, role| {
            flagsmith::flags(environment, loaded, role, parts)
        }),
        Route::Identities | Route::Assignment if read => {
            flagsmith::with_flags(state, parts, |environment, loaded, role| {
                flagsmith::identity_in_query(environment, loaded, role, route, parts.uri.query())
            })
        }
        Route::Identities | Route::Assignment if post => {
            flagsmith::with_flags(state, parts, |environment, loaded, role| {
                flagsmith::identity_in_body(environment, loaded, role, route, body)
            })
        }
        Route::Document if read => flagsmith::environment_document(state, parts),
        Route::Analytics if post => {
            flagsmith::with_key(state, parts, |environment, loaded, _| flagsmith::uses(environment, loaded, body))
        }
        Route::OfrepFlag(key) if post => {
            let mut decoded = String::new();
            let key = decode(key, false, &mut decoded);
            ofrep::with_flags(state, parts, Some(key), |environment, loaded, role| {
                ofrep::flag(environment, loaded, role, key, body)
            })
        }
        Route::OfrepFlags if post => ofrep::with_flags(state, parts, None, |environment, loaded, role| {
            ofrep::flags(environment, loaded, role, parts, body)
        }),
        Route::Realtime(key) if parts.method == Method::GET => {
            let mut decoded = String::new();
            flagsmith::realtime(state, parts, decode(key, false, &mut decoded))
        }
        Route::OfrepStream if parts.method == Method::GET => ofrep::stream(state, parts),
        Route::Health if read => match state.health() {
            Some(health) => Answer::new(StatusCode::OK, ContentType::Json, Body::prepared(health)),
            None => Answer::constant(
                StatusCode::SERVICE_UNAVAILABLE,
                r#"{"status":"error","reason":"environment document(s) not updated.","last_successful_update":null}"#,
            ),
        },
        Route::Liveness if read => Answer::empty(StatusCode::OK),
        Route::Unknown => Answer::constant(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#),
        other => Answer::method_not_allowed(other.allowed()),
    }
}
