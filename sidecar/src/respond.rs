//! Answers a request that has been received completely: finds its environment, checks its key, and evaluates.

use std::cell::RefCell;

use http::header::{ETAG, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use remora_snapshot::{MAX_ANSWER, OfrepFlag, Role};

use crate::analytics;
use crate::answer::{Answer, Kind};
use crate::assignment::Assignment;
use crate::body::{Body, Buffer};
use crate::environment::{Access, Environment, Loaded, State};
use crate::identities::{self, Desk};
use crate::metrics::Question;
use crate::ofrep;
use crate::routes::{Route, decode, parameter};
use crate::stream::Dialect;

/// Largest body in bytes after which the thread's scratch buffers are kept. A larger body may have made them grow as
/// much.
const KEPT_DESK_BODY: usize = 64 * 1024;

static ENVIRONMENT_KEY: HeaderName = HeaderName::from_static("x-environment-key");
static API_KEY: HeaderName = HeaderName::from_static("x-api-key");
static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk::default());
}

/// Answers a request that has been received completely.
pub(crate) fn respond(state: &State, route: Route<'_>, parts: &Parts, body: &[u8]) -> Answer {
    let read = parts.method == Method::GET || parts.method == Method::HEAD;
    let post = parts.method == Method::POST;
    match route {
        Route::Flags if read => flagsmith(state, parts, |environment, loaded, role| {
            environment.evaluations.count(Question::Flags);
            flags(loaded, role, parts)
        }),
        Route::Identities | Route::Assignment if read => flagsmith(state, parts, |environment, loaded, role| {
            environment.evaluations.count(Question::Identities);
            identity_in_query(environment, loaded, role, route, parts.uri.query())
        }),
        Route::Identities | Route::Assignment if post => flagsmith(state, parts, |environment, loaded, role| {
            environment.evaluations.count(Question::Identities);
            identity_in_body(environment, loaded, role, route, body)
        }),
        Route::Document if read => environment_document(state, parts),
        Route::Analytics if post => flagsmith(state, parts, |environment, loaded, _| uses(environment, loaded, body)),
        Route::OfrepFlag(key) if post => {
            let mut scratch = String::new();
            let key = decode(key, false, &mut scratch);
            openfeature(state, parts, Some(key), |environment, loaded, role| {
                environment.evaluations.count(Question::OfrepFlag);
                ofrep_flag(environment, loaded, role, key, body)
            })
        }
        Route::OfrepFlags if post => openfeature(state, parts, None, |environment, loaded, role| {
            ofrep_flags(environment, loaded, role, parts, body)
        }),
        Route::Realtime(key) if parts.method == Method::GET => {
            let mut scratch = String::new();
            realtime(state, parts, decode(key, false, &mut scratch))
        }
        Route::OfrepStream if parts.method == Method::GET => ofrep_stream(state, parts),
        Route::Health if read => match state.health() {
            Some(health) => Answer::new(StatusCode::OK, Kind::Json, Body::prepared(health)),
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

/// Runs `work` with the thread's scratch buffers, or with new ones if the body would make the thread's grow too large.
fn with_desk<T>(body: &[u8], work: impl FnOnce(&mut Desk) -> T) -> T {
    if body.len() > KEPT_DESK_BODY {
        return work(&mut Desk::default());
    }
    DESK.with(|desk| match desk.try_borrow_mut() {
        Ok(mut desk) => work(&mut desk),
        Err(_) => work(&mut Desk::default()),
    })
}

/// Answers Flagsmith's realtime updates, whose path contains the key.
fn realtime(state: &State, parts: &Parts, key: &str) -> Answer {
    match state.access(key.as_bytes()) {
        Access::Granted(environment, _, Role::Client) => {
            state.streams.listen(&environment.changes, Dialect::Flagsmith, text(parts, &LAST_EVENT_ID))
        }
        Access::NotLoaded => not_loaded(),
        Access::Granted(_, _, Role::Server) | Access::Denied => Answer::failure(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "'",
            key,
            "' is not a client key of an environment",
        ),
    }
}

/// Returns the first header of this name. Requests have few headers: comparing each of them is faster than hashing the
/// name.
fn header<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a [u8]> {
    parts.headers.iter().find_map(|(found, value)| (found == name).then(|| value.as_bytes()))
}

/// Returns the first header of this name as text.
fn text<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a str> {
    std::str::from_utf8(header(parts, name)?).ok()
}

/// Returns the first header of this name as a key: its bytes, if they are UTF-8. A key is only compared.
fn key<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a [u8]> {
    let bytes = header(parts, name)?;
    (bytes.is_ascii() || std::str::from_utf8(bytes).is_ok()).then_some(bytes)
}

/// Answers by Flagsmith's rules for keys: a request must have one.
fn flagsmith(state: &State, parts: &Parts, answer: impl FnOnce(&Environment, &Loaded, Role) -> Answer) -> Answer {
    const NO_KEY: Answer = Answer::constant(
        StatusCode::UNAUTHORIZED,
        r#"{"status":"unauthorized","message":"no key: send the environment's key in the header X-Environment-Key"}"#,
    );
    let Some(key) = header(parts, &ENVIRONMENT_KEY) else { return NO_KEY };
    match state.access(key) {
        Access::Granted(environment, serving, role) => match serving.as_ref() {
            Some(loaded) => answer(environment, loaded, role),
            None => not_loaded(),
        },
        refused => match (std::str::from_utf8(key), refused) {
            (Err(_), _) => NO_KEY,
            (Ok(_), Access::NotLoaded) => not_loaded(),
            (Ok(key), _) => Answer::failure(StatusCode::UNAUTHORIZED, "unauthorized", "unknown key '", key, "'"),
        },
    }
}

/// Answers SDKs that evaluate locally, as Flagsmith's API does: only a server key gives access, because the document
/// contains rules and identifiers.
fn environment_document(state: &State, parts: &Parts) -> Answer {
    const NO_SERVER_KEY: &str = "{\"detail\":\"Invalid or missing Environment key\"}";
    const UNKNOWN_KEY: &str = "{\"detail\":\"Invalid or missing Environment Key\"}";
    const NOT_SERVED: &str = "{\"detail\":\"the document of this environment is not served: set spec.serve.environmentDocument of its FeatureEnvironment to true\"}";
    let key = key(parts, &ENVIRONMENT_KEY).filter(|key| key.starts_with(b"ser."));
    let Some(key) = key else { return Answer::constant(StatusCode::FORBIDDEN, NO_SERVER_KEY) };
    match state.access(key) {
        Access::Granted(_, serving, Role::Server) => match serving.as_ref() {
            Some(loaded) if !loaded.snapshot.serves_document() => Answer::constant(StatusCode::NOT_FOUND, NOT_SERVED),
            loaded => match loaded.and_then(|loaded| loaded.document.as_ref()) {
                Some(document) => document.answer(parts, &state.inflating),
                None => not_loaded(),
            },
        },
        Access::NotLoaded => not_loaded(),
        Access::Granted(_, _, Role::Client) => Answer::constant(StatusCode::FORBIDDEN, NO_SERVER_KEY),
        Access::Denied => Answer::constant(StatusCode::FORBIDDEN, UNKNOWN_KEY),
    }
}

fn not_loaded() -> Answer {
    Answer::constant(
        StatusCode::SERVICE_UNAVAILABLE,
        r#"{"status":"service_unavailable","message":"Environment not loaded"}"#,
    )
}

fn flags(loaded: &Loaded, role: Role, parts: &Parts) -> Answer {
    let mut scratch = String::new();
    let feature = parameter(parts.uri.query(), "feature", &mut scratch).filter(|feature| !feature.is_empty());
    let part = match feature {
        None => loaded.snapshot.flags(role),
        Some(feature) => match loaded.snapshot.flag(role, feature) {
            Some(part) => part,
            None => {
                return Answer::failure(StatusCode::NOT_FOUND, "not_found", "feature '", feature, "' not found");
            }
        },
    };
    Answer::new(StatusCode::OK, Kind::Json, Body::part(&loaded.core, part))
}

fn identity_in_query(
    environment: &Environment,
    loaded: &Loaded,
    role: Role,
    route: Route<'_>,
    query: Option<&str>,
) -> Answer {
    let mut scratch = String::new();
    let Some(identifier) = parameter(query, "identifier", &mut scratch) else {
        return Answer::constant(
            StatusCode::UNPROCESSABLE_ENTITY,
            r#"{"detail":[{"type":"missing","loc":["query","identifier"],"msg":"Field required","input":null}]}"#,
        );
    };
    if identities::is_too_long(identifier) {
        return Answer::constant(
            StatusCode::UNPROCESSABLE_ENTITY,
            r#"{"detail":[{"type":"string_too_long","loc":["query","identifier"],"msg":"String should have at most 2000 characters","input":null}]}"#,
        );
    }
    let mut buffer = Buffer::take();
    let assignment = with_desk(&[], |desk| {
        let assignment = identities::answer_identifier(identifier, &loaded.snapshot, role, desk, buffer.bytes());
        report(environment, loaded, desk);
        assignment
    });
    assigned(route, assignment, buffer)
}

fn identity_in_body(environment: &Environment, loaded: &Loaded, role: Role, route: Route<'_>, body: &[u8]) -> Answer {
    let mut buffer = Buffer::take();
    let assignment = with_desk(body, |desk| {
        let assignment = identities::answer_body(body, &loaded.snapshot, role, desk, buffer.bytes())?;
        report(environment, loaded, desk);
        Ok::<_, identities::Refused>(assignment)
    });
    match assignment {
        Ok(assignment) => assigned(route, assignment, buffer),
        Err(refused) => {
            refused.write(buffer.bytes());
            Answer::built(StatusCode::UNPROCESSABLE_ENTITY, buffer)
        }
    }
}

/// Reports an evaluation that exceeded its budget.
fn report(environment: &Environment, loaded: &Loaded, desk: &Desk) {
    if let Some(overrun) = loaded.snapshot.overrun(&desk.subject) {
        environment.overruns.report(&environment.name, overrun);
    }
}

/// Answers with the flags and their assignment key, or with the key alone.
fn assigned(route: Route<'_>, assignment: Assignment, mut flags: Buffer) -> Answer {
    const TOO_LONG: Answer = Answer::constant(
        StatusCode::INTERNAL_SERVER_ERROR,
        "{\"detail\":\"the flags have more than 16777216 bytes: shorten their values, or leave features out with spec.prune.features of the FeatureEnvironment\"}",
    );
    if flags.as_ref().len() > MAX_ANSWER {
        return TOO_LONG;
    }
    if route == Route::Assignment {
        let out = flags.bytes();
        out.clear();
        out.extend_from_slice(b"{\"assignment\":\"");
        out.extend_from_slice(&assignment.digits());
        out.extend_from_slice(b"\"}");
    }
    Answer::new(StatusCode::OK, Kind::Json, Body::built(flags)).assigned(assignment)
}

/// Counts the flag uses that an SDK reports.
fn uses(environment: &Environment, loaded: &Loaded, body: &[u8]) -> Answer {
    match analytics::read(body, &loaded.snapshot, &environment.uses) {
        Ok(()) => Answer::empty(StatusCode::OK),
        Err(refused) => {
            let mut buffer = Buffer::take();
            refused.write(buffer.bytes());
            Answer::built(StatusCode::UNPROCESSABLE_ENTITY, buffer)
        }
    }
}

/// Answers by OFREP's rules for keys: with one environment, a request needs no key. A key that is sent must be valid,
/// because the flags of another environment would be wrong.
fn openfeature(
    state: &State,
    parts: &Parts,
    flag: Option<&str>,
    answer: impl FnOnce(&Environment, &Loaded, Role) -> Answer,
) -> Answer {
    let key = key(parts, &API_KEY).or_else(|| key(parts, &ENVIRONMENT_KEY));
    match key.map_or_else(|| state.access_without_key(), |key| state.access(key)) {
        Access::Granted(environment, serving, role) => match serving.as_ref() {
            Some(loaded) => answer(environment, loaded, role),
            None => ofrep_not_loaded(flag),
        },
        Access::NotLoaded => ofrep_not_loaded(flag),
        Access::Denied => {
            let problem = match key {
                Some(_) => "the key in X-API-Key opens none of the environments that are served here",
                None => "several environments are served here: choose one by its key in the header X-API-Key",
            };
            ofrep_failure(StatusCode::UNAUTHORIZED, flag, None, problem)
        }
    }
}

/// Answers OFREP's event stream. Browsers cannot send a key with it, so the environment's name is enough: events
/// contain no secrets.
fn ofrep_stream(state: &State, parts: &Parts) -> Answer {
    let listen = |environment: &Environment| {
        state.streams.listen(&environment.changes, Dialect::Ofrep, text(parts, &LAST_EVENT_ID))
    };
    let mut scratch = String::new();
    if let Some(name) = parameter(parts.uri.query(), "environment", &mut scratch) {
        return state.named(name).map_or_else(
            || ofrep_failure(StatusCode::NOT_FOUND, None, None, "there is no environment of this name"),
            listen,
        );
    }
    if let [only] = state.environments.as_slice() {
        return listen(only);
    }
    openfeature(state, parts, None, |environment, _, _| listen(environment))
}

fn ofrep_failure(status: StatusCode, flag: Option<&str>, code: Option<&str>, details: &str) -> Answer {
    let mut buffer = Buffer::take();
    ofrep::write_failure(flag, code, &details, buffer.bytes());
    Answer::built(status, buffer)
}

fn ofrep_not_loaded(flag: Option<&str>) -> Answer {
    ofrep_failure(StatusCode::SERVICE_UNAVAILABLE, flag, None, "the environment is not loaded yet")
}

fn ofrep_refused(refused: ofrep::Refused, flag: Option<&str>, mut buffer: Buffer) -> Answer {
    refused.write(flag, buffer.bytes());
    Answer::built(StatusCode::BAD_REQUEST, buffer)
}

fn ofrep_flag(environment: &Environment, loaded: &Loaded, role: Role, key: &str, body: &[u8]) -> Answer {
    let mut buffer = Buffer::take();
    let found = with_desk(body, |desk| {
        ofrep::read(body, &loaded.snapshot, desk, ofrep::Tagged::No)?;
        let found = loaded.snapshot.write_ofrep_flag(&mut desk.subject, role, key, buffer.bytes());
        report(environment, loaded, desk);
        Ok(found)
    });
    match found {
        Ok(OfrepFlag::Written) => Answer::built(StatusCode::OK, buffer),
        Ok(OfrepFlag::Unknown) => ofrep_failure(
            StatusCode::NOT_FOUND,
            Some(key),
            Some("FLAG_NOT_FOUND"),
            "the environment has no flag of this name",
        ),
        Ok(OfrepFlag::NeedsTargetingKey) => ofrep_failure(
            StatusCode::BAD_REQUEST,
            Some(key),
            Some("TARGETING_KEY_MISSING"),
            "the flag has a percentage split: send a targetingKey in the context",
        ),
        Err(refused) => ofrep_refused(refused, Some(key), buffer),
    }
}

fn ofrep_flags(environment: &Environment, loaded: &Loaded, role: Role, parts: &Parts, body: &[u8]) -> Answer {
    let mut buffer = Buffer::take();
    let revision = loaded.snapshot.revision();
    let tag = with_desk(body, |desk| {
        let context = ofrep::read(body, &loaded.snapshot, desk, ofrep::Tagged::Yes)?;
        let tag = ofrep::tag(revision, loaded.state, role, context);
        let known = parts.headers.get_all(IF_NONE_MATCH).iter().any(|header| ofrep::names_tag(header.as_bytes(), &tag));
        let assignment = (!known).then(|| {
            environment.evaluations.count(Question::OfrepFlags);
            let out = buffer.bytes();
            out.extend_from_slice(b"{\"flags\":[");
            let assignment = Assignment::of(loaded.snapshot.write_ofrep_flags(&mut desk.subject, role, out));
            ofrep::write_end(revision, &environment.name, out);
            report(environment, loaded, desk);
            assignment
        });
        Ok((tag, assignment))
    });
    let (tag, assignment) = match tag {
        Ok(tag) => tag,
        Err(refused) => return ofrep_refused(refused, None, buffer),
    };
    let answer = match assignment {
        Some(_) if buffer.as_ref().len() > MAX_ANSWER => {
            let problem = "the flags have more than 16777216 bytes: shorten their values, or leave features out with spec.prune.features of the FeatureEnvironment";
            return ofrep_failure(StatusCode::INTERNAL_SERVER_ERROR, None, Some("GENERAL"), problem);
        }
        Some(assignment) => Answer::built(StatusCode::OK, buffer).assigned(assignment),
        None => Answer::empty(StatusCode::NOT_MODIFIED),
    };
    match HeaderValue::try_from(tag) {
        Ok(tag) => answer.with(ETAG, tag),
        Err(_) => answer,
    }
}
