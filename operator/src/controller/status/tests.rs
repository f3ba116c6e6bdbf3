use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::events::EventType;

use super::*;
use crate::api::{Delivered, FeatureEnvironmentStatus, Pods, Reason, Revision};

const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn facts(fetch: FetchOutcome, publication: Publication, revision: Option<&str>) -> Facts {
    Facts {
        generation: Some(1),
        suspended: false,
        work: WorkOutcome { fetch, pin: Pin::None, publication, revision: revision.map(Revision::new) },
        tasks: TaskStates::default(),
        unfinished: None,
        published_at: None,
        changes: None,
        only_in: None,
        held: None,
        core_bytes: None,
        history: Vec::new(),
        refreshed: None,
        stale_after: HOUR,
    }
}

fn failure(reason: Reason) -> Failure {
    Failure { reason, message: format!("{reason}: do this") }
}

fn done() -> Publication {
    Publication::Done {
        objects: vec!["remora-a-v3-core".to_owned()],
        delivered: Delivered::default(),
        contents: Some(Contents { features: 3, overrides: 2, bytes: 100, ..Contents::default() }),
    }
}

fn condition(status: &FeatureEnvironmentStatus, kind: &str) -> (String, String) {
    let found = status.condition(kind).unwrap();
    (found.status.clone(), found.reason.clone())
}

fn is(status: &FeatureEnvironmentStatus, kind: &str, expected: (&str, &str)) {
    assert_eq!(condition(status, kind), (expected.0.to_owned(), expected.1.to_owned()), "{kind}");
}

fn published() -> FeatureEnvironmentStatus {
    next_status(&FeatureEnvironmentStatus::default(), facts(FetchOutcome::Done, done(), Some("abc")), at(0))
}

#[test]
fn published_environment_is_ready() {
    let status = published();
    is(&status, ACCEPTED, ("True", "Accepted"));
    is(&status, FETCHED, ("True", "Synced"));
    is(&status, PUBLISHED, ("True", "Published"));
    is(&status, READY, ("True", "Published"));
    is(&status, STALE, ("False", "Current"));
    assert_eq!((status.features, status.overrides, status.bytes), (Some(3), Some(2), Some(100)));
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(1)));
}

#[test]
fn status_without_change_stays_equal() {
    let status = published();
    for fetch in [FetchOutcome::Done, FetchOutcome::NotRun] {
        let publication =
            Publication::Done { objects: status.objects.clone(), delivered: Delivered::default(), contents: None };
        assert_eq!(next_status(&status, facts(fetch, publication, Some("abc")), at(999)), status);
    }
}

/// Tools wait until the status has the generation of the spec. Before its source was read, what is published belongs to the
/// spec before.
#[test]
fn generation_is_observed_once_its_source_was_read() {
    let edited = |fetch: FetchOutcome| Facts { generation: Some(2), ..facts(fetch, Publication::None, Some("abc")) };
    let waiting = next_status(&published(), edited(FetchOutcome::NotRun), at(10));
    assert_eq!(waiting, published());
    for fetch in [FetchOutcome::Done, FetchOutcome::Failed(failure(Reason::UpstreamUnavailable))] {
        let read = next_status(&waiting, edited(fetch), at(11));
        assert_eq!(read.observed_generation, Some(2));
        assert!(read.conditions.iter().all(|condition| condition.observed_generation == Some(2)));
    }
    let suspended = Facts { suspended: true, ..edited(FetchOutcome::NotRun) };
    assert_eq!(next_status(&waiting, suspended, at(11)).observed_generation, Some(2));
}

#[test]
fn failing_source_leaves_published_environment_ready() {
    let failing = || facts(FetchOutcome::Failed(failure(Reason::UpstreamUnavailable)), Publication::None, Some("abc"));
    let behind = next_status(&published(), failing(), at(10));
    is(&behind, ACCEPTED, ("True", "Accepted"));
    is(&behind, FETCHED, ("False", "UpstreamUnavailable"));
    is(&behind, PUBLISHED, ("True", "Published"));
    is(&behind, READY, ("True", "LastGood"));
    is(&behind, STALE, ("False", "Behind"));
    let still = next_status(&behind, failing(), at(60));
    assert_eq!(still, behind, "a poll that fails like the previous one changes nothing");
    let stale = next_status(&still, failing(), at(10 + 3600));
    is(&stale, READY, ("True", "LastGood"));
    is(&stale, STALE, ("True", "Stale"));
}

#[test]
fn environment_that_was_never_published_is_not_ready() {
    let refused = facts(FetchOutcome::NotAccepted(failure(Reason::SecretNotFound)), Publication::None, None);
    let status = next_status(&FeatureEnvironmentStatus::default(), refused, at(0));
    is(&status, ACCEPTED, ("False", "SecretNotFound"));
    is(&status, FETCHED, ("False", "SecretNotFound"));
    is(&status, PUBLISHED, ("False", "Pending"));
    is(&status, READY, ("False", "NothingPublished"));
    is(&status, STALE, ("Unknown", "NothingPublished"));
    let ready = status.condition(READY).unwrap();
    assert_eq!(ready.message, "SecretNotFound: do this");
}

#[test]
fn document_over_capacity_leaves_last_good_revision() {
    let facts = facts(FetchOutcome::Done, Publication::Failed(failure(Reason::CapacityExceeded)), Some("abc"));
    let status = next_status(&published(), facts, at(5));
    is(&status, PUBLISHED, ("False", "CapacityExceeded"));
    is(&status, READY, ("True", "LastGood"));
    is(&status, STALE, ("False", "Behind"));
    assert_eq!(status.features, Some(3));
}

#[test]
fn suspended_environment_reports_suspension() {
    let suspended = Facts { suspended: true, ..facts(FetchOutcome::NotRun, Publication::None, Some("abc")) };
    let status = next_status(&published(), suspended, at(5));
    is(&status, ACCEPTED, ("True", "Suspended"));
    is(&status, READY, ("True", "Published"));
    is(&status, STALE, ("Unknown", "Suspended"));
}

#[test]
fn findings_beyond_limit_are_counted_and_not_listed() {
    let finding = |n: usize| crate::api::Finding { subject: format!("feature {n}"), message: "large".to_owned() };
    let contents = Contents { findings: (0..50).map(finding).collect(), finding_count: 50, ..Contents::default() };
    let publication =
        Publication::Done { objects: Vec::new(), delivered: Delivered::default(), contents: Some(contents) };
    let status =
        next_status(&FeatureEnvironmentStatus::default(), facts(FetchOutcome::Done, publication, Some("a")), at(0));
    assert_eq!((status.findings.len(), status.finding_count), (20, Some(50)));
}

#[test]
fn events_are_made_for_transitions_only() {
    let reasons = |before: &FeatureEnvironmentStatus, after: &FeatureEnvironmentStatus| -> Vec<String> {
        events_between(before, after).into_iter().map(|event| event.reason).collect()
    };
    let failing = |reason| facts(FetchOutcome::Failed(failure(reason)), Publication::None, Some("abc"));
    let new = FeatureEnvironmentStatus::default();
    let good = published();
    assert_eq!(reasons(&new, &good), ["Published"]);
    assert!(reasons(&good, &good).is_empty());
    let bad = next_status(&good, failing(Reason::UpstreamUnavailable), at(1));
    assert_eq!(reasons(&good, &bad), ["UpstreamUnavailable"]);
    let other = next_status(&bad, failing(Reason::TLSFailure), at(2));
    assert_eq!(reasons(&bad, &other), ["TLSFailure"]);
    let same = next_status(&other, failing(Reason::TLSFailure), at(3));
    assert!(reasons(&other, &same).is_empty());
    let healed = next_status(&same, facts(FetchOutcome::Done, done(), Some("def")), at(4));
    assert_eq!(reasons(&same, &healed), ["FetchRecovered", "Published"]);
    let refused = next_status(
        &new,
        facts(FetchOutcome::NotAccepted(failure(Reason::SecretNotFound)), Publication::None, None),
        at(0),
    );
    assert_eq!(reasons(&new, &refused), ["SecretNotFound"]);
}

#[test]
fn event_note_is_cut_to_limit_of_api_server() {
    let long = Failure { reason: Reason::WriteFailed, message: "ü".repeat(5000) };
    let after = next_status(&published(), facts(FetchOutcome::Done, Publication::Failed(long), Some("abc")), at(1));
    let events = events_between(&published(), &after);
    assert_eq!(events.len(), 1);
    assert!(matches!(events[0].type_, EventType::Warning));
    assert!(events[0].note.as_ref().unwrap().len() <= 1024);
}

#[test]
fn pods_that_fall_behind_and_catch_up_make_events() {
    let with = |behind, problem: Option<&str>| {
        let pods = Pods { total: 2, behind, problem: problem.map(str::to_owned), ..Pods::default() };
        let facts = Facts {
            tasks: TaskStates { pods: Some(pods), ..TaskStates::default() },
            ..facts(FetchOutcome::Done, Publication::None, Some("abc"))
        };
        next_status(&published(), facts, at(1))
    };
    let reasons = |before: &FeatureEnvironmentStatus, after: &FeatureEnvironmentStatus| -> Vec<String> {
        events_between(before, after).into_iter().map(|event| event.reason).collect()
    };
    let (well, waiting, behind) = (with(0, None), with(1, None), with(1, Some("stuck")));
    assert!(reasons(&published(), &well).is_empty() && reasons(&well, &waiting).is_empty());
    assert_eq!(reasons(&waiting, &behind), ["PodsBehind"]);
    assert!(reasons(&behind, &behind).is_empty());
    assert_eq!(reasons(&behind, &well), ["PodsFollowed"]);
    // Pods that do not answer are counted in the status and make no Event.
    assert!(reasons(&well, &with(0, Some("no answer"))).is_empty());
    // Without a new observation the counts stay.
    let later = next_status(&behind, facts(FetchOutcome::NotRun, Publication::None, Some("abc")), at(2));
    assert_eq!(later.pods, behind.pods);
}

/// The clock of the node is set by an hour and set right again: what counts is what it says now, and nothing is torn by it.
#[test]
fn clock_that_is_an_hour_off_makes_stale_only_while_it_is_off() {
    const HOUR: i64 = 3600;
    let minutes = |facts: Facts| Facts { stale_after: Duration::from_secs(300), ..facts };
    let failing =
        || minutes(facts(FetchOutcome::Failed(failure(Reason::UpstreamUnavailable)), Publication::None, Some("abc")));
    let behind = next_status(&published(), failing(), at(10));
    is(&behind, STALE, ("False", "Behind"));
    let forth = next_status(&behind, failing(), at(20 + HOUR));
    is(&forth, STALE, ("True", "Stale"));
    is(&forth, READY, ("True", "LastGood"));
    let right = next_status(&forth, failing(), at(30));
    is(&right, STALE, ("False", "Behind"));
    let back = next_status(&right, failing(), at(40 - HOUR));
    is(&back, STALE, ("False", "Behind"));
    // Since when it fails is not touched by any of it.
    let since = |status: &FeatureEnvironmentStatus| status.condition(FETCHED).unwrap().last_transition_time.clone();
    assert_eq!([since(&forth), since(&right), since(&back)], [since(&behind), since(&behind), since(&behind)]);
    let stale = next_status(&back, failing(), at(10 + 300));
    is(&stale, STALE, ("True", "Stale"));

    // A source that is read is current, whatever the clock says.
    for off in [HOUR, -HOUR] {
        let publication =
            Publication::Done { objects: stale.objects.clone(), delivered: Delivered::default(), contents: None };
        let read = minutes(facts(FetchOutcome::Done, publication, Some("abc")));
        is(&next_status(&stale, read, at(400 + off)), STALE, ("False", "Current"));
    }
}
