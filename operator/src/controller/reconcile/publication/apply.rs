//! Apply step: publishes the chosen snapshot, and archives the snapshot that it replaces.

use std::sync::Arc;

use super::replacement::{Archiving, Replacement, Retention};
use crate::{
    api::Changes,
    controller::{
        metrics::{Metrics, Outcome, Step},
        reconcile::{
            desired::{Deletions, Desired, DesiredSnapshot, PublishState},
            environment::Environment,
            observe::Observed,
        },
    },
    guard::GuardBaseline,
    publish::{Error, Evicted, Publisher, Snapshot, WriteCache, changes},
};

/// Snapshot that was published.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) snapshot: Arc<Snapshot>,
    /// Names of its objects.
    pub(crate) objects: Vec<String>,
}

/// Environment whose snapshot is published, and the means to publish it.
pub(crate) struct Apply<'a> {
    pub(crate) environment: &'a Environment<'a>,
    pub(crate) publisher: &'a Publisher,
    pub(crate) metrics: &'a Metrics,
    pub(crate) observed: &'a Observed,
}

impl Apply<'_> {
    /// Publishes the chosen snapshot. `accepted` summarizes the document that was accepted last.
    ///
    /// # Errors
    /// If the snapshot cannot be published. It stays the desired one.
    pub(crate) async fn run(
        &self,
        chosen: Arc<Snapshot>,
        accepted: Option<&GuardBaseline>,
        desired: &mut Desired,
    ) -> Result<Applied, Error> {
        let Self { environment, publisher, metrics, observed } = self;
        let destination = &observed.destination;
        let (next, evicted) = self.replace(chosen, accepted, desired).await;
        let next = desired.snapshot.insert(next);
        let snapshot = Arc::clone(&next.snapshot);
        let step = metrics.begin(Step::Publish);
        let published = match publisher.publish(destination, &snapshot, next.record.as_ref(), &mut desired.cache).await
        {
            Ok(published) => published,
            Err(error) => {
                step.end(error.reason());
                return Err(error);
            }
        };
        step.end(if published.written == 0 { Outcome::Unchanged } else { Outcome::Done });
        let is_first = !next.is_published();
        next.state = PublishState::Published;
        let changes = next.record.as_ref().and_then(|record| record.changes.as_ref());
        let (name, revision) = (&environment.name, &snapshot.revision);
        let (namespace, environment) = (environment.namespace(), &environment.name.name);
        metrics.environments.set_published_bytes(name, snapshot.size());
        match changes.filter(|_| is_first) {
            Some(changes) => {
                let (objects, previous) = (published.written, &changes.previous);
                tracing::info!(namespace, environment, %revision, %previous, objects, %changes, "published the revision");
                metrics.environments.count_changed_flags(name, changes.count);
            }
            None if published.written > 0 => {
                tracing::info!(namespace, environment, %revision, objects = published.written, "published the revision");
            }
            None => {}
        }
        let record = next.record.as_ref();
        if next.deletions == Deletions::Pending {
            let archived = record.map(|record| record.history.as_slice()).unwrap_or_default();
            let dropped = record.map(|record| record.dropped.as_slice()).unwrap_or_default();
            let dropped = [dropped, &evicted.current].concat();
            match publisher.delete_copies(destination, &dropped, archived, &mut desired.cache).await {
                Ok(()) => next.deletions = Deletions::Done,
                Err(error) => tracing::warn!(
                    namespace,
                    environment,
                    %error,
                    "cannot delete the copies of revisions that are not kept any more: they are deleted later"
                ),
            }
        }
        let evicted_in_other_kind = &evicted.archived_in_other_kind;
        let kept = record.map(|record| record.archived_in_other_kind.as_slice()).unwrap_or_default();
        if let Err(error) =
            publisher.delete_copies_in_other_kind(destination, evicted_in_other_kind, kept, &mut desired.cache).await
        {
            tracing::warn!(
                namespace,
                environment,
                %error,
                "cannot delete copies of earlier revisions in the other kind, which the record has no room for"
            );
        }
        Ok(Applied { snapshot, objects: published.objects })
    }

    /// Returns the desired snapshot that replaces the one so far, with that one in its history, and the revisions that its
    /// record has no room for.
    async fn replace(
        &self,
        chosen: Arc<Snapshot>,
        accepted: Option<&GuardBaseline>,
        desired: &mut Desired,
    ) -> (DesiredSnapshot, Evicted) {
        let Self { environment, observed, .. } = self;
        // The schema limits the value to 0 to 20.
        let limit = usize::try_from(environment.spec.revision_history_limit).unwrap_or_default();
        let replacement = Replacement::of(Arc::clone(&chosen), desired.snapshot.take(), observed, accepted);
        let changes = match replacement.compared() {
            Some(previous) => changes(previous, &chosen).await,
            None => None,
        };
        let archiving = match replacement.outgoing() {
            Some(outgoing) if limit > 0 => self.archive(outgoing, &mut desired.cache).await,
            _ => Archiving::NotWanted,
        };
        let other_kind = observed.destination.may_have_other_kind;
        replacement.finish(changes, archiving, Retention { limit, pin: &environment.spec.pin, other_kind })
    }

    /// Archives a replaced snapshot. A failure is only logged and counted: the new snapshot is published in any case,
    /// because it matters more.
    async fn archive(&self, snapshot: &Snapshot, cache: &mut WriteCache) -> Archiving {
        let Self { environment, publisher, metrics, observed } = self;
        let step = metrics.begin(Step::Archive);
        match publisher.archive(&observed.destination, snapshot, cache).await {
            Ok(()) => {
                step.end(Outcome::Done);
                Archiving::Done
            }
            Err(error) => {
                step.end(error.reason());
                let (namespace, environment, revision) =
                    (environment.namespace(), &environment.name.name, &snapshot.revision);
                tracing::warn!(
                    namespace,
                    environment,
                    %revision,
                    %error,
                    "cannot archive the replaced revision: spec.pin cannot go back to it"
                );
                Archiving::Failed
            }
        }
    }
}

/// Compares the flags of two snapshots. The work takes milliseconds for each megabyte, so it runs on a thread of its own.
async fn changes(previous: &Arc<Snapshot>, chosen: &Arc<Snapshot>) -> Option<Changes> {
    let snapshots = [Arc::clone(previous), Arc::clone(chosen)];
    let comparing = tokio::task::spawn_blocking(move || {
        let [previous, chosen] = snapshots.each_ref().map(|snapshot| snapshot.core());
        changes::between(&previous?.bytes, &chosen?.bytes)
    });
    comparing.await.ok().flatten()
}
