//! Events for the changes between two statuses, one for each change. Pure.

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Resource,
    runtime::events::{Event, EventType},
};

use super::conditions::{ACCEPTED, FETCHED, PUBLISHED, READY, STALE};
use crate::{
    api::{Changes, FeatureEnvironment, FeatureEnvironmentStatus, Reason, Revision},
    events::event,
};

/// Returns the Events for the changes from `before` to `after`.
pub(in crate::controller) fn events_between(
    before: &FeatureEnvironmentStatus,
    after: &FeatureEnvironmentStatus,
) -> Vec<Event> {
    let mut events = Vec::new();
    let fell = |kind: &str| became(before, after, kind, "False");
    if let Some(accepted) = fell(ACCEPTED) {
        events.push(warning(accepted, "Accept"));
    } else if let Some(fetched) = fell(FETCHED) {
        events.push(warning(fetched, "Fetch"));
    }
    if let Some(published) = fell(PUBLISHED).filter(|published| published.reason != Reason::Pending.as_str()) {
        events.push(warning(published, "Publish"));
    }
    if let Some(stale) = became(before, after, STALE, "True") {
        events.push(warning(stale, "Fetch"));
    }
    events.extend(rollout(before, after));
    let was = |kind: &str| before.condition(kind).map(|condition| condition.status.as_str());
    let is = |kind: &str| after.condition(kind).map(|condition| condition.status.as_str());
    if was(FETCHED) == Some("False") && is(FETCHED) == Some("True") {
        events.push(normal(Reason::FetchRecovered, "fetching from the source works again".to_owned(), "Fetch"));
    }
    match &after.revision {
        Some(revision) if before.revision.as_ref() != Some(revision) => {
            events.push(published(revision, after.changes.as_ref()));
        }
        None if was(READY) == Some("True") => {
            let previous = fell(READY).filter(|ready| ready.reason == Reason::PreviousFormat.as_str());
            let gone = "the core object of the snapshot was deleted: the operator writes it again".to_owned();
            events.push(previous.map_or_else(
                || event(EventType::Warning, Reason::NothingPublished.as_str(), gone, "Publish"),
                |previous| warning(previous, "Publish"),
            ));
        }
        _ => {}
    }
    events
}

/// Event for a published revision.
fn published(revision: &Revision, changes: Option<&Changes>) -> Event {
    let Some(changes) = changes.filter(|changes| changes.count > 0) else {
        // The recorder counts repetitions under the first note, so this note names no revision.
        let note = "a new revision is published; status.revision names it".to_owned();
        return normal(Reason::Published, note, "Publish");
    };
    // The recorder counts Events with equal references as one, so the reference names both revisions.
    let change = format!("status.revision: {} -> {revision}", changes.previous);
    let secondary = ObjectReference {
        api_version: Some(FeatureEnvironment::api_version(&()).into_owned()),
        kind: Some(FeatureEnvironment::kind(&()).into_owned()),
        field_path: Some(change),
        ..ObjectReference::default()
    };
    let note = format!("revision {revision} is published: {changes}");
    Event { secondary: Some(secondary), ..normal(Reason::Published, note, "Publish") }
}

/// Event for pods that stay behind the published revision, or that have caught up.
fn rollout(before: &FeatureEnvironmentStatus, after: &FeatureEnvironmentStatus) -> Option<Event> {
    let behind = |status: &FeatureEnvironmentStatus| {
        let pods = status.pods.as_ref()?;
        pods.problem.clone().filter(|_| pods.behind > 0)
    };
    match (behind(before), behind(after)) {
        (None, Some(problem)) => Some(event(EventType::Warning, Reason::PodsBehind.as_str(), problem, "Deliver")),
        (Some(_), None) if after.pods.as_ref().is_some_and(|pods| pods.behind == 0) => Some(normal(
            Reason::PodsFollowed,
            "all pods that answer serve the published revision".to_owned(),
            "Deliver",
        )),
        _ => None,
    }
}

/// Returns the condition of `after` if it has this status, and had another status or another reason in `before`.
fn became<'a>(
    before: &FeatureEnvironmentStatus,
    after: &'a FeatureEnvironmentStatus,
    kind: &str,
    status: &str,
) -> Option<&'a Condition> {
    let now = after.condition(kind).filter(|condition| condition.status == status)?;
    let same = before.condition(kind).is_some_and(|was| was.status == status && was.reason == now.reason);
    (!same).then_some(now)
}

fn warning(condition: &Condition, action: &str) -> Event {
    event(EventType::Warning, &condition.reason, condition.message.clone(), action)
}

fn normal(reason: Reason, note: String, action: &str) -> Event {
    event(EventType::Normal, reason.as_str(), note, action)
}
