//! OFREP's endpoints.

use http::header::{ETAG, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use remora_snapshot::{MAX_ANSWER, OfrepFlag, Role};

use super::assignment::Assignment;
use super::evaluation::{report, with_scratch};
use super::headers::{API_KEY, ENVIRONMENT_KEY, key};
use super::{signed, stream};
use crate::counters::requests::EvaluationKind;
use crate::dialects::context_hash::Tag;
use crate::dialects::ofrep;
use crate::environments::state::{Environment, Loaded, NoAccess, State};
use crate::environments::stream::Dialect;
use crate::http::answer::Answer;
use crate::http::body::Buffer;
use crate::http::entity_tag::matches_tag;
use crate::http::header_values;
use crate::routes::parameter;

/// Answers by OFREP's rules for keys: with one environment, a request needs no key. A key that is sent must be valid,
/// because the flags of another environment would be wrong. An empty key is none: providers send their headers also
/// where the variable with the key is not set.
fn with_key(
    state: &State,
    parts: &Parts,
    flag: Option<&str>,
    answer: impl FnOnce(&Environment, &Loaded, Role) -> Answer,
) -> Answer {
    let key_of = |name| key(parts, name).filter(|key| !key.is_empty());
    let key = key_of(&API_KEY).or_else(|| key_of(&ENVIRONMENT_KEY));
    let answer = match key {
        Some(key) => state.with_access(key, answer),
        None => state.with_access_without_key(answer),
    };
    answer.unwrap_or_else(|refused| match refused {
        NoAccess::NotLoaded => not_loaded(flag),
        NoAccess::Denied => {
            let problem = match key {
                Some(_) => {
                    "the key belongs to no environment of this sidecar: send the key of one of its environments in the header X-API-Key"
                }
                None => "this sidecar serves several environments: send the key of one of them in the header X-API-Key",
            };
            failure(StatusCode::UNAUTHORIZED, flag, None, problem)
        }
    })
}

/// Answers with flags, which the request's signed header may override. `flag` is the key of the flag that is asked for.
#[inline]
pub(super) fn with_flags(
    state: &State,
    parts: &Parts,
    flag: Option<&str>,
    answer: impl FnOnce(&Environment, &Loaded, Role) -> Answer,
) -> Answer {
    with_key(state, parts, flag, |environment, loaded, role| {
        match signed::overridden(state, parts, environment, loaded) {
            Ok(own) => {
                let loaded = own.as_deref().unwrap_or(loaded);
                answer(environment, loaded, role).overridden(loaded.overridden.as_ref())
            }
            Err(refused) => failure(StatusCode::FORBIDDEN, flag, None, &refused),
        }
    })
}

/// Answers OFREP's event stream. Browsers cannot send a key with it, so the environment's name is enough: events
/// contain no secrets.
pub(super) fn stream(state: &State, parts: &Parts) -> Answer {
    let listen = |environment: &Environment| stream::answer(state, environment, Dialect::Ofrep, parts);
    let mut decoded = String::new();
    if let Some(name) = parameter(parts.uri.query(), "environment", &mut decoded) {
        return state.named(name).map_or_else(
            || failure(StatusCode::NOT_FOUND, None, None, "this sidecar serves no environment of this name"),
            listen,
        );
    }
    if let [only] = state.environments.as_slice() {
        return listen(only);
    }
    with_key(state, parts, None, |environment, _, _| listen(environment))
}

fn failure(status: StatusCode, flag: Option<&str>, code: Option<&str>, details: &str) -> Answer {
    let mut buffer = Buffer::take();
    ofrep::write_failure(flag, code, &details, buffer.bytes());
    Answer::built(status, buffer)
}

fn not_loaded(flag: Option<&str>) -> Answer {
    failure(StatusCode::SERVICE_UNAVAILABLE, flag, None, "the environment is not loaded yet: try again later")
}

fn refuse(refused: ofrep::InvalidContext, flag: Option<&str>, mut buffer: Buffer) -> Answer {
    refused.write(flag, buffer.bytes());
    Answer::built(StatusCode::BAD_REQUEST, buffer)
}

pub(super) fn flag(environment: &Environment, loaded: &Loaded, role: Role, key: &str, body: &[u8]) -> Answer {
    let mut buffer = Buffer::take();
    let found = with_scratch(body, |scratch| {
        ofrep::read(body, &loaded.snapshot, scratch, ofrep::EntityTag::Unwanted)?;
        let found = loaded.snapshot.write_ofrep_flag(&mut scratch.request, role, key, buffer.bytes());
        report(environment, loaded, scratch);
        Ok(found)
    });
    match found {
        Ok(OfrepFlag::Written { feature }) => {
            environment.evaluations.count(EvaluationKind::OfrepFlag);
            environment.uses.lock().add(feature, 1, &loaded.snapshot, loaded.generation);
            Answer::built(StatusCode::OK, buffer)
        }
        Ok(OfrepFlag::Unknown) => failure(
            StatusCode::NOT_FOUND,
            Some(key),
            Some("FLAG_NOT_FOUND"),
            "the environment has no flag of this name",
        ),
        Ok(OfrepFlag::NeedsTargetingKey) => failure(
            StatusCode::BAD_REQUEST,
            Some(key),
            Some("TARGETING_KEY_MISSING"),
            "the flag has a percentage split: send a targetingKey in the context",
        ),
        Err(refused) => refuse(refused, Some(key), buffer),
    }
}

pub(super) fn flags(environment: &Environment, loaded: &Loaded, role: Role, parts: &Parts, body: &[u8]) -> Answer {
    let mut buffer = Buffer::take();
    let tag = with_scratch(body, |scratch| {
        let context = ofrep::read(body, &loaded.snapshot, scratch, ofrep::EntityTag::Wanted)?;
        let tag = Tag::of(loaded.snapshot.revision(), loaded.content_hash, role, context);
        let is_named = |header: &HeaderValue| matches_tag(header.as_bytes(), tag.as_str());
        let known = parts.headers.get_all(IF_NONE_MATCH).iter().any(is_named);
        let assignment = (!known).then(|| {
            let out = buffer.bytes();
            out.extend_from_slice(b"{\"flags\":[");
            let assignment = Assignment::of(loaded.snapshot.write_ofrep_flags(&mut scratch.request, role, out));
            out.extend_from_slice(&loaded.ofrep_end);
            report(environment, loaded, scratch);
            assignment
        });
        Ok((tag, assignment))
    });
    let (tag, assignment) = match tag {
        Ok(tag) => tag,
        Err(refused) => return refuse(refused, None, buffer),
    };
    let answer = match assignment {
        Some(_) if buffer.as_ref().len() > MAX_ANSWER => {
            let problem = "the flags have more than 16777216 bytes: shorten their values, or leave features out with spec.prune.features of the FeatureEnvironment";
            return failure(StatusCode::INTERNAL_SERVER_ERROR, None, Some("GENERAL"), problem);
        }
        Some(assignment) => {
            environment.evaluations.count(EvaluationKind::OfrepFlags);
            assignment.mark(Answer::built(StatusCode::OK, buffer))
        }
        None => Answer::empty(StatusCode::NOT_MODIFIED),
    };
    match header_values::short(tag.as_str().as_bytes()) {
        Some(tag) => answer.with(ETAG, tag),
        None => answer,
    }
}
