//! The status that follows from the last status and from what happened. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::conditions::{ACCEPTED, FETCHED, PUBLISHED, READY, STALE, State, again, find, next};
use crate::{
    api::{Delivered, FeatureEnvironmentStatus, Finding, PastRevision, Pods},
    names::{FORMAT, Format},
};

/// Findings that are listed; all are counted.
const FINDINGS_MAX: usize = 20;

/// What happened in one reconciliation.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The generation that was reconciled.
    pub generation: Option<i64>,
    /// Whether the owner wants nothing to happen.
    pub suspended: bool,
    /// What became of the fetch.
    pub fetch: Fetch,
    /// What became of the publication.
    pub publication: Publication,
    /// The revision that the cluster carries.
    pub revision: Option<String>,
    /// The format that it carries something in, of another version, while it carries nothing in today's.
    pub only_in: Option<Format>,
    /// What the pods said when they were asked; none if nobody was asked yet.
    pub pods: Option<Pods>,
    /// How it stands with the source's stream of changes, if one is followed.
    pub realtime: Option<String>,
    /// What became of the pin.
    pub pin: Pin,
    /// Earlier revisions that are kept.
    pub history: Vec<PastRevision>,
    /// The revision that is held back.
    pub held: Option<String>,
    /// How long a source may fail before what is published is called stale.
    pub stale_after: Duration,
}

/// Why something did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One word.
    pub reason: &'static str,
    /// What was wrong, and what to do.
    pub message: String,
}

/// What became of a fetch.
#[derive(Clone, Debug)]
pub enum Fetch {
    /// It was not time.
    NotDue,
    /// The source was read.
    Done,
    /// The spec, or what it refers to, cannot be used.
    Refused(Failure),
    /// The source could not be read.
    Failed(Failure),
}

/// What became of `spec.pin`.
#[derive(Clone, Debug)]
pub enum Pin {
    /// There is none.
    None,
    /// It is what is carried.
    Kept {
        /// What would be published without it, where that is something else.
        newest: Option<String>,
    },
    /// There is no such revision.
    Unknown(Failure),
}

/// What became of a publication.
#[derive(Clone, Debug)]
pub enum Publication {
    /// There was nothing to publish.
    None,
    /// The snapshot that is held is published.
    Done {
        /// The objects that carry it.
        objects: Vec<String>,
        /// How.
        delivered: Delivered,
        /// What is in it, where it was compiled just now.
        contents: Option<Contents>,
    },
    /// What was fetched could not be compiled or published.
    Failed(Failure),
}

/// What is in a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Features.
    pub features: i64,
    /// Segments.
    pub segments: i64,
    /// Identities with overrides.
    pub overrides: i64,
    /// Bytes of all files.
    pub bytes: i64,
    /// When the source says that it was changed.
    pub updated_at: Option<String>,
    /// What its owners may want to know.
    pub findings: Vec<Finding>,
}

/// The status that follows.
pub(super) fn follow(previous: &FeatureEnvironmentStatus, facts: Facts, now: Timestamp) -> FeatureEnvironmentStatus {
    let mut status = previous.clone();
    let conditions = conditions(&previous.conditions, &facts, now);
    if !matches!(facts.publication, Publication::None) {
        status.held_revision = facts.held;
    }
    if let Publication::Done { objects, delivered, contents } = facts.publication {
        status.objects = objects;
        status.delivery = Some(delivered);
        if let Some(contents) = contents {
            record(&mut status, contents);
        }
    }
    FeatureEnvironmentStatus {
        observed_generation: facts.generation,
        conditions,
        revision: facts.revision,
        realtime: facts.realtime,
        pods: facts.pods.or(status.pods),
        history: facts.history,
        ..status
    }
}

fn record(status: &mut FeatureEnvironmentStatus, contents: Contents) {
    let Contents { features, segments, overrides, bytes, updated_at, mut findings } = contents;
    status.features = Some(features);
    status.segments = Some(segments);
    status.overrides = Some(overrides);
    status.bytes = Some(bytes);
    status.source_updated_at = updated_at;
    status.finding_count = i64::try_from(findings.len()).ok();
    findings.truncate(FINDINGS_MAX);
    status.findings = findings;
}

fn conditions(previous: &[Condition], facts: &Facts, now: Timestamp) -> Vec<Condition> {
    let step = |kind: &str, state: Option<State>| match (state, find(previous, kind)) {
        (Some(state), before) => next(before, kind, state, facts.generation, now),
        (None, Some(before)) => again(before, facts.generation),
        (None, None) => next(None, kind, State::unknown("Pending", "not tried yet"), facts.generation, now),
    };
    let accepted = step(ACCEPTED, accepted(facts, find(previous, ACCEPTED)));
    let fetched = step(FETCHED, fetched(facts));
    let published = step(PUBLISHED, published(facts));
    let ready = step(READY, Some(ready(facts, &fetched, &published)));
    let stale = step(STALE, Some(stale(facts, &fetched, &published, now)));
    vec![accepted, fetched, published, ready, stale]
}

fn accepted(facts: &Facts, before: Option<&Condition>) -> Option<State> {
    let good = || Some(State::yes("Accepted", "the spec and what it refers to can be used"));
    match (&facts.fetch, &facts.pin) {
        _ if facts.suspended => {
            Some(State::yes("Suspended", "spec.suspend is true: nothing is fetched, and nothing is written"))
        }
        (Fetch::Refused(failure), _) | (_, Pin::Unknown(failure)) => {
            Some(State::no(failure.reason, failure.message.clone()))
        }
        (Fetch::Done | Fetch::Failed(_), _) => good(),
        // The revision has come that was waited for.
        (Fetch::NotDue, Pin::Kept { .. }) if before.is_some_and(|before| before.reason == "UnknownRevision") => good(),
        (Fetch::NotDue, _) => None,
    }
}

fn fetched(facts: &Facts) -> Option<State> {
    match &facts.fetch {
        Fetch::NotDue => None,
        Fetch::Done => Some(State::yes("Synced", "the source was read")),
        Fetch::Refused(failure) | Fetch::Failed(failure) => Some(State::no(failure.reason, failure.message.clone())),
    }
}

fn published(facts: &Facts) -> Option<State> {
    match (&facts.publication, &facts.revision) {
        (Publication::Done { objects, delivered, .. }, _) => {
            let place = in_objects(objects.len(), delivered);
            Some(match &facts.pin {
                Pin::Kept { newest } => State::yes("Pinned", pinned(&place, newest.as_deref())),
                Pin::None | Pin::Unknown(_) => State::yes("Published", place),
            })
        }
        (Publication::Failed(failure), _) => Some(State::no(failure.reason, failure.message.clone())),
        (Publication::None, Some(_)) => None,
        (Publication::None, None) => Some(State::no("Pending", "nothing has been fetched that could be published")),
    }
}

fn pinned(place: &str, newest: Option<&str>) -> String {
    let newest =
        newest.map(|newest| format!("; without spec.pin, revision {newest} would be published")).unwrap_or_default();
    format!("{place}; spec.pin keeps it there, and the source is read all the same{newest}")
}

fn in_objects(count: usize, delivered: &Delivered) -> String {
    let kind = delivered.carrier.kind();
    let now = if count == 1 { format!("in one {kind}") } else { format!("in {count} {kind}s") };
    match delivered.formerly {
        Some(former) => format!("{now}, and in {}s for as long as pods mount those", former.kind()),
        None => now,
    }
}

/// A snapshot that is there is served, whatever its source does.
fn ready(facts: &Facts, fetched: &Condition, published: &Condition) -> State {
    match &facts.revision {
        Some(revision) if published.status == "False" => State::yes(
            "LastGood",
            format!("revision {revision} is served; a newer one is not published: {}", published.message),
        ),
        Some(revision) if fetched.status == "False" => {
            State::yes("LastGood", format!("revision {revision} is served; its source fails: {}", fetched.message))
        }
        Some(revision) => State::yes("Published", format!("revision {revision} is served")),
        None => {
            let cause = [fetched, published]
                .into_iter()
                .find(|condition| condition.status == "False" && condition.reason != "Pending");
            match (facts.only_in, cause) {
                (Some(format), cause) => State::no("FormerFormat", in_former_format(format, cause)),
                (None, Some(cause)) => State::no("NothingPublished", cause.message.clone()),
                (None, None) if facts.suspended => {
                    State::no("Suspended", "nothing was published before spec.suspend was set")
                }
                (None, None) => State::no("Pending", "nothing is published yet"),
            }
        }
    }
}

fn in_former_format(format: Format, cause: Option<&Condition>) -> String {
    let cause = cause.map(|cause| format!(": {}", cause.message)).unwrap_or_default();
    format!(
        "pods that mount what an earlier version published, in format {format}, are served from it, and new pods get nothing before something is published in format {FORMAT}{cause}"
    )
}

/// The reason is the column that people look at.
fn stale(facts: &Facts, fetched: &Condition, published: &Condition, now: Timestamp) -> State {
    if facts.revision.is_none() {
        return State::unknown("NothingPublished", "there is nothing that could be stale");
    }
    if facts.suspended {
        return State::unknown("Suspended", "spec.suspend is true: the source is not read");
    }
    let failing = [fetched, published].into_iter().filter(|condition| condition.status == "False");
    let Some(cause) = failing.min_by_key(|condition| condition.last_transition_time.0) else {
        return match fetched.status.as_str() {
            _ if matches!(facts.pin, Pin::Kept { .. }) => State::no("Pinned", "spec.pin keeps what is published"),
            "True" => State::no("Current", "the source confirms what is published"),
            _ => State::unknown("Pending", "the source was not read yet"),
        };
    };
    let since = cause.last_transition_time.0;
    let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    if age >= facts.stale_after {
        State::yes("Stale", format!("what is published is not confirmed since {since}: {}", cause.message))
    } else {
        State::no("Behind", format!("what is published is not confirmed since {since}"))
    }
}
