//! Apply step: publishes the chosen snapshot, and archives the snapshot that it replaces.

use std::sync::Arc;

use super::{
    desired::{Desired, DesiredSnapshot, record},
    environment::Environment,
    observe::Observed,
};
use crate::{
    api::Changes,
    controller::metrics::{Metrics, Outcome, Step},
    guard::GuardBaseline,
    publish::changes,
    publish::{ArchivedRevision, Error, Evicted, Publisher, Snapshot, WriteCache},
};

/// Snapshot that was published.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) snapshot: Arc<Snapshot>,
    /// Names of its objects.
    pub(super) objects: Vec<String>,
}

/// Environment whose snapshot is published, and the means to publish it.
pub(super) struct Apply<'a> {
    pub(super) environment: &'a Environment<'a>,
    pub(super) publisher: &'a Publisher,
    pub(super) metrics: &'a Metrics,
    pub(super) observed: &'a Observed,
}

impl Apply<'_> {
    /// Publishes the chosen snapshot. `accepted` summarizes the document that was accepted last.
    ///
    /// # Errors
    /// If the snapshot cannot be published. It stays the desired one.
    pub(super) async fn run(
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
        let is_first = !std::mem::replace(&mut next.is_published, true);
        next.replaces = None;
        let changes = next.record.as_ref().and_then(|record| record.changes.as_ref());
        let (namespace, environment, revision) = (&environment.namespace, &environment.name, &snapshot.revision);
        metrics.environments.published(namespace, environment, snapshot.size());
        match changes.filter(|_| is_first) {
            Some(changes) => {
                let (objects, previous) = (published.written, &changes.previous);
                tracing::info!(namespace, environment, revision, previous, objects, %changes, "published the revision");
                metrics.environments.changed(namespace, environment, changes.count);
            }
            None if published.written > 0 => {
                tracing::info!(namespace, environment, revision, objects = published.written, "published the revision");
            }
            None => {}
        }
        let record = next.record.as_ref();
        if !next.dropped_are_deleted {
            let archived = record.map(|record| record.history.as_slice()).unwrap_or_default();
            let dropped = record.map(|record| record.dropped.as_slice()).unwrap_or_default();
            let dropped = [dropped, &evicted.current].concat();
            match publisher.delete_copies(destination, &dropped, archived, &mut desired.cache).await {
                Ok(()) => next.dropped_are_deleted = true,
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

    /// Returns the desired snapshot that replaces the current one, with the current one in its history, and the revisions
    /// that its record has no room for.
    async fn replace(
        &self,
        chosen: Arc<Snapshot>,
        accepted: Option<&GuardBaseline>,
        desired: &mut Desired,
    ) -> (DesiredSnapshot, Evicted) {
        let Self { environment, observed, .. } = self;
        let outgoing = desired.snapshot.take();
        let is_live = outgoing.is_none() && observed.revision.as_ref() == Some(&chosen.revision);
        let before = outgoing.as_ref().map_or_else(|| observed.record.clone(), |outgoing| outgoing.record.clone());
        let is_same =
            is_live || outgoing.as_ref().is_some_and(|outgoing| outgoing.snapshot.revision == chosen.revision);
        let is_published = is_live || is_same && outgoing.as_ref().is_some_and(|outgoing| outgoing.is_published);
        let dropped_were_deleted = outgoing.as_ref().is_some_and(|outgoing| outgoing.dropped_are_deleted);
        let mut record = record(before, accepted, is_same);
        // The schema limits the value to 0 to 20.
        let limit = usize::try_from(environment.spec.revision_history_limit).unwrap_or_default();
        let replaces = outgoing.as_ref().filter(|_| !is_published).and_then(|outgoing| {
            if outgoing.is_published { Some(Arc::clone(&outgoing.snapshot)) } else { outgoing.replaces.clone() }
        });
        if let (Some(record), Some(replaces), false) = (&mut record, &replaces, is_same) {
            record.changes = changes(replaces, &chosen).await;
        }
        let outgoing = outgoing.filter(|outgoing| !is_same && outgoing.is_published && limit > 0);
        let mut dropped = Vec::new();
        if let (Some(record), Some(outgoing)) = (&mut record, outgoing) {
            let (since, changes) = match outgoing.record {
                Some(record) => (record.published_at, record.changes),
                None => (record.published_at.clone(), None),
            };
            let past = ArchivedRevision::of(&outgoing.snapshot, since, changes);
            if self.archive(&outgoing.snapshot, &mut desired.cache).await {
                record.history.retain(|past| past.revision != outgoing.snapshot.revision);
                record.history.insert(0, past);
            } else if record.history.iter().all(|past| past.revision != outgoing.snapshot.revision) {
                // Some of its copies may exist, although their writes failed.
                dropped.push(past);
            }
        }
        let needed = [environment.spec.pin.as_str(), &chosen.revision];
        dropped.extend(record.as_mut().map(|record| record.trim(limit, &needed)).unwrap_or_default());
        // A record that lists deleted copies is not written again only to list them no more.
        let dropped_are_deleted = dropped_were_deleted && is_same && dropped.is_empty();
        if let Some(record) = &mut record {
            record.files = chosen.digests();
            if dropped_were_deleted && !dropped_are_deleted {
                record.dropped.clear();
            }
            record.dropped.splice(..0, dropped);
            if !(is_same || observed.destination.may_have_other_kind) {
                record.archived_in_other_kind.clear();
            }
        }
        let evicted = record.as_mut().map(|record| record.evict(&needed)).unwrap_or_default();
        let dropped_are_deleted = dropped_are_deleted && evicted.current.is_empty();
        (DesiredSnapshot { snapshot: chosen, record, is_published, replaces, dropped_are_deleted }, evicted)
    }

    /// Archives a replaced snapshot and returns true on success. A failure is only logged and counted: the new snapshot
    /// is published in any case, because it matters more.
    async fn archive(&self, snapshot: &Snapshot, cache: &mut WriteCache) -> bool {
        let Self { environment, publisher, metrics, observed } = self;
        let step = metrics.begin(Step::Archive);
        match publisher.archive(&observed.destination, snapshot, cache).await {
            Ok(()) => {
                step.end(Outcome::Done);
                true
            }
            Err(error) => {
                step.end(error.reason());
                let (namespace, environment, revision) =
                    (&environment.namespace, &environment.name, &snapshot.revision);
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
