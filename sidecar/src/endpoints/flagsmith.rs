//! Flagsmith's endpoints.

use http::StatusCode;
use http::request::Parts;
use remora_snapshot::{MAX_ANSWER, Role, StepBudget};

use super::assignment::Assignment;
use super::document;
use super::evaluation::{report, with_scratch};
use super::headers::{ENVIRONMENT_KEY, header, key};
use super::{signed, stream};
use crate::counters::requests::EvaluationKind;
use crate::dialects::validation::InvalidBody;
use crate::dialects::values::is_too_long;
use crate::dialects::{analytics, identities};
use crate::environments::state::{Environment, Loaded, NoAccess, State};
use crate::environments::stream::Dialect;
use crate::http::answer::{Answer, ContentType};
use crate::http::body::{Body, Buffer};
use crate::routes::{Route, parameter};

const TOO_LONG: Answer = Answer::constant(
    StatusCode::INTERNAL_SERVER_ERROR,
    "{\"detail\":\"the flags have more than 16777216 bytes: shorten their values, or leave features out with spec.prune.features of the FeatureEnvironment\"}",
);

/// Answers by Flagsmith's rules for keys: a request must have one.
pub(super) fn with_key(
    state: &State,
    parts: &Parts,
    answer: impl FnOnce(&Environment, &Loaded, Role) -> Answer,
) -> Answer {
    const NO_KEY: Answer = Answer::constant(
        StatusCode::UNAUTHORIZED,
        r#"{"status":"unauthorized","message":"no key: send the environment's key in the header X-Environment-Key"}"#,
    );
    let Some(key) = header(parts, &ENVIRONMENT_KEY) else { return NO_KEY };
    state.with_access(key, answer).unwrap_or_else(|refused| match (std::str::from_utf8(key), refused) {
        (Err(_), _) => NO_KEY,
        (Ok(_), NoAccess::NotLoaded) => not_loaded(),
        (Ok(key), NoAccess::Denied) => {
            Answer::failure(StatusCode::UNAUTHORIZED, "unauthorized", "unknown key '", key, "'")
        }
    })
}

/// Answers with flags, which the request's signed header may override.
#[inline]
pub(super) fn with_flags(
    state: &State,
    parts: &Parts,
    answer: impl FnOnce(&Environment, &Loaded, Role) -> Answer,
) -> Answer {
    with_key(state, parts, |environment, loaded, role| match signed::overridden(state, parts, environment, loaded) {
        Ok(own) => {
            let loaded = own.as_deref().unwrap_or(loaded);
            answer(environment, loaded, role).overridden(loaded.overridden.as_ref())
        }
        Err(refused) => Answer::failure(StatusCode::FORBIDDEN, "forbidden", "", &refused, ""),
    })
}

/// Answers SDKs that evaluate locally, as Flagsmith's API does: only a server key gives access, because the document
/// contains rules and identifiers.
pub(super) fn environment_document(state: &State, parts: &Parts) -> Answer {
    const NO_SERVER_KEY: &str = "{\"detail\":\"Invalid or missing Environment key\"}";
    const UNKNOWN_KEY: &str = "{\"detail\":\"Invalid or missing Environment Key\"}";
    const NOT_SERVED: &str = "{\"detail\":\"the document of this environment is not served: set spec.serve.environmentDocument of its FeatureEnvironment to true\"}";
    let key = key(parts, &ENVIRONMENT_KEY).filter(|key| key.starts_with(b"ser."));
    let Some(key) = key else { return Answer::constant(StatusCode::FORBIDDEN, NO_SERVER_KEY) };
    let answer = state.with_access(key, |_, loaded, role| match &loaded.document {
        _ if role == Role::Client => Answer::constant(StatusCode::FORBIDDEN, NO_SERVER_KEY),
        _ if !loaded.snapshot.serves_document() => Answer::constant(StatusCode::NOT_FOUND, NOT_SERVED),
        Some(document) => document::answer(document, parts, &state.inflate_slots),
        None => not_loaded(),
    });
    answer.unwrap_or_else(|refused| match refused {
        NoAccess::NotLoaded => not_loaded(),
        NoAccess::Denied => Answer::constant(StatusCode::FORBIDDEN, UNKNOWN_KEY),
    })
}

fn not_loaded() -> Answer {
    Answer::constant(
        StatusCode::SERVICE_UNAVAILABLE,
        r#"{"status":"service_unavailable","message":"Environment not loaded"}"#,
    )
}

pub(super) fn flags(environment: &Environment, loaded: &Loaded, role: Role, parts: &Parts) -> Answer {
    let mut decoded = String::new();
    let feature = parameter(parts.uri.query(), "feature", &mut decoded);
    if loaded.overridden.is_some() {
        return overridden_flags(environment, loaded, role, feature);
    }
    let part = match feature {
        None => Some(loaded.snapshot.flags(role)),
        // Flagsmith's API filters nothing by an empty name, and answers with the first flag.
        Some("") => loaded.snapshot.first_flag(role),
        Some(feature) => loaded.snapshot.flag(role, feature),
    };
    let Some(part) = part else { return no_such_feature(feature.unwrap_or_default()) };
    environment.evaluations.count(EvaluationKind::Flags);
    Answer::new(StatusCode::OK, ContentType::Json, Body::part(&loaded.core, part))
}

/// Answers without an identity where flags are overridden: the prepared answer is that of the environment.
#[cold]
fn overridden_flags(environment: &Environment, loaded: &Loaded, role: Role, feature: Option<&str>) -> Answer {
    let (mut buffer, snapshot) = (Buffer::take(), &loaded.snapshot);
    let is_found = with_scratch(&[], |scratch| {
        let (request, out) = (&mut scratch.request, buffer.bytes());
        request.clear();
        let digest = match feature {
            Some("") => snapshot.write_first_flag(request, role, out),
            Some(feature) => {
                let name =
                    snapshot.feature_number_in_any_case(feature).and_then(|number| snapshot.feature_name(number));
                name.and_then(|name| snapshot.write_flag(request, role, name, out))
            }
            None => Some(snapshot.write_flags(request, role, out)),
        };
        report(environment, loaded, scratch);
        digest.is_some()
    });
    match is_found {
        true if buffer.as_ref().len() > MAX_ANSWER => TOO_LONG,
        true => {
            environment.evaluations.count(EvaluationKind::Flags);
            Answer::built(StatusCode::OK, buffer)
        }
        false => no_such_feature(feature.unwrap_or_default()),
    }
}

fn no_such_feature(name: &str) -> Answer {
    Answer::failure(StatusCode::NOT_FOUND, "not_found", "feature '", name, "' not found")
}

pub(super) fn identity_in_query(
    environment: &Environment,
    loaded: &Loaded,
    role: Role,
    route: Route<'_>,
    query: Option<&str>,
) -> Answer {
    let [mut one, mut other, mut third] = [const { String::new() }; 3];
    let identifier = parameter(query, "identifier", &mut one).unwrap_or_default();
    if is_too_long(identifier) {
        return Answer::constant(
            StatusCode::BAD_REQUEST,
            r#"{"detail":[{"type":"string_too_long","loc":["query","identifier"],"msg":"String should have at most 2000 characters","input":null}]}"#,
        );
    }
    // Flagsmith's API takes any value but the empty one for true.
    let is_transient = parameter(query, "transient", &mut other).is_some_and(|value| !value.is_empty());
    let feature = parameter(query, "feature", &mut third).filter(|name| !name.is_empty());
    let mut buffer = Buffer::take();
    let digest = with_scratch(&[], |scratch| {
        let asked = identities::Asked { identifier, is_transient, feature };
        let digest = identities::answer_query(&asked, &loaded.snapshot, role, scratch, buffer.bytes());
        report(environment, loaded, scratch);
        digest
    });
    match digest {
        Some(digest) => assigned(environment, route, Assignment::of(digest), buffer),
        None => no_such_feature(feature.unwrap_or_default()),
    }
}

pub(super) fn identity_in_body(
    environment: &Environment,
    loaded: &Loaded,
    role: Role,
    route: Route<'_>,
    body: &[u8],
) -> Answer {
    let mut buffer = Buffer::take();
    let digest = with_scratch(body, |scratch| {
        let digest = identities::answer_body(body, &loaded.snapshot, role, scratch, buffer.bytes())?;
        report(environment, loaded, scratch);
        Ok::<_, InvalidBody>(digest)
    });
    match digest {
        Ok(digest) => assigned(environment, route, Assignment::of(digest), buffer),
        Err(refused) => {
            refused.write(buffer.bytes());
            Answer::built(StatusCode::BAD_REQUEST, buffer)
        }
    }
}

/// Answers with the flags and their assignment key, or with the key alone.
fn assigned(environment: &Environment, route: Route<'_>, assignment: Assignment, mut flags: Buffer) -> Answer {
    if flags.as_ref().len() > MAX_ANSWER {
        return TOO_LONG;
    }
    environment.evaluations.count(EvaluationKind::Identities);
    if route == Route::Assignment {
        let out = flags.bytes();
        out.clear();
        out.extend_from_slice(b"{\"assignment\":\"");
        out.extend_from_slice(&assignment.digits());
        out.extend_from_slice(b"\"}");
    }
    assignment.mark(Answer::built(StatusCode::OK, flags))
}

/// Counts the flag uses that an SDK reports.
pub(super) fn uses(environment: &Environment, loaded: &Loaded, body: &[u8]) -> Answer {
    // The budget limits the look-ups of names in one body.
    let (mut uses, budget) = (environment.uses.lock(), StepBudget::default());
    let snapshot = &loaded.snapshot;
    let count = |flag: &str, count| match snapshot.feature_number(flag, &budget) {
        Some(feature) => uses.add(feature, count, snapshot, loaded.generation),
        None => uses.add_unknown(count),
    };
    match analytics::read(body, count) {
        Ok(()) => Answer::empty(StatusCode::OK),
        Err(refused) => {
            let mut buffer = Buffer::take();
            refused.write(buffer.bytes());
            Answer::built(StatusCode::BAD_REQUEST, buffer)
        }
    }
}

/// Answers Flagsmith's realtime updates, whose path contains the key.
pub(super) fn realtime(state: &State, parts: &Parts, key: &str) -> Answer {
    let answer = state.with_access(key.as_bytes(), |environment, _, role| {
        (role == Role::Client).then(|| stream::answer(state, environment, Dialect::Flagsmith, parts))
    });
    match answer {
        Ok(Some(answer)) => answer,
        Err(NoAccess::NotLoaded) => not_loaded(),
        Ok(None) | Err(NoAccess::Denied) => Answer::failure(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "'",
            key,
            "' is not a client key of an environment",
        ),
    }
}
