//! Apply step: publishes the chosen snapshot, and archives the snapshot that it replaces.

use std::sync::Arc;

use super::{
    desired::{Desired, DesiredSnapshot, record},
    environment::Environment,
    observe::Observed,
};
use crate::{
    compile::guard::DocumentSummary,
    controller::metrics::{Metrics, Outcome, Step},
    publish::{Error, Owner, Past, Publisher, Snapshot, WriteCache},
};

/// Snapshot that was published.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) snapshot: Arc<Snapshot>,
    /// Names of its objects.
    pub(super) objects: Vec<String>,
}

/// Publishes the chosen snapshot. `accepted` summarizes the document that was accepted last.
///
/// # Errors
/// If the snapshot cannot be published. It stays the desired one.
pub(super) async fn apply(
    environment: &Environment<'_>,
    publisher: &Publisher,
    metrics: &Metrics,
    observed: &Observed,
    chosen: Arc<Snapshot>,
    accepted: Option<&DocumentSummary>,
    desired: &mut Desired,
) -> Result<Applied, Error> {
    let owner = &observed.owner;
    let (next, dropped) = replace(environment, publisher, metrics, observed, chosen, accepted, desired).await;
    let next = desired.snapshot.insert(next);
    let snapshot = Arc::clone(&next.snapshot);
    let step = metrics.begin(Step::Publish);
    let published = match publisher.publish(owner, &snapshot, next.record.as_ref(), &mut desired.cache).await {
        Ok(published) => published,
        Err(error) => {
            step.end(error.reason());
            return Err(error);
        }
    };
    step.end(if published.written == 0 { Outcome::Unchanged } else { Outcome::Done });
    next.is_published = true;
    let (namespace, environment, revision) = (&environment.namespace, &environment.name, &snapshot.revision);
    if published.written > 0 {
        tracing::info!(namespace, environment, revision, objects = published.written, "published the revision");
    }
    let archived = next.record.as_ref().map(|record| record.history.as_slice()).unwrap_or_default();
    if let Err(error) = publisher.forget(owner, &dropped, archived).await {
        tracing::warn!(
            namespace,
            environment,
            %error,
            "cannot delete the copies of revisions that are not kept any more: they are deleted later"
        );
    }
    Ok(Applied { snapshot, objects: published.objects })
}

/// Returns the desired snapshot that replaces the current one, with the current one in its history, and the revisions
/// that drop out of the history.
async fn replace(
    environment: &Environment<'_>,
    publisher: &Publisher,
    metrics: &Metrics,
    observed: &Observed,
    chosen: Arc<Snapshot>,
    accepted: Option<&DocumentSummary>,
    desired: &mut Desired,
) -> (DesiredSnapshot, Vec<Past>) {
    let outgoing = desired.snapshot.take();
    let is_live = outgoing.is_none() && observed.revision.as_ref() == Some(&chosen.revision);
    let before = outgoing.as_ref().map_or_else(|| observed.record.clone(), |outgoing| outgoing.record.clone());
    let is_same = is_live || outgoing.as_ref().is_some_and(|outgoing| outgoing.snapshot.revision == chosen.revision);
    let is_published = is_live || is_same && outgoing.as_ref().is_some_and(|outgoing| outgoing.is_published);
    let mut record = record(before, accepted, is_same);
    // The schema limits the value to 0 to 20.
    let limit = usize::try_from(environment.spec.revision_history_limit).unwrap_or_default();
    let outgoing = outgoing.filter(|outgoing| !is_same && outgoing.is_published && limit > 0);
    if let (Some(record), Some(outgoing)) = (&mut record, outgoing)
        && archive(environment, publisher, metrics, &observed.owner, &outgoing.snapshot, &desired.cache).await
    {
        let since = outgoing.record.map_or(record.published_at.clone(), |record| record.published_at);
        record.history.retain(|past| past.revision != outgoing.snapshot.revision);
        record.history.insert(0, Past::of(&outgoing.snapshot, since));
    }
    let needed = [environment.spec.pin.as_str(), &chosen.revision];
    let dropped = record.as_mut().map(|record| record.trim(limit, &needed));
    (DesiredSnapshot { snapshot: chosen, record, is_published }, dropped.unwrap_or_default())
}

/// Archives a replaced snapshot and returns true on success. A failure is only logged and counted: the new snapshot is
/// published in any case, because it matters more.
async fn archive(
    environment: &Environment<'_>,
    publisher: &Publisher,
    metrics: &Metrics,
    owner: &Owner,
    snapshot: &Snapshot,
    cache: &WriteCache,
) -> bool {
    let step = metrics.begin(Step::Archive);
    match publisher.archive(owner, snapshot, cache).await {
        Ok(()) => {
            step.end(Outcome::Done);
            true
        }
        Err(error) => {
            step.end(error.reason());
            let (namespace, environment, revision) = (&environment.namespace, &environment.name, &snapshot.revision);
            tracing::warn!(
                namespace,
                environment,
                revision,
                %error,
                "cannot archive the replaced revision: spec.pin cannot go back to it"
            );
            false
        }
    }
}
