//! The status that follows from the previous status and the outcome of a reconciliation. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::conditions::{ACCEPTED, FETCHED, PUBLISHED, READY, STALE, State, again, next};
use super::facts::{Contents, Facts, FetchOutcome, Pin, Publication};
use super::unused;
use crate::api::{
    Delivered, FeatureEnvironmentStatus, Reason, Revision,
    names::{FORMAT, Format},
};

/// Number of findings that the status lists. `findingCount` counts all of them.
const FINDINGS_MAX: usize = 20;

/// Returns the status that follows from `previous` and `facts`.
pub fn next_status(previous: &FeatureEnvironmentStatus, facts: Facts, now: Timestamp) -> FeatureEnvironmentStatus {
    let mut status = previous.clone();
    let generation = observed_generation(previous, &facts);
    let conditions = conditions(previous, &facts, generation, now);
    if !matches!(facts.work.publication, Publication::None) {
        status.held_revision = facts.held;
    }
    if let Publication::Done { objects, delivered, contents } = facts.work.publication {
        status.objects = objects;
        status.delivery = Some(delivered);
        if let Some(contents) = contents {
            record(&mut status, contents);
        }
    }
    unused::replace(&mut status, facts.tasks.idle_flags.as_ref());
    FeatureEnvironmentStatus {
        observed_generation: generation,
        conditions,
        unfinished: facts.unfinished,
        revision: facts.work.revision,
        published_at: facts.published_at,
        changes: facts.changes,
        last_refresh: facts.refreshed.or(status.last_refresh),
        realtime: facts.tasks.realtime,
        webhook: facts.tasks.webhook,
        analytics: facts.tasks.analytics,
        idle_flags: facts.tasks.idle_flags,
        pods: facts.tasks.pods.or(status.pods),
        history: facts.history,
        core_bytes: facts.core_bytes.or(status.core_bytes),
        ..status
    }
}

/// Returns the generation whose source was read. What is published before belongs to an earlier spec, which tools such as
/// kubectl wait for.
fn observed_generation(previous: &FeatureEnvironmentStatus, facts: &Facts) -> Option<i64> {
    let is_read = facts.suspended || !matches!(facts.work.fetch, FetchOutcome::NotRun);
    if is_read { facts.generation } else { previous.observed_generation }
}

fn record(status: &mut FeatureEnvironmentStatus, contents: Contents) {
    let Contents { features, segments, overrides, bytes, updated_at, mut findings, finding_count } = contents;
    status.features = Some(features);
    status.segments = Some(segments);
    status.overrides = Some(overrides);
    status.bytes = Some(bytes);
    status.source_updated_at = updated_at;
    status.finding_count = Some(finding_count);
    findings.truncate(FINDINGS_MAX);
    status.findings = findings;
}

fn conditions(
    previous: &FeatureEnvironmentStatus,
    facts: &Facts,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let step = |kind: &str, state: Option<State>| match (state, previous.condition(kind)) {
        (Some(state), before) => next(before, kind, state, generation, now),
        (None, Some(before)) => again(before, generation),
        (None, None) => next(None, kind, State::unknown(Reason::Pending, "no attempt yet"), generation, now),
    };
    let accepted = step(ACCEPTED, accepted(facts, previous.condition(ACCEPTED)));
    let fetched = step(FETCHED, fetched(facts));
    let published = step(PUBLISHED, published(facts));
    let ready = step(READY, Some(ready(facts, &fetched, &published)));
    let stale = step(STALE, Some(stale(facts, &fetched, &published, now)));
    vec![accepted, fetched, published, ready, stale]
}

fn accepted(facts: &Facts, before: Option<&Condition>) -> Option<State> {
    let good = || Some(State::yes(Reason::Accepted, "the spec and the objects that it refers to can be used"));
    match (&facts.work.fetch, &facts.work.pin) {
        _ if facts.suspended => {
            Some(State::yes(Reason::Suspended, "spec.suspend is true: the operator fetches and publishes nothing"))
        }
        (FetchOutcome::NotAccepted(failure), _) | (_, Pin::Unknown(failure)) => {
            Some(State::no(failure.reason, failure.message.clone()))
        }
        (FetchOutcome::Done | FetchOutcome::Failed(_), _) => good(),
        // The pinned revision exists by now.
        (FetchOutcome::NotRun, Pin::Published { .. })
            if before.is_some_and(|before| before.reason == Reason::UnknownRevision.as_str()) =>
        {
            good()
        }
        (FetchOutcome::NotRun, _) => None,
    }
}

fn fetched(facts: &Facts) -> Option<State> {
    match &facts.work.fetch {
        FetchOutcome::NotRun => None,
        FetchOutcome::Done => Some(State::yes(Reason::Synced, "the last fetch succeeded")),
        FetchOutcome::NotAccepted(failure) | FetchOutcome::Failed(failure) => {
            Some(State::no(failure.reason, failure.message.clone()))
        }
    }
}

fn published(facts: &Facts) -> Option<State> {
    match (&facts.work.publication, &facts.work.revision) {
        (Publication::Done { objects, delivered, .. }, _) => {
            let place = in_objects(objects.len(), delivered);
            Some(match &facts.work.pin {
                Pin::Published { newest } => State::yes(Reason::Pinned, pinned(&place, newest.as_ref())),
                Pin::None | Pin::Unknown(_) => State::yes(Reason::Published, place),
            })
        }
        (Publication::Failed(failure), _) => Some(State::no(failure.reason, failure.message.clone())),
        (Publication::None, Some(_)) => None,
        (Publication::None, None) => {
            Some(State::no(Reason::Pending, "no document was fetched that could be published"))
        }
    }
}

fn pinned(place: &str, newest: Option<&Revision>) -> String {
    let newest =
        newest.map(|newest| format!("; without spec.pin, revision {newest} would be published")).unwrap_or_default();
    format!("{place}; spec.pin keeps this revision published, and the operator continues to poll the source{newest}")
}

fn in_objects(count: usize, delivered: &Delivered) -> String {
    let kind = delivered.object_kind.as_str();
    let now = if count == 1 { format!("published in one {kind}") } else { format!("published in {count} {kind}s") };
    match delivered.formerly {
        Some(previous) => format!("{now}, and in {}s while pods mount those", previous.as_str()),
        None => now,
    }
}

/// The condition `Ready`: true while a snapshot is published, whatever its source does.
fn ready(facts: &Facts, fetched: &Condition, published: &Condition) -> State {
    match &facts.work.revision {
        Some(revision) if published.status == "False" => State::yes(
            Reason::LastGood,
            format!("revision {revision} is published; a newer document is not published: {}", published.message),
        ),
        Some(revision) if fetched.status == "False" => State::yes(
            Reason::LastGood,
            format!("revision {revision} is published; the last fetch failed: {}", fetched.message),
        ),
        Some(revision) => State::yes(Reason::Published, format!("revision {revision} is published")),
        None => {
            let cause = [fetched, published]
                .into_iter()
                .find(|condition| condition.status == "False" && condition.reason != Reason::Pending.as_str());
            match (facts.only_in, cause) {
                (Some(format), cause) => State::no(Reason::PreviousFormat, in_previous_format(format, cause)),
                (None, Some(cause)) => State::no(Reason::NothingPublished, cause.message.clone()),
                (None, None) if facts.suspended => {
                    State::no(Reason::Suspended, "no snapshot was published before spec.suspend was set")
                }
                (None, None) => State::no(Reason::Pending, "no snapshot is published yet"),
            }
        }
    }
}

fn in_previous_format(format: Format, cause: Option<&Condition>) -> String {
    let cause = cause.map(|cause| format!(": {}", cause.message)).unwrap_or_default();
    format!(
        "another version of Remora published the snapshot in format {format}: running pods serve it, and new pods have no flags until a snapshot is published in format {FORMAT}{cause}"
    )
}

/// The condition `Stale`. `kubectl get fenv` shows its reason as Freshness.
fn stale(facts: &Facts, fetched: &Condition, published: &Condition, now: Timestamp) -> State {
    if facts.work.revision.is_none() {
        return State::unknown(Reason::NothingPublished, "no snapshot is published that could be stale");
    }
    if facts.suspended {
        return State::unknown(Reason::Suspended, "spec.suspend is true: the operator does not read the source");
    }
    let failing = [fetched, published].into_iter().filter(|condition| condition.status == "False");
    let Some(cause) = failing.min_by_key(|condition| condition.last_transition_time.0) else {
        return match fetched.status.as_str() {
            _ if matches!(facts.work.pin, Pin::Published { .. }) => {
                State::no(Reason::Pinned, "spec.pin keeps this revision published")
            }
            "True" => State::no(Reason::Current, "the source confirms the published snapshot"),
            _ => State::unknown(Reason::Pending, "the source was not read yet"),
        };
    };
    let since = cause.last_transition_time.0;
    let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    if age >= facts.stale_after {
        State::yes(
            Reason::Stale,
            format!("the source has not confirmed the published snapshot since {since}: {}", cause.message),
        )
    } else {
        State::no(Reason::Behind, format!("the source has not confirmed the published snapshot since {since}"))
    }
}
