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
    publish::{Error, Evicted, Published, Publisher, Snapshot, WriteCache, changes},
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
        let (next, evicted) = self.replace(chosen, accepted, desired).await;
        let Desired { snapshot, cache, .. } = desired;
        let next = snapshot.insert(next);
        let published = self.publish(next, cache).await?;
        self.announce(next, &published);
        next.state = PublishState::Published;
        self.delete_dropped(next, &evicted, cache).await;
        Ok(Applied { snapshot: Arc::clone(&next.snapshot), objects: published.objects })
    }

    /// Publishes the desired snapshot, and counts the outcome of the step.
    async fn publish(&self, next: &DesiredSnapshot, cache: &mut WriteCache) -> Result<Published, Error> {
        let step = self.metrics.begin(Step::Publish);
        let destination = &self.observed.destination;
        match self.publisher.publish(destination, &next.snapshot, next.record.as_ref(), cache).await {
            Ok(published) => {
                step.end(if published.written == 0 { Outcome::Unchanged } else { Outcome::Done });
                Ok(published)
            }
            Err(error) => {
                step.end(error.reason());
                Err(error)
            }
        }
    }

    /// Reports what was published in the metrics and the log. The changed flags are counted once.
    fn announce(&self, next: &DesiredSnapshot, published: &Published) {
        let environments = &self.metrics.environments;
        let (namespace, environment) = (self.environment.namespace(), &self.environment.name.name);
        let (revision, objects) = (&next.snapshot.revision, published.written);
        environments.set_published_bytes(&self.environment.name, next.snapshot.size());
        let changes = next.record.as_ref().and_then(|record| record.changes.as_ref());
        match changes.filter(|_| !next.is_published()) {
            Some(changes) => {
                let previous = &changes.previous;
                tracing::info!(namespace, environment, %revision, %previous, objects, %changes, "published the revision");
                environments.count_changed_flags(&self.environment.name, changes.count);
            }
            None if objects > 0 => {
                tracing::info!(namespace, environment, %revision, objects, "published the revision");
            }
            None => {}
        }
    }

    /// Deletes the copies of revisions that are not kept any more. A failure is only logged.
    async fn delete_dropped(&self, next: &mut DesiredSnapshot, evicted: &Evicted, cache: &mut WriteCache) {
        let Self { environment, publisher, observed, .. } = self;
        let (namespace, environment) = (environment.namespace(), &environment.name.name);
        let destination = &observed.destination;
        let record = next.record.as_ref();
        if next.deletions == Deletions::Pending {
            let archived = record.map(|record| record.history.as_slice()).unwrap_or_default();
            let dropped = record.map(|record| record.dropped.as_slice()).unwrap_or_default();
            let dropped = [dropped, &evicted.current].concat();
            match publisher.delete_copies(destination, &dropped, archived, cache).await {
                Ok(()) => next.deletions = Deletions::Done,
                Err(error) => tracing::warn!(
                    namespace,
                    environment,
                    %error,
                    "cannot delete the copies of revisions that are not kept any more: they are deleted later"
                ),
            }
        }
        let kept = record.map(|record| record.archived_in_other_kind.as_slice()).unwrap_or_default();
        let evicted = &evicted.archived_in_other_kind;
        if let Err(error) = publisher.delete_copies_in_other_kind(destination, evicted, kept, cache).await {
            tracing::warn!(
                namespace,
                environment,
                %error,
                "cannot delete copies of earlier revisions in the other kind, which the record has no room for"
            );
        }
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
